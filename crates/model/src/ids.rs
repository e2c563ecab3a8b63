//! Identifiers that s3o generates: time-ordered, unique, never reused.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock::{Clock, Timestamp};
use crate::entropy::Entropy;

macro_rules! id_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(#[serde(with = "uuid::serde::simple")] Uuid);

        impl $name {
            /// Wraps an identifier.
            #[must_use]
            pub const fn new(id: Uuid) -> Self {
                Self(id)
            }

            /// The wrapped identifier, for the catalog and for physical keys.
            #[must_use]
            pub const fn uuid(self) -> Uuid {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.as_simple().fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.as_simple().fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;
            fn from_str(text: &str) -> Result<Self, uuid::Error> {
                Uuid::try_parse(text).map(Self)
            }
        }
    };
}

id_type!(
    /// Identifies one content.
    ContentId
);
id_type!(
    /// Identifies one intent: one copy of one write.
    IntentId
);
id_type!(
    /// Identifies one write; its copies share it.
    WriteId
);
id_type!(
    /// Identifies one multipart upload.
    UploadId
);
id_type!(
    /// Identifies one version of an object.
    VersionId
);
id_type!(
    /// Identifies one operation on a prefix.
    PrefixOperationId
);
id_type!(
    /// Proves the ownership of a claim.
    ClaimToken
);
id_type!(
    /// Identifies one run of the process.
    InstanceId
);
id_type!(
    /// Identifies one request.
    RequestId
);

/// Identifies a cleanup; assigned by the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CleanupId(pub i64);

/// Identifies a dead letter; assigned by the catalog, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DeadLetterId(pub i64);

/// Identifies a bucket; assigned by the catalog, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BucketId(pub i64);

/// Generates identifiers from the injected clock and randomness.
#[derive(Clone)]
pub struct IdSource {
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
}

impl IdSource {
    /// A source with this clock and randomness.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, entropy: Arc<dyn Entropy>) -> Self {
        Self { clock, entropy }
    }

    /// A new UUID of version 7: it starts with the millisecond, so that identifiers sort by age.
    #[must_use]
    pub fn fresh(&self) -> Uuid {
        let millis = u64::try_from(self.clock.now().millis()).unwrap_or(0);
        let high = self.entropy.next_u64().to_be_bytes();
        let low = self.entropy.next_u64().to_be_bytes();
        let bits = [high[0], high[1], low[0], low[1], low[2], low[3], low[4], low[5], low[6], low[7]];
        uuid::Builder::from_unix_timestamp_millis(millis, &bits).into_uuid()
    }
}

impl ContentId {
    /// The greatest identifier of a moment, since identifiers start with their time.
    #[must_use]
    pub fn last_of(moment: Timestamp) -> Self {
        let millis = u128::try_from(moment.millis()).unwrap_or(0);
        Self::new(Uuid::from_u128((millis << 80) | ((1 << 80) - 1)))
    }
}

#[cfg(test)]
mod tests {
    use super::{ContentId, IdSource};
    use crate::clock::{ManualClock, Timestamp};
    use crate::entropy::SeededEntropy;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn identifiers_sort_by_time_and_parse_from_text() {
        let clock = Arc::new(ManualClock::starting_at(Timestamp::from_millis(1_700_000_000_000)));
        let ids = IdSource::new(clock.clone(), Arc::new(SeededEntropy::new(3)));
        let first = ContentId::new(ids.fresh());
        clock.advance(Duration::from_millis(1));
        let second = ContentId::new(ids.fresh());
        assert!(first.to_string() < second.to_string());
        assert_eq!(first.to_string().parse::<ContentId>().ok(), Some(first));
        assert_eq!(first.uuid().get_version_num(), 7);
        let last = ContentId::last_of(Timestamp::from_millis(1_700_000_000_000)).to_string();
        assert!(first.to_string() < last && last < second.to_string());
    }
}
