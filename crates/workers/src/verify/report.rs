//! What a verification found.

use s3o_model::verify::Invariant;
use serde::Serialize;

/// How many of the things that break a check are shown.
const SAMPLES_MAX: usize = 10;

/// How many of the things that could not be checked are shown.
const UNCHECKED_MAX: usize = 100;

/// What a verification found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// Whether everything was checked and nothing is broken.
    pub holds: bool,
    /// Whether the backends were listed.
    pub deep: bool,
    /// Every check, with what breaks it.
    pub checks: Vec<Checked>,
    /// What could not be checked.
    pub unchecked: Vec<Unchecked>,
    /// What the backends hold, if they were listed.
    pub backends: Vec<BackendHeld>,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// The invariant that it is about.
    pub invariant: Invariant,
    /// What must hold.
    pub what: String,
    /// How often it does not.
    pub violations: u64,
    /// The first few of those.
    pub samples: Vec<String>,
}

/// Something that could not be checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unchecked {
    /// What it is.
    pub what: String,
    /// Why not.
    pub reason: String,
}

/// What a backend was seen to hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BackendHeld {
    /// The backend.
    pub backend: String,
    /// Keys of ours.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Keys that are not ours; nothing is wrong with them.
    pub foreign: u64,
    /// The bytes in the books, where nothing changed while it was listed: only then are they compared.
    pub books_bytes: Option<u64>,
}

impl VerifyReport {
    /// Enters a check, and what breaks it.
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

    /// Enters something that could not be checked.
    pub(super) fn leave_out(&mut self, what: impl Into<String>, reason: &(impl ToString + ?Sized)) {
        if self.unchecked.len() < UNCHECKED_MAX {
            self.unchecked.push(Unchecked { what: what.into(), reason: reason.to_string() });
        }
    }

    /// Takes over what another report has.
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

    /// Judges the whole.
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
    fn everything_counts_and_few_are_shown() {
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
    fn what_was_not_checked_does_not_hold() {
        let mut report = VerifyReport::default();
        report.leave_out("backend disk", "away");
        assert!(!report.close().holds);
    }
}
