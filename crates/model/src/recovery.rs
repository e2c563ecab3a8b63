//! What becomes of a write whose writer is gone: a decision on what the catalog says and what a look
//! at the bytes found.

use std::time::Duration;

use crate::intent::Expired;

/// Larger bodies are not read again to finish a write: a client sends no more in one request, and
/// reading them may take longer than a tick.
const REREAD_BYTES_MAX: u64 = 5 * 1024 * 1024 * 1024;
/// The longest rest between two looks, for which an ambiguous intent is leased.
pub const REST_MAX: Duration = Duration::from_hours(1);

/// What is done with writes that can be finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// They are.
    Promote,
    /// They are given up all the same.
    Rollback,
}

/// What a look at the bytes found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Look {
    /// They are what the sender declared.
    Matches,
    /// They are not.
    Differs(&'static str),
    /// There are none, and that is proven.
    Absent,
    /// Nobody can tell.
    Unknown(String),
}

/// What becomes of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
    /// It is finished.
    Promoted,
    /// Its bytes must go.
    Dropped(&'static str),
    /// Its bytes must go: a later change of the key was acknowledged.
    Superseded,
    /// It is looked at again later.
    Ambiguous(String),
}

impl Resolution {
    /// The word for it in metrics.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Promoted => "promoted",
            Self::Dropped(_) => "dropped",
            Self::Superseded => "superseded",
            Self::Ambiguous(_) => "ambiguous",
        }
    }
}

/// What becomes of a write without looking at its bytes; `None` if that takes a look.
#[must_use]
pub fn without_a_look(intent: &Expired, recovery: Recovery) -> Option<Resolution> {
    match &intent.draft {
        _ if intent.superseded => Some(Resolution::Superseded),
        _ if intent.place.is_none() => Some(Resolution::Dropped("its body was not compared to its end")),
        None => Some(Resolution::Dropped("nothing was declared about the bytes")),
        Some(_) if recovery == Recovery::Rollback => Some(Resolution::Dropped("rolled back")),
        Some(_) if intent.bucket_name.is_none() => Some(Resolution::Dropped("the bucket is gone")),
        Some(_) if intent.size_bytes > REREAD_BYTES_MAX => Some(Resolution::Dropped("too large to read again")),
        Some(_) => None,
    }
}

/// What becomes of a write whose bytes were looked at.
#[must_use]
pub fn after_a_look(look: Look) -> Resolution {
    match look {
        Look::Matches => Resolution::Promoted,
        Look::Differs(what) => Resolution::Dropped(what),
        Look::Absent => Resolution::Dropped("the bytes never arrived"),
        Look::Unknown(why) => Resolution::Ambiguous(why),
    }
}

/// How long to wait before an unclear write is looked at again: as long as it is old, so that each
/// look costs no more than all before it.
#[must_use]
pub fn rest(age: Duration, tick: Duration) -> Duration {
    age.clamp(tick.min(REST_MAX), REST_MAX)
}

#[cfg(test)]
mod tests {
    use super::{Look, Recovery, Resolution, after_a_look, rest, without_a_look};
    use crate::ids::{BucketId, IntentId, WriteId};
    use crate::intent::{Draft, Expired};
    use std::time::Duration;

    fn expired() -> Expired {
        Expired {
            id: IntentId::new(uuid::Uuid::nil()),
            write: WriteId::new(uuid::Uuid::nil()),
            place: Some(("disk".parse().expect("valid"), "b/k~1".to_owned())),
            size_bytes: 1,
            bucket: BucketId(1),
            bucket_name: Some("b".to_owned()),
            key: "k".parse().expect("valid"),
            superseded: false,
            draft: Some(Draft::default()),
            age: Duration::ZERO,
        }
    }

    #[test]
    fn only_a_write_that_can_be_finished_is_worth_a_look() {
        let promote = |intent: &Expired| without_a_look(intent, Recovery::Promote);
        assert_eq!(promote(&expired()), None);
        assert_eq!(promote(&Expired { superseded: true, ..expired() }), Some(Resolution::Superseded));
        let dropped = [
            Expired { draft: None, ..expired() },
            Expired { place: None, ..expired() },
            Expired { bucket_name: None, ..expired() },
            Expired { size_bytes: u64::MAX, ..expired() },
        ];
        assert!(dropped.iter().all(|intent| matches!(promote(intent), Some(Resolution::Dropped(_)))));
        assert!(matches!(without_a_look(&expired(), Recovery::Rollback), Some(Resolution::Dropped(_))));
    }

    #[test]
    fn what_nobody_can_tell_decides_nothing() {
        assert_eq!(after_a_look(Look::Unknown("away".into())), Resolution::Ambiguous("away".into()));
        assert!(matches!(after_a_look(Look::Absent), Resolution::Dropped(_)));
        assert!(matches!(after_a_look(Look::Differs("Content-MD5")), Resolution::Dropped("Content-MD5")));
    }

    #[test]
    fn looks_become_rarer_and_never_stop() {
        let (second, minute, hour) = (Duration::from_secs(1), Duration::from_mins(1), Duration::from_hours(1));
        assert_eq!(
            [rest(second, minute), rest(2 * minute, minute), rest(9 * hour, minute)],
            [minute, 2 * minute, hour]
        );
    }
}
