//! Safeties switched off on purpose: what each of them is for is shown by what happens without it.
//!
//! A [`Safety`] names a unit and the words of its SQL, or the guard, that keep something from going wrong.
//! [`Sabotaged`] stands before a real driver and cuts them out of the statement as it passes; the product itself has no
//! switch. Each safety has a scenario that is played twice: with everything in place nothing is damaged, with the safety
//! cut out the damage is exactly the one that the table names. This module exists in this crate's tests and nowhere else.

mod belts;
mod commits;
mod damage;
mod documents;
mod expiry;
mod held_up;
mod lifecycles;
mod queue;
mod races;
mod references;
mod room;
mod sharing;
mod uploads;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use futures_util::future::BoxFuture;

use crate::conformance::books;
use crate::conformance::scene::Scene;
use crate::unit::{Answer, Row, Statement, Unit};
use crate::{Catalog, Driver, DriverLayer, Error};

/// What a scenario saw happen that must not, besides what the rows show afterwards.
type Told = Vec<&'static str>;

/// One predicate that keeps something from going wrong.
struct Safety {
    /// Its name, as a fact.
    name: &'static str,
    /// The unit that relies on it, or `read` for what is asked outside units.
    unit: &'static str,
    /// What is cut out to switch it off.
    cuts: &'static [Cut],
    /// What happens then, and nothing else: broken invariants and what the scenario tells.
    damage: &'static [&'static str],
    /// What is played.
    play: for<'a> fn(&'a Scene) -> BoxFuture<'a, Told>,
}

/// How a piece of a unit is taken out.
enum Cut {
    /// These words are replaced by those.
    Words(&'static str, &'static str),
    /// Whatever the statement with these words touches will do.
    Guard(&'static str),
}

impl Cut {
    /// Takes it out of a statement; says whether it was there.
    fn apply(&self, statement: &mut Statement) -> bool {
        match self {
            Self::Words(from, _) | Self::Guard(from) if !statement.sql.contains(from) => false,
            Self::Words(from, to) => {
                // Statements live as long as the program; that of a test is short.
                statement.sql = statement.sql.replace(from, to).leak();
                true
            }
            Self::Guard(_) => statement.guard.take().is_some(),
        }
    }
}

/// A driver that runs the units of one name without one safety.
struct Sabotaged {
    inner: Arc<dyn Driver>,
    safety: &'static Safety,
    hits: Arc<[AtomicUsize]>,
}

impl Sabotaged {
    fn cut(&self, unit: &str, statements: &mut [Statement]) {
        for (cut, hits) in self.safety.cuts.iter().zip(self.hits.iter()).filter(|_| unit == self.safety.unit) {
            let hit = statements.iter_mut().map(|statement| cut.apply(statement)).filter(|hit| *hit).count();
            hits.fetch_add(hit, Ordering::Relaxed);
        }
    }
}

#[async_trait]
impl DriverLayer for Sabotaged {
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

/// The same scene, with something between its catalog and the driver. What a scenario looks at itself is not touched.
fn behind(scene: &Scene, wrap: impl FnOnce(Arc<dyn Driver>) -> Arc<dyn Driver>) -> Scene {
    let mut scene = scene.clone();
    let driver = wrap(Arc::clone(&scene.catalog.driver));
    scene.catalog = Catalog { driver, ..scene.catalog };
    scene
}

impl Safety {
    async fn damage_in(&self, scene: &Scene) -> BTreeSet<&'static str> {
        let told = (self.play)(scene).await;
        told.into_iter().chain(books::broken(scene).await.into_iter().map(|(invariant, _)| invariant)).collect()
    }

    /// Nothing happens with the safety in place.
    async fn holds(&'static self, scene: &Scene) {
        assert_eq!(self.damage_in(scene).await, BTreeSet::new(), "{} is in place", self.name);
        books::check(scene).await;
    }

