//! Report of a verification.

use s3o_model::verify::Invariant;
use serde::Serialize;

/// Number of sample violations per check.
const SAMPLES_MAX: usize = 10;

/// Number of unchecked items in a report.
const UNCHECKED_MAX: usize = 100;

/// Result of a verification.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// True if everything was checked and no check is violated.
    pub holds: bool,
    /// True if the backends were listed.
    pub deep: bool,
    /// Every check with its violations.
    pub checks: Vec<Checked>,
    /// What could not be checked, at most 100 entries.
    pub unchecked: Vec<Unchecked>,
    /// Contents that were lost with backends that an operator wrote off. They violate nothing: it is known.
    pub lost: LostContents,
    /// Contents of the backends, if they were listed.
    pub backends: Vec<BackendHeld>,
}

/// Contents without a copy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LostContents {
    /// Number of contents.
    pub contents: u64,
    /// The first of them, at most 10.
    pub samples: Vec<String>,
}

/// One check with its violations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// The invariant that the check belongs to.
    pub invariant: Invariant,
    /// The statement that must hold.
    pub what: String,
    /// Number of violations.
    pub violations: u64,
    /// The first violations, at most 10.
    pub samples: Vec<String>,
}

/// Something that the verification could not check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unchecked {
    /// What was not checked, such as `backend disk`.
    pub what: String,
    /// Why it was not checked.
    pub reason: String,
}

/// Totals of one listed backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BackendHeld {
    /// Name of the backend.
    pub backend: String,
    /// Number of keys in our format.
    pub objects: u64,
    /// Sum of their sizes.
    pub bytes: u64,
    /// Number of keys in another format; they violate nothing.
    pub foreign: u64,
    /// Bytes in the quota accounting; `None` if something changed during the listing, so that they were not compared.
    pub accounted_bytes: Option<u64>,
}

impl VerifyReport {
    /// Adds a check, or adds violations to it.
    pub(super) fn note(&mut self, invariant: Invariant, what: &str, broken: impl IntoIterator<Item = String>) {
        let known = self.checks.iter().position(|check| check.invariant == invariant && check.what == what);
        let position = known.unwrap_or_else(|| {
            let (what, samples) = (what.to_owned(), Vec::new());
            self.checks.push(Checked { invariant, what, violations: 0, samples });
            self.checks.len() - 1
        });
        let check = &mut self.checks[position];
        for sample in broken {
            check.violations += 1;
            if check.samples.len() < SAMPLES_MAX {
                check.samples.push(sample);
            }
        }
    }

    /// Adds contents that are lost.
    pub(super) fn add_lost(&mut self, lost: Vec<String>) {
        self.lost.contents += lost.len() as u64;
        let free = SAMPLES_MAX.saturating_sub(self.lost.samples.len());
        self.lost.samples.extend(lost.into_iter().take(free));
    }

    /// Adds something that could not be checked.
    pub(super) fn leave_out(&mut self, what: impl Into<String>, reason: &(impl ToString + ?Sized)) {
        if self.unchecked.len() < UNCHECKED_MAX {
            self.unchecked.push(Unchecked { what: what.into(), reason: reason.to_string() });
        }
    }

    /// Adds the content of another report.
    pub(super) fn absorb(&mut self, other: Self) {
        for check in other.checks {
            self.note(check.invariant, &check.what, check.samples.iter().cloned());
            let unseen = check.violations - check.samples.len() as u64;
            if let Some(known) = self.checks.iter_mut().find(|known| known.what == check.what) {
                known.violations += unseen;
            }
        }
        for left in other.unchecked {
            self.leave_out(left.what, &left.reason);
        }
        self.backends.extend(other.backends);
    }

    /// Sorts the checks and sets `holds`.
    pub(super) fn close(mut self) -> Self {
        self.checks.sort_by_key(|check| check.invariant);
        self.holds = self.unchecked.is_empty() && self.checks.iter().all(|check| check.violations == 0);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::VerifyReport;
    use s3o_model::verify::Invariant;

    #[test]
    fn all_violations_are_counted_and_few_are_listed() {
        let mut report = VerifyReport::default();
        report.note(Invariant::I7, "sums", []);
        assert!(report.clone().close().holds);
        let mut other = VerifyReport::default();
        other.note(Invariant::I3, "names", (0..25).map(|number| number.to_string()));
        report.absorb(other);
        let report = report.close();
        assert!(!report.holds);
        let found: Vec<_> =
            report.checks.iter().map(|check| (check.invariant, check.violations, check.samples.len())).collect();
        assert_eq!(found, [(Invariant::I3, 25, 10), (Invariant::I7, 0, 0)]);
    }

    #[test]
    fn unchecked_part_means_the_report_does_not_hold() {
        let mut report = VerifyReport::default();
        report.leave_out("backend disk", "away");
        assert!(!report.close().holds);
    }
}
