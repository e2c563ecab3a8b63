//! The integrity of a catalog, as found by its driver, the check after the start and the audits.
//!
//! A catalog that was found damaged stays so until the process restarts. It returns rows that it finds and refuses
//! everything else: an absence, a listing or a write could be wrong, and a delete could remove bytes that a lost row
//! refers to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

use crate::error::Error;

/// What is known about the integrity of a catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Integrity {
    /// No damage is known, and no check is running.
    Sound,
    /// The check after the start is running: audits neither lower reference counts nor condemn content.
    Checking,
    /// Rows contradict each other in an intact database: restricted as while checking, until an operator accepts it.
    Doubtful(String),
    /// The database is damaged.
    Damaged(String),
}

impl Integrity {
    /// The value of `catalog` in `s3o status`.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Sound => "ok",
            Self::Checking => "checking",
            Self::Doubtful(_) => "doubtful",
            Self::Damaged(_) => "degraded",
        }
    }

    /// The first contradiction or damage that was found.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Sound | Self::Checking => None,
            Self::Doubtful(why) | Self::Damaged(why) => Some(why),
        }
    }
}

/// The integrity of one catalog. Clones share it.
#[derive(Debug, Clone)]
pub struct Condition(Arc<ConditionState>);

#[derive(Debug)]
struct ConditionState {
    integrity: watch::Sender<Integrity>,
    /// True for [`Integrity::Damaged`]; every request reads it without a lock.
    damaged: AtomicBool,
}

impl Default for Condition {
    fn default() -> Self {
        let integrity = watch::Sender::new(Integrity::Sound);
        Self(Arc::new(ConditionState { integrity, damaged: AtomicBool::new(false) }))
    }
}

impl Condition {
    /// The current value.
    #[must_use]
    pub fn integrity(&self) -> Integrity {
        self.0.integrity.borrow().clone()
    }

    /// Receives the current value and every change.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Integrity> {
        self.0.integrity.subscribe()
    }

    /// Marks the catalog as damaged until this process restarts. The first reason is kept.
    pub fn damage(&self, why: &str) {
        self.0.damaged.store(true, Ordering::Release);
        self.change(Integrity::Damaged(why.to_owned()), |known| !matches!(known, Integrity::Damaged(_)));
    }

    /// Marks a sound catalog as being checked.
    pub fn begin_check(&self) {
        self.change(Integrity::Checking, |known| *known == Integrity::Sound);
    }

    /// Ends a check that found nothing.
    pub fn pass_check(&self) {
        self.change(Integrity::Sound, |known| *known == Integrity::Checking);
    }

    /// Ends a check that found rows which contradict each other.
    pub fn doubt(&self, why: &str) {
        self.change(Integrity::Doubtful(why.to_owned()), |known| *known == Integrity::Checking);
    }

    /// Makes a doubtful catalog sound, on request of an operator; `false` if it was not doubtful.
    #[must_use]
    pub fn accept_doubt(&self) -> bool {
        self.change(Integrity::Sound, |known| matches!(known, Integrity::Doubtful(_)))
    }

    /// True until this process restarts, once damage was found.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.0.damaged.load(Ordering::Acquire)
    }

    /// Fails if the catalog is damaged.
    pub(crate) fn demand_undamaged(&self) -> Result<(), Error> {
        if !self.is_damaged() {
            return Ok(());
        }
        let why = self.integrity().reason().unwrap_or_default().to_owned();
        Err(Error::Away(format!("the catalog is damaged and only returns rows that it finds: {why}")))
    }

    /// Fails unless the catalog has passed its check.
    pub(crate) fn demand_sound(&self) -> Result<(), Error> {
        match self.integrity() {
            Integrity::Sound => Ok(()),
            Integrity::Checking => Err(Error::Away("the integrity check of the catalog is running".to_owned())),
            Integrity::Doubtful(why) | Integrity::Damaged(why) => {
                Err(Error::Away(format!("the catalog is {}: {why}", self.integrity().as_str())))
            }
        }
    }

    fn change(&self, to: Integrity, from: impl FnOnce(&Integrity) -> bool) -> bool {
        self.0.integrity.send_if_modified(|known| {
            let changes = from(known);
            if changes {
                *known = to;
            }
            changes
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Condition, Integrity};

    #[test]
    fn damage_outlasts_everything_else() {
        let condition = Condition::default();
        condition.begin_check();
        condition.damage("first");
        condition.damage("second");
        condition.pass_check();
        condition.doubt("rows");
        assert!(!condition.accept_doubt());
        assert_eq!(condition.integrity(), Integrity::Damaged("first".to_owned()));
        assert!(condition.demand_undamaged().is_err());
    }

    #[test]
    fn only_a_check_that_passed_or_an_operator_ends_the_wait() {
        let condition = Condition::default();
        condition.demand_sound().expect("no check is under way");
        condition.begin_check();
        condition.demand_sound().expect_err("a check is under way");
        condition.doubt("rows");
        condition.pass_check();
        condition.demand_sound().expect_err("rows contradict each other");
        condition.demand_undamaged().expect("requests go on");
        assert!(condition.accept_doubt());
        condition.demand_sound().expect("accepted");
    }
}