    /// Without it, just what the table says.
    async fn is_needed(&'static self, scene: &Scene) {
        let hits: Arc<[AtomicUsize]> = self.cuts.iter().map(|_| AtomicUsize::new(0)).collect();
        let counted = Arc::clone(&hits);
        let scene = behind(scene, |inner| Arc::new(Sabotaged { inner, safety: self, hits }));
        let damage = self.damage_in(&scene).await;
        // A cut that meets nothing would make a safety of whatever the statement says today.
        let cut: Vec<usize> = counted.iter().map(|hits| hits.load(Ordering::Relaxed)).collect();
        assert!(!cut.contains(&0), "{}: {} does not say that any more: {cut:?}", self.name, self.unit);
        assert_eq!(damage, self.damage.iter().copied().collect(), "{} is off", self.name);
    }
}

/// A table of safeties, each with its scenario, and two tests for each on each database.
macro_rules! safeties {
    (
        [$($database:ident),+]
        $($name:ident by $play:ident: $unit:literal, [$($cut:expr),+ $(,)?], [$($damage:expr),* $(,)?];)+
    ) => {
        const SAFETIES: &[$crate::sabotage::Safety] = &[$($crate::sabotage::Safety {
            name: stringify!($name),
            unit: $unit,
            cuts: &[$($cut),+],
            damage: &[$($damage),*],
            play: |scene| Box::pin($play(scene)),
        }),+];

        $crate::sabotage::safeties!(@each [$($database),+] [$($name)+]);
    };
    (@each [$($database:ident),+] $names:tt) => {
        $($crate::sabotage::safeties!(@on $database $names);)+
    };
    (@on sqlite [$($name:ident)+]) => {
        mod sqlite {
            $($crate::sabotage::safeties!(@test $name crate::driver::sqlite::facts::inline_scene);)+
        }
    };
    (@on postgres [$($name:ident)+]) => {
        mod postgres {
            $($crate::sabotage::safeties!(@test $name crate::driver::postgres::facts::scene);)+
        }
    };
    (@test $name:ident $scene:path) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            let safety = super::SAFETIES.iter().find(|safety| safety.name == stringify!($name)).expect("in the table");
            safety.holds(&$scene().await).await;
            safety.is_needed(&$scene().await).await;
        }
    };
}
use safeties;

/// Whether any row but an intent or a location says that these bytes must go, or any row at all knows of them.
async fn is_named(scene: &Scene, physical_key: &str) -> bool {
    const NAMES: &str = "SELECT physical_key FROM (SELECT physical_key FROM object_locations \
         UNION ALL SELECT physical_key FROM cleanup_queue UNION ALL SELECT physical_key FROM cleanup_dlq \
         UNION ALL SELECT physical_key FROM pending_objects WHERE physical_key IS NOT NULL) AS named \
         WHERE physical_key = $1";
    !scene.rows(NAMES, crate::params![physical_key]).await.is_empty()
}

/// The sentence, if it is true.
fn told(is_so: bool, sentence: &'static str) -> Told {
    is_so.then_some(sentence).into_iter().collect()
}

/// The invariants that damage breaks, by the names that the books give them.
mod broken {
    pub const COUNT: &str = "a count equals the rows that refer";
    pub const CONDEMNED: &str = "condemned content is not referred to, and says since when";
    pub const UNREFERRED: &str = "live content is referred to";
    pub const MISPLACED: &str = "only live whole content has locations";
    pub const NOWHERE: &str = "live whole content lies somewhere";
    pub const OBJECT: &str = "an object has live content of its size";
    pub const PART: &str = "a part lies within whole live content and belongs to an upload";
    pub const PIECE: &str = "a piece lies within whole live content and belongs to joined content";
    pub const JOINED: &str = "the pieces of live joined content follow each other to its end";
    pub const BOOKS: &str = "used bytes are those of locations, orphan bytes those of cleanups and dead letters, \
        reserved bytes those of intents";
    pub const NAMED: &str = "a physical key is named once";
    pub const MARK: &str = "no unit leaves its mark behind";
    pub const LEFTOVER: &str = "a closed upload that holds parts says so";
}
