//! The single writer. Waiting units form a group: one transaction, one savepoint per unit, one COMMIT.
//!
//! Some errors (a full disk, an interrupt) roll the whole transaction back. After an error the writer therefore checks
//! whether the transaction is still open. If it is not, it runs each unit of the group again in its own transaction, so
//! that one failing unit does not fail the others.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rusqlite::Connection;
use s3o_model::clock::Clock;
use tokio::sync::oneshot;

use super::statement::{SqliteStatements, judge, run};
use super::{Counters, Mode, SqliteOptions};
use crate::condition::Condition;
use crate::error::Error;
use crate::unit::{Answer, Unit};

/// Bounds how long the first unit of a group waits for the last.
const GROUP_UNITS_MAX: usize = 256;

type UnitResult = Result<Vec<Answer>, Error>;

pub(super) struct Job {
    unit: Unit,
    reply: oneshot::Sender<UnitResult>,
}

pub(super) enum Writer {
    Threaded { jobs: Mutex<Option<Sender<Job>>>, thread: Option<JoinHandle<()>> },
    Inline(Mutex<WriterSession>),
}

impl Writer {
    pub(super) fn new(
        connection: Connection,
        options: &SqliteOptions,
        counters: Arc<Counters>,
        condition: Condition,
    ) -> Result<Self, Error> {
        let clock = Arc::clone(&options.clock);
        let statements = SqliteStatements::default();
        let session = WriterSession { connection, clock, counters, condition, statements };
        match options.mode {
            Mode::Inline => Ok(Self::Inline(Mutex::new(session))),
            Mode::Threaded => {
                let (jobs, inbox) = channel();
                let spawned = std::thread::Builder::new().name("catalog-writer".to_owned());
                let thread = spawned.spawn(move || session.serve(&inbox)).map_err(|e| Error::Away(e.to_string()))?;
                Ok(Self::Threaded { jobs: Mutex::new(Some(jobs)), thread: Some(thread) })
            }
        }
    }

    pub(super) async fn run(&self, unit: Unit) -> UnitResult {
        match self {
            Self::Inline(session) => session.lock().alone(&unit),
            Self::Threaded { jobs, .. } => {
                let (reply, answer) = oneshot::channel();
                let sent = match jobs.lock().as_ref() {
                    Some(jobs) => jobs.send(Job { unit, reply }).is_ok(),
                    None => false,
                };
                let stopped = || Error::Away("the catalog's writer has stopped".to_owned());
                if sent { answer.await.unwrap_or_else(|_| Err(stopped())) } else { Err(stopped()) }
            }
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Self::Threaded { jobs, thread } = self {
            // Closing the channel ends the thread after it has run the units that were sent.
            jobs.get_mut().take();
            if let Some(thread) = thread.take() {
                thread.join().unwrap_or_else(|_| tracing::error!("catalog writer panicked"));
            }
        }
    }
}

pub(super) struct WriterSession {
    connection: Connection,
    clock: Arc<dyn Clock>,
    counters: Arc<Counters>,
    condition: Condition,
    statements: SqliteStatements,
}

impl WriterSession {
    fn serve(mut self, inbox: &Receiver<Job>) {
        while let Ok(first) = inbox.recv() {
            let mut group = vec![first];
            group.extend(inbox.try_iter().take(GROUP_UNITS_MAX - 1));
            self.commit_group(group);
        }
    }

    fn commit_group(&mut self, group: Vec<Job>) {
        let results = match group.as_slice() {
            [only] => vec![self.alone(&only.unit)],
            many => self.together(many).unwrap_or_else(|()| many.iter().map(|job| self.alone(&job.unit)).collect()),
        };
        for (job, result) in group.into_iter().zip(results) {
            // The unit stays committed if its caller no longer waits for the answer.
            job.reply.send(result).unwrap_or_default();
        }
    }

    /// Runs a group in one transaction. `Err` means that nothing was committed.
    fn together(&mut self, group: &[Job]) -> Result<Vec<UnitResult>, ()> {
        self.execute("BEGIN IMMEDIATE").map_err(drop)?;
        let mut results = Vec::with_capacity(group.len());
        for job in group {
            let Ok(result) = self.within_savepoint(&job.unit) else {
                self.roll_back();
                return Err(());
            };
            results.push(result);
        }
        if self.commit().is_err() {
            self.roll_back();
            return Err(());
        }
        Ok(results)
    }

    /// Runs one unit of a group. `Err` means that the group must not be committed: its transaction was rolled back, or
    /// it may hold a part of this unit.
    fn within_savepoint(&mut self, unit: &Unit) -> Result<UnitResult, Error> {
        self.execute("SAVEPOINT unit")?;
        let result = self.statements(unit);
        match &result {
            Ok(_) => {}
            Err(error) if self.connection.is_autocommit() => return Err(error.clone()),
            Err(_) => self.execute("ROLLBACK TO unit")?,
        }
        self.execute("RELEASE unit").map(|()| result)
    }

    /// Runs one unit in a transaction of its own.
    fn alone(&mut self, unit: &Unit) -> UnitResult {
        self.execute("BEGIN IMMEDIATE")?;
        let result = self.statements(unit).and_then(|answers| self.commit().map(|()| answers));
        if result.is_err() {
            self.roll_back();
        }
        result
    }

    fn statements(&mut self, unit: &Unit) -> UnitResult {
        let now = self.clock.now();
        let mut answers = Vec::with_capacity(unit.statements.len());
        for statement in &unit.statements {
            // There is one writer, so row locks are not needed.
            if statement.only_locks {
                answers.push(Answer::default());
                continue;
            }
            let answer = run(&self.connection, &mut self.statements, statement, now).map_err(|error| {
                tracing::debug!(unit = unit.name, sql = statement.sql, %error, "statement failed");
                judge(&self.condition, error)
            })?;
            if let Some(guard) = statement.guard.filter(|guard| guard.rows != answer.changed) {
                return Err(Error::Guard(guard.verdict));
            }
            answers.push(answer);
        }
        Ok(answers)
    }

    fn commit(&self) -> Result<(), Error> {
        self.execute("COMMIT")?;
        self.counters.commits.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn roll_back(&self) {
        if !self.connection.is_autocommit()
            && let Err(error) = self.execute("ROLLBACK")
        {
            tracing::error!(%error, "rollback failed");
        }
    }

    fn execute(&self, sql: &'static str) -> Result<(), Error> {
        let failed = |error| judge(&self.condition, error);
        let mut prepared = self.connection.prepare_cached(sql).map_err(failed)?;
        prepared.execute([]).map(drop).map_err(failed)
    }
}
