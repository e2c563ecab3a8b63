//! Numbers of a pass, and whether they are plausible.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::FindingKind;

/// A pass that would remove, or calls missing, at most this many keys is never held.
const HOLD_ABOVE: u64 = 100;

/// What a pass, or a page of it, counted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PassCounts {
    /// Number of listed keys that are s3o's.
    pub keys: u64,
    /// Bytes of these keys, and of temporary files that no row names.
    pub bytes: u64,
    /// Number of other keys.
    pub foreign_keys: u64,
    /// Bytes of the other keys.
    pub foreign_bytes: u64,
    /// Number of locations that the listing omitted although a probe found them.
    pub unlisted_present: u64,
    /// Number of folders of foreign keys that are counted separately.
    pub folders: u64,
    /// Keys of one folder follow each other, so that only this one may go on.
    pub last_folder: String,
    /// By kind of finding.
    pub found: BTreeMap<FindingKind, FoundCount>,
}

/// Number of findings of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundCount {
    /// All of them, stored or not.
    pub total: u64,
    /// Sum of their sizes.
    pub bytes: u64,
    /// Those that an operator dismissed.
    pub dismissed: u64,
}

impl PassCounts {
    /// Counts a finding; returns whether its row is to be stored.
    pub fn count(&mut self, kind: FindingKind, bytes: u64, is_dismissed: bool) -> bool {
        let found = self.found.entry(kind).or_default();
        found.total += 1;
        found.bytes += bytes;
        found.dismissed += u64::from(is_dismissed);
        // A finding whose row is missing loses its dismissal.
        is_dismissed || found.total - found.dismissed <= kind.rows_max()
    }

    /// Number of findings of a kind that no operator dismissed.
    #[must_use]
    pub fn undecided(&self, kind: FindingKind) -> u64 {
        self.found.get(&kind).map_or(0, |found| found.total - found.dismissed)
    }

    /// Why the findings must be approved before anything follows from them; `None` if they are plausible.
    #[must_use]
    pub fn hold(&self, fraction_max: f64) -> Option<String> {
        let removed: u64 =
            FindingKind::ALL.iter().filter(|kind| kind.is_removed()).map(|kind| self.undecided(*kind)).sum();
        let missing = self.undecided(FindingKind::Missing);
        let counted = self.keys.saturating_add(missing);
        let is_absurd = |keys: u64| keys > HOLD_ABOVE && share(keys, counted) > fraction_max;
        match (is_absurd(removed), is_absurd(missing)) {
            (true, _) => Some(format!("{removed} of {counted} keys would be deleted")),
            (false, true) => Some(format!("{missing} of {counted} keys are missing")),
            (false, false) => None,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share is compared with a setting of few digits")]
fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::{FindingKind, PassCounts};

    fn counts(keys: u64, kind: FindingKind, found: u64, dismissed: u64) -> PassCounts {
        let mut counts = PassCounts { keys, ..PassCounts::default() };
        for number in 0..found {
            counts.count(kind, 1, number < dismissed);
        }
        counts
    }

    #[test]
    fn pass_that_would_remove_an_absurd_share_is_held() {
        let held = |keys, found| counts(keys, FindingKind::Stray, found, 0).hold(0.01);
        assert_eq!(held(200, 100), None, "few keys are never held");
        assert_eq!(held(20_200, 101), None, "half a percent");
        assert_eq!(held(1_000, 101).as_deref(), Some("101 of 1000 keys would be deleted"));
    }

    #[test]
    fn pass_that_calls_an_absurd_share_missing_is_held() {
        let held = |keys| counts(keys, FindingKind::Missing, 101, 0).hold(0.01);
        assert_eq!(held(0).as_deref(), Some("101 of 101 keys are missing"));
        assert_eq!(held(20_000), None);
    }

    #[test]
    fn dismissed_and_foreign_findings_do_not_hold_a_pass() {
        assert_eq!(counts(1_000, FindingKind::Stray, 500, 400).hold(0.01), None);
        assert_eq!(counts(1_000, FindingKind::Foreign, 500, 0).hold(0.01), None);
    }

    #[test]
    fn dismissed_findings_do_not_count_towards_the_stored_rows() {
        let mut counts = counts(0, FindingKind::Foreign, 1_500, 1_000);
        assert!((0..500).all(|_| counts.count(FindingKind::Foreign, 1, false)));
        assert!(!counts.count(FindingKind::Foreign, 1, false), "the cap is reached");
        assert!(counts.count(FindingKind::Foreign, 1, true), "a dismissal stays stored");
        assert_eq!(counts.found[&FindingKind::Foreign].total, 2_002);
    }

    #[test]
    fn counts_are_read_back_from_their_json() {
        let counts = counts(7, FindingKind::WrongSize, 2, 1);
        let text = serde_json::to_string(&counts).expect("serialises");
        assert!(text.contains("\"wrong_size\":{\"total\":2,\"bytes\":2,\"dismissed\":1}"), "{text}");
        assert_eq!(serde_json::from_str::<PassCounts>(&text).expect("parses"), counts);
        assert_eq!(serde_json::from_str::<PassCounts>("{}").expect("parses"), PassCounts::default());
    }
}
