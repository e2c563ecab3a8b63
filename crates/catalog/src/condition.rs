//! Whether a catalog can be trusted: the state that a driver, the integrity check and an audit share.
//!
//! A catalog that was found damaged stays so until the process restarts. It answers with rows that it finds, and nothing
//! else: an absence, a listing or a write could be wrong, and a delete could destroy bytes that a lost row refers to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

use crate::error::Error;

/// What is known about the integrity of a catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Integrity {
    /// No damage is known, and no check is under way.
    Sound,
    /// The check after the start is under way: no reference count is lowered, and nothing is condemned for want of a
    /// reference.
    Checking,
    /// Rows contradict each other although the database is intact: as while checking, until an operator accepts it.
    Doubtful(String),
    /// The database is damaged.
    Damaged(String),
}

impl Integrity {
    /// The word for it in status.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Sound => "ok",
            Self::Checking => "checking",
            Self::Doubtful(_) => "doubtful",
            Self::Damaged(_) => "degraded",
        }
    }

    /// What was found.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Sound | Self::Checking => None,
            Self::Doubtful(why) | Self::Damaged(why) => Some(why),
        }
    }
}

/// The integrity of one catalog. Clones are the same state.
#[derive(Debug, Clone)]
pub struct Condition(Arc<State>);

#[derive(Debug)]
struct State {
    integrity: watch::Sender<Integrity>,
    /// The same as [`Integrity::Damaged`], for what every request asks.
    damaged: AtomicBool,
}

impl Default for Condition {
    fn default() -> Self {
        let integrity = watch::Sender::new(Integrity::Sound);
        Self(Arc::new(State { integrity, damaged: AtomicBool::new(false) }))
    }
}

impl Condition {
    /// What is known now.
    #[must_use]
    pub fn integrity(&self) -> Integrity {
        self.0.integrity.borrow().clone()
    }

    /// What is known now, and every change of it.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Integrity> {
        self.0.integrity.subscribe()
    }

    /// The catalog is damaged, until this process restarts.
    pub fn damage(&self, why: &str) {
        self.0.damaged.store(true, Ordering::Release);
        self.change(Integrity::Damaged(why.to_owned()), |known| !matches!(known, Integrity::Damaged(_)));
    }

    /// A check begins.
    pub fn begin_check(&self) {
        self.change(Integrity::Checking, |known| *known == Integrity::Sound);
    }

    /// The check found nothing wrong.
    pub fn pass_check(&self) {
        self.change(Integrity::Sound, |known| *known == Integrity::Checking);
    }

    /// The check found rows that contradict each other.
    pub fn doubt(&self, why: &str) {
        self.change(Integrity::Doubtful(why.to_owned()), |known| *known == Integrity::Checking);
    }

    /// An operator accepts the contradiction; says whether there was one.
    #[must_use]
    pub fn accept_doubt(&self) -> bool {
        self.change(Integrity::Sound, |known| matches!(known, Integrity::Doubtful(_)))
    }

    /// Whether the catalog is damaged.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.0.damaged.load(Ordering::Acquire)
    }

    /// Refuses what a damaged catalog must not answer or do.
    pub(crate) fn demand_undamaged(&self) -> Result<(), Error> {
        if !self.is_damaged() {
            return Ok(());
        }
        let why = self.integrity().reason().unwrap_or_default().to_owned();
        Err(Error::Away(format!("the catalog is damaged and answers only with what it finds: {why}")))
    }

    /// Refuses what only a catalog that passed its check may do.
    pub(crate) fn demand_sound(&self) -> Result<(), Error> {
        match self.integrity() {
            Integrity::Sound => Ok(()),
            Integrity::Checking => Err(Error::Away("the integrity check of the catalog is under way".to_owned())),
            Integrity::Doubtful(why) | Integrity::Damaged(why) => Err(Error::Away(format!("the catalog: {why}"))),
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
