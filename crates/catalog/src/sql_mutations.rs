//! Tests that disable one guard at a time: the damage that follows shows what the guard is for.
//!
//! A [`GuardEntry`] names a unit and the SQL words or the row-count guard that prevent damage. [`MutatingDriver`] wraps
//! a real driver and cuts them out of the statement; the product itself has no switch. Each scenario runs twice: with
//! the guard it does no damage, without the guard it does exactly the damage that the entry names. Only the tests of
//! this crate compile this module.

mod absent_copies;
mod capacity;
mod commits;
mod copies;
mod damage;
mod documents;
mod expiry;
mod fleet_races;
mod lifecycles;
mod moves;
mod paused;
mod queue;
mod races;
mod reconcile;
mod redundant_guards;
mod references;
mod removals;
mod sharing;
mod unnamed;
mod uploads;
mod usage;
mod write_offs;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use futures_util::future::BoxFuture;

use crate::conformance::fixture::Fixture;
use crate::conformance::quota_usage;
use crate::unit::{Answer, Row, Statement, Unit};
use crate::{Driver, DriverLayer, Error};

/// What a scenario observed that must not happen, in addition to the invariants that its rows break.
type Damage = Vec<&'static str>;

/// A predicate that prevents damage, and the scenario that needs it.
struct GuardEntry {
    /// The fact that the predicate guarantees; also the name of the test.
    name: &'static str,
    /// The unit that contains the predicate, or `read` for queries outside units.
    unit: &'static str,
    cuts: &'static [Cut],
    /// Broken invariants and the damage that the scenario reports; complete.
    damage: &'static [&'static str],
    scenario: for<'a> fn(&'a Fixture) -> BoxFuture<'a, Damage>,
}

/// How a predicate is disabled.
enum Cut {
    /// Replaces the first words by the second in every statement of the unit.
    Words(&'static str, &'static str),
    /// Removes the row-count guard of the statement with these words.
    Guard(&'static str),
}

impl Cut {
    /// Changes the statement; false if it does not contain the words.
    fn apply(&self, statement: &mut Statement) -> bool {
        match self {
            Self::Words(from, _) | Self::Guard(from) if !statement.sql.contains(from) => false,
            Self::Words(from, to) => {
                // Statements are static; a test process leaks only a few of them.
                statement.sql = statement.sql.replace(from, to).leak();
                true
            }
            Self::Guard(_) => statement.guard.take().is_some(),
        }
    }
}

/// Runs the units of one name without one guard, and counts the changed statements of each cut.
struct MutatingDriver {
    inner: Arc<dyn Driver>,
    entry: &'static GuardEntry,
    hits: Arc<[AtomicUsize]>,
}

impl MutatingDriver {
    fn cut(&self, unit: &str, statements: &mut [Statement]) {
        for (cut, hits) in self.entry.cuts.iter().zip(self.hits.iter()).filter(|_| unit == self.entry.unit) {
            let hit = statements.iter_mut().map(|statement| cut.apply(statement)).filter(|hit| *hit).count();
            hits.fetch_add(hit, Ordering::Relaxed);
        }
    }
}

#[async_trait]
impl DriverLayer for MutatingDriver {
    fn inner(&self) -> &dyn Driver {
        self.inner.as_ref()
    }

    async fn on_write(&self, mut unit: Unit) -> Result<Vec<Answer>, Error> {
        self.cut(unit.name, &mut unit.statements);
        self.inner.write(unit).await
    }

    async fn on_read(&self, mut query: Statement) -> Result<Vec<Row>, Error> {
        self.cut("read", std::slice::from_mut(&mut query));
        self.inner.read(query).await
    }

    async fn on_read_both_ways(
        &self,
        mut query: Statement,
        mut by_table: Statement,
    ) -> Result<(Vec<Row>, Vec<Row>), Error> {
        self.cut("read", std::slice::from_mut(&mut query));
        self.cut("read", std::slice::from_mut(&mut by_table));
        self.inner.read_both_ways(query, by_table).await
    }
}

impl GuardEntry {
    async fn damage_in(&self, fixture: &Fixture) -> BTreeSet<&'static str> {
        let damage = (self.scenario)(fixture).await;
        let broken = quota_usage::broken(fixture).await.into_iter().map(|(invariant, _)| invariant);
        damage.into_iter().chain(broken).collect()
    }

