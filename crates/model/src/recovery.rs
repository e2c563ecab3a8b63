//! Resolution of a write whose writer crashed, from the catalog's row and an inspection of the stored
//! bytes.

use std::time::Duration;

use crate::intent::Expired;

/// Larger bodies are not re-read to commit a write: no client sends more in one request, and reading
/// them may take longer than a tick.
const REREAD_BYTES_MAX: u64 = 5 * 1024 * 1024 * 1024;
/// Longest delay between two inspections of an ambiguous write.
pub const REST_MAX: Duration = Duration::from_hours(1);

/// What to do with writes that can be committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// Commit them.
    Promote,
    /// Abandon them.
    Rollback,
}

/// Result of an inspection of the stored bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inspection {
    /// The bytes match the declared digests.
    Matches,
    /// The bytes differ, for this reason.
    Differs(&'static str),
    /// The bytes are proven absent.
    Absent,
    /// The backend gave no clear answer.
    Unknown(String),
}

/// How a write is resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
    /// The write is committed.
    Promoted,
    /// The write is abandoned for this reason; its bytes are deleted.
    Dropped(&'static str),
    /// The write is abandoned because a later change of the key was acknowledged.
    Superseded,
    /// The write is inspected again later.
    Ambiguous(String),
}

impl Resolution {
    /// Label value in metrics.
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

/// Resolves a write without inspecting its bytes; `None` if an inspection is needed.
#[must_use]
pub fn resolve_uninspected(intent: &Expired, recovery: Recovery) -> Option<Resolution> {
    match &intent.draft {
        _ if intent.superseded => Some(Resolution::Superseded),
        _ if intent.key.is_none() => Some(Resolution::Dropped("the copy was not finished")),
        _ if intent.place.is_none() => Some(Resolution::Dropped("the comparison of its body was not finished")),
        None => Some(Resolution::Dropped("the client declared no digest")),
        Some(_) if recovery == Recovery::Rollback => Some(Resolution::Dropped("rolled back")),
        Some(_) if intent.bucket_name.is_none() => Some(Resolution::Dropped("the bucket was deleted")),
        Some(_) if intent.size_bytes > REREAD_BYTES_MAX => Some(Resolution::Dropped("too large to re-read")),
        Some(_) => None,
    }
}

/// Resolves a write after an inspection of all its copies. One copy that matches is enough; without one, the write is
/// ambiguous while the answer about a copy is unknown.
#[must_use]
pub fn resolve_inspected(inspections: Vec<Inspection>) -> Resolution {
    let mut resolution = Resolution::Dropped("the bytes never arrived");
    for inspection in inspections {
        match inspection {
            Inspection::Matches => return Resolution::Promoted,
            Inspection::Unknown(why) => resolution = Resolution::Ambiguous(why),
            Inspection::Differs(what) if matches!(resolution, Resolution::Dropped(_)) => {
                resolution = Resolution::Dropped(what);
            }
            Inspection::Differs(_) | Inspection::Absent => {}
        }
    }
    resolution
}

/// Delay before the next inspection of an ambiguous write: its age, so that inspections become rarer
/// exponentially.
#[must_use]
pub fn inspection_delay(age: Duration, tick: Duration) -> Duration {
    age.clamp(tick.min(REST_MAX), REST_MAX)
}

#[cfg(test)]
mod tests {
    use super::{Inspection, Recovery, Resolution, inspection_delay, resolve_inspected, resolve_uninspected};
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
            key: Some("k".parse().expect("valid")),
            superseded: false,
            draft: Some(Draft::default()),
            age: Duration::ZERO,
        }
    }

    #[test]
    fn only_a_write_that_can_be_committed_is_inspected() {
        let promote = |intent: &Expired| resolve_uninspected(intent, Recovery::Promote);
        assert_eq!(promote(&expired()), None);
        assert_eq!(promote(&Expired { superseded: true, ..expired() }), Some(Resolution::Superseded));
        let dropped = [
            Expired { draft: None, ..expired() },
            Expired { place: None, ..expired() },
            Expired { bucket_name: None, ..expired() },
            Expired { key: None, ..expired() },
            Expired { size_bytes: u64::MAX, ..expired() },
        ];
        assert!(dropped.iter().all(|intent| matches!(promote(intent), Some(Resolution::Dropped(_)))));
        assert!(matches!(resolve_uninspected(&expired(), Recovery::Rollback), Some(Resolution::Dropped(_))));
    }

    #[test]
    fn unknown_inspection_is_ambiguous() {
        let unknown = || Inspection::Unknown("away".into());
        let differs = || Inspection::Differs("Content-MD5");
        assert_eq!(resolve_inspected(vec![unknown()]), Resolution::Ambiguous("away".into()));
        assert_eq!(
            resolve_inspected(vec![unknown(), differs(), Inspection::Absent]),
            Resolution::Ambiguous("away".into())
        );
        assert!(matches!(resolve_inspected(vec![Inspection::Absent]), Resolution::Dropped(_)));
        assert_eq!(resolve_inspected(vec![Inspection::Absent, differs()]), Resolution::Dropped("Content-MD5"));
        let one_matches = vec![unknown(), Inspection::Absent, Inspection::Matches, differs()];
        assert_eq!(resolve_inspected(one_matches), Resolution::Promoted);
    }

    #[test]
    fn inspections_become_rarer_and_never_stop() {
        let (second, minute, hour) = (Duration::from_secs(1), Duration::from_mins(1), Duration::from_hours(1));
        assert_eq!(
            [
                inspection_delay(second, minute),
                inspection_delay(2 * minute, minute),
                inspection_delay(9 * hour, minute)
            ],
            [minute, 2 * minute, hour]
        );
    }
}
