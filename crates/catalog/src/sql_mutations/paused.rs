//! Runs two units concurrently on PostgreSQL: the first pauses after one of its statements until the second has ended
//! or is blocked by it.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{self, Either};
use tokio_postgres::Client;

use crate::conformance::fixture::Fixture;
use crate::driver::postgres::tests::session;
use crate::unit::{Answer, Statement, Unit};
use crate::{Driver, DriverLayer, Error};

/// Longest wait for a unit to pause, on a busy machine.
const TEST_TIMEOUT: Duration = Duration::from_mins(1);

/// A driver whose units of one name pause after their first statement that contains `after`.
struct PausingDriver {
    inner: Arc<dyn Driver>,
    unit: &'static str,
    after: &'static str,
    pause: &'static str,
}

#[async_trait]
impl DriverLayer for PausingDriver {
    fn inner(&self) -> &dyn Driver {
        self.inner.as_ref()
    }

    async fn on_write(&self, mut unit: Unit) -> Result<Vec<Answer>, Error> {
        let index = unit.statements.iter().position(|statement| statement.sql.contains(self.after));
        let Some(index) = index.filter(|_| unit.name == self.unit) else { return self.inner.write(unit).await };
        unit.statements.insert(index + 1, Statement::new(self.pause, vec![]));
        let mut answers = self.inner.write(unit).await?;
        answers.remove(index + 1);
        Ok(answers)
    }
}

/// A fixture whose unit pauses until the test releases an advisory lock.
pub(super) struct PausedFixture {
    fixture: Fixture,
    lock_session: Client,
}

impl Deref for PausedFixture {
    type Target = Fixture;

    fn deref(&self) -> &Fixture {
        &self.fixture
    }
}

/// Makes units of this name pause after the statement that contains `words`.
pub(super) async fn pause_after(fixture: &Fixture, unit: &'static str, words: &'static str) -> PausedFixture {
    let lock_session = session("public").await;
    let lock = uuid::Uuid::now_v7().as_u64_pair().1 >> 1;
    lock_session.batch_execute(&format!("SELECT pg_advisory_lock({lock})")).await.expect("an advisory lock");
    // A catalog's session waits ten seconds for a lock; a busy machine may need more.
    let pause =
        format!("SELECT set_config('lock_timeout', '60s', true) || CAST(pg_advisory_xact_lock_shared({lock}) AS TEXT)");
    let pause = pause.leak();
    let fixture = fixture.with_driver(|inner| Arc::new(PausingDriver { inner, unit, after: words, pause }));
    PausedFixture { fixture, lock_session }
}

impl PausedFixture {
    /// Sessions that wait for a lock which this session holds.
    async fn blocked_by(&self, session: i32) -> Vec<i32> {
        const WAITING: &str =
            "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND $1 = ANY(pg_blocking_pids(pid))";
        let rows = self.lock_session.query(WAITING, &[&session]).await.expect("sessions");
        rows.iter().map(|row| row.get(0)).collect()
    }

    async fn first_blocked_by(&self, session: i32) -> i32 {
        loop {
            if let [first, ..] = self.blocked_by(session).await[..] {
                return first;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until the unit pauses, and returns its session.
    async fn paused_session(&self) -> i32 {
        let own: i32 = self.lock_session.query_one("SELECT pg_backend_pid()", &[]).await.expect("a session").get(0);
        let session = tokio::time::timeout(TEST_TIMEOUT, self.first_blocked_by(own)).await;
        session.expect("the unit has no such statement")
    }

    async fn release(&self) {
        self.lock_session.batch_execute("SELECT pg_advisory_unlock_all()").await.expect("released");
    }
}

/// Starts the second future once the first is paused, and resumes the first once the second has ended or is blocked.
pub(super) async fn race<A, B>(
    fixture: &PausedFixture,
    first: impl Future<Output = A>,
    second: impl Future<Output = B>,
) -> (A, B) {
    let second = async {
        let session = fixture.paused_session().await;
        let (second, blocked) = (std::pin::pin!(second), std::pin::pin!(fixture.first_blocked_by(session)));
        match future::select(second, blocked).await {
            Either::Left((answer, _)) => {
                fixture.release().await;
                answer
            }
            Either::Right((_, second)) => {
                fixture.release().await;
                second.await
            }
        }
    };
    future::join(first, second).await
}
