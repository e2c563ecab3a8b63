//! Two units that meet on PostgreSQL: one waits behind one of its own statements until the other has ended or waits for it.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{self, Either};
use tokio_postgres::Client;

use super::behind;
use crate::conformance::scene::Scene;
use crate::driver::postgres::facts::session;
use crate::unit::{Answer, Statement, Unit};
use crate::{Driver, DriverLayer, Error};

/// How long anything may take on a busy machine before the test gives up.
const PATIENCE: Duration = Duration::from_mins(1);

/// A driver that makes the units of one name wait behind one of their statements.
struct HeldUp {
    inner: Arc<dyn Driver>,
    unit: &'static str,
    behind: &'static str,
    pause: &'static str,
}

#[async_trait]
impl DriverLayer for HeldUp {
    fn inner(&self) -> &dyn Driver {
        self.inner.as_ref()
    }

    async fn on_write(&self, mut unit: Unit) -> Result<Vec<Answer>, Error> {
        let place = unit.statements.iter().position(|statement| statement.sql.contains(self.behind));
        let Some(place) = place.filter(|_| unit.name == self.unit) else { return self.inner.write(unit).await };
        unit.statements.insert(place + 1, Statement::new(self.pause, vec![]));
        let mut answers = self.inner.write(unit).await?;
        answers.remove(place + 1);
        Ok(answers)
    }
}

/// A scene whose unit waits for a lock that the test holds.
pub(super) struct Slow {
    scene: Scene,
    gate: Client,
}

impl Deref for Slow {
    type Target = Scene;

    fn deref(&self) -> &Scene {
        &self.scene
    }
}

/// The scene, with units of this name waiting behind their statement with these words.
pub(super) async fn held_up(scene: &Scene, unit: &'static str, words: &'static str) -> Slow {
    let gate = session("public").await;
    let lock = uuid::Uuid::now_v7().as_u64_pair().1 >> 1;
    gate.batch_execute(&format!("SELECT pg_advisory_lock({lock})")).await.expect("a lock of the test");
    // A catalog's session waits ten seconds for a lock; a busy machine may need more.
    let pause =
        format!("SELECT set_config('lock_timeout', '60s', true) || CAST(pg_advisory_xact_lock_shared({lock}) AS TEXT)");
    let pause = pause.leak();
    Slow { scene: behind(scene, |inner| Arc::new(HeldUp { inner, unit, behind: words, pause })), gate }
}

impl Slow {
    /// The sessions that wait for a lock of this one.
    async fn waiting_for(&self, session: i32) -> Vec<i32> {
        const WAITING: &str =
            "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND $1 = ANY(pg_blocking_pids(pid))";
        let rows = self.gate.query(WAITING, &[&session]).await.expect("sessions");
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// The first session that waits for a lock of this one.
    async fn first_waiting_for(&self, session: i32) -> i32 {
        loop {
            if let [first, ..] = self.waiting_for(session).await[..] {
                return first;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The session of the unit, once it waits.
    async fn held(&self) -> i32 {
        let own: i32 = self.gate.query_one("SELECT pg_backend_pid()", &[]).await.expect("a session").get(0);
        let held = tokio::time::timeout(PATIENCE, self.first_waiting_for(own)).await;
        held.expect("the unit has no such statement")
    }

    async fn release(&self) {
        self.gate.batch_execute("SELECT pg_advisory_unlock_all()").await.expect("released");
    }
}

/// Runs both: the second once the first is held up, the first to its end once the second has ended or waits for it.
pub(super) async fn meet<A, B>(slow: &Slow, held: impl Future<Output = A>, other: impl Future<Output = B>) -> (A, B) {
    let other = async {
        let session = slow.held().await;
        let (other, waits) = (std::pin::pin!(other), std::pin::pin!(slow.first_waiting_for(session)));
        match future::select(other, waits).await {
            Either::Left((answer, _)) => {
                slow.release().await;
                answer
            }
            Either::Right((_, other)) => {
                slow.release().await;
                other.await
            }
        }
    };
    future::join(held, other).await
}