    async fn assert_no_damage_with_guard(&'static self, fixture: &Fixture) {
        assert_eq!(self.damage_in(fixture).await, BTreeSet::new(), "{} with its guard", self.name);
        quota_usage::check(fixture).await;
    }

    async fn assert_damage_without_guard(&'static self, fixture: &Fixture) {
        let hits: Arc<[AtomicUsize]> = self.cuts.iter().map(|_| AtomicUsize::new(0)).collect();
        let counted = Arc::clone(&hits);
        let fixture = fixture.with_driver(|inner| Arc::new(MutatingDriver { inner, entry: self, hits }));
        let damage = self.damage_in(&fixture).await;
        // A cut that matches no statement would test nothing.
        let cut: Vec<usize> = counted.iter().map(|hits| hits.load(Ordering::Relaxed)).collect();
        assert!(!cut.contains(&0), "{}: a cut matches no statement of {}: {cut:?}", self.name, self.unit);
        assert_eq!(damage, self.damage.iter().copied().collect(), "{} without its guard", self.name);
    }
}

/// Declares a table of guards, each `in` its scenario, and a test for each of them on each database.
macro_rules! guards {
    (
        [$($database:ident),+]
        $($name:ident in $scenario:ident: $unit:literal, [$($cut:expr),+ $(,)?], [$($damage:expr),* $(,)?];)+
    ) => {
        const GUARDS: &[$crate::sql_mutations::GuardEntry] = &[$($crate::sql_mutations::GuardEntry {
            name: stringify!($name),
            unit: $unit,
            cuts: &[$($cut),+],
            damage: &[$($damage),*],
            scenario: |fixture| Box::pin($scenario(fixture)),
        }),+];

        $crate::sql_mutations::guards!(@each [$($database),+] [$($name)+]);
    };
    (@each [$($database:ident),+] $names:tt) => {
        $($crate::sql_mutations::guards!(@on $database $names);)+
    };
    (@on sqlite [$($name:ident)+]) => {
        mod sqlite {
            $($crate::sql_mutations::guards!(@test $name crate::driver::sqlite::tests::inline_fixture);)+
        }
    };
    (@on postgres [$($name:ident)+]) => {
        mod postgres {
            $($crate::sql_mutations::guards!(@test $name crate::driver::postgres::tests::fixture);)+
        }
    };
    (@test $name:ident $fixture:path) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            let entry = super::GUARDS.iter().find(|entry| entry.name == stringify!($name)).expect("in the table");
            entry.assert_no_damage_with_guard(&$fixture().await).await;
            entry.assert_damage_without_guard(&$fixture().await).await;
        }
    };
}
use guards;

/// True if a location, intent, cleanup or dead letter names this physical key.
async fn is_named(fixture: &Fixture, physical_key: &str) -> bool {
    const NAMES: &str = "SELECT physical_key FROM (SELECT physical_key FROM object_locations \
         UNION ALL SELECT physical_key FROM cleanup_queue UNION ALL SELECT physical_key FROM cleanup_dlq \
         UNION ALL SELECT physical_key FROM pending_objects WHERE physical_key IS NOT NULL) AS named \
         WHERE physical_key = $1";
    !fixture.rows(NAMES, crate::params![physical_key]).await.is_empty()
}

fn damage_if(has_happened: bool, description: &'static str) -> Damage {
    has_happened.then_some(description).into_iter().collect()
}

/// Invariants of [`quota_usage`], by the names that it gives them.
mod broken {
    pub const COUNT: &str = "a count equals the rows that refer";
    pub const CONDEMNED: &str = "condemned content is not referred to, and says since when";
    pub const UNREFERENCED: &str = "live content is referred to";
    pub const MISPLACED: &str = "only live whole content has locations";
    pub const NO_LOCATION: &str = "live whole content lies somewhere";
    pub const OBJECT: &str = "an object has live content of its size";
    pub const PART: &str = "a part lies within whole live content and belongs to an upload";
    pub const PIECE: &str = "a piece lies within whole live content and belongs to joined content";
    pub const JOINED: &str = "the pieces of live joined content follow each other to its end";
    pub const QUOTAS: &str = "used bytes are those of locations, orphan bytes those of cleanups and dead letters, \
        reserved bytes those of intents";
    pub const NAMED: &str = "a physical key is named once";
    pub const MARK: &str = "no unit leaves its mark behind";
    pub const LEFTOVER: &str = "a closed upload that holds parts says so";
}
