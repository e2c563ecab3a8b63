//! The one writer. Waiting units form a group: one transaction, a savepoint each, one COMMIT.
//!
//! Some errors (a full disk, an interrupt) roll the whole transaction back. After any error the
//! writer therefore asks whether the transaction still stands; if not, every unit of the group
//! failed, and each is run again by itself, so that one bad unit does not fail its neighbours.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rusqlite::Connection;
use s3o_model::clock::Clock;
use tokio::sync::oneshot;

use super::statement::{Dialect, judge, run};
use super::{Counters, Mode, SqliteOptions};
use crate::condition::Condition;
use crate::error::Error;
use crate::unit::{Answer, Unit};

/// More than this and the first of a group waits too long for the last.
const GROUP_UNITS_MAX: usize = 256;

type Outcome = Result<Vec<Answer>, Error>;

pub(super) struct Job {
    unit: Unit,
    reply: oneshot::Sender<Outcome>,
}

pub(super) enum Writer {
    Threaded { jobs: Mutex<Option<Sender<Job>>>, thread: Option<JoinHandle<()>> },
    Inline(Mutex<Session>),
}

impl Writer {
    pub(super) fn new(
        connection: Connection,
        options: &SqliteOptions,
        counters: Arc<Counters>,
        condition: Condition,
    ) -> Result<Self, Error> {
        let clock = Arc::clone(&options.clock);
        let session = Session { connection, clock, counters, condition, dialect: Dialect::default() };
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

    pub(super) async fn run(&self, unit: Unit) -> Outcome {
        match self {
            Self::Inline(session) => session.lock().alone(&unit),
            Self::Threaded { jobs, .. } => {
                let (reply, answer) = oneshot::channel();
                let sent = match jobs.lock().as_ref() {
                    Some(jobs) => jobs.send(Job { unit, reply }).is_ok(),
                    None => false,
                };
                let gone = || Error::Away("the catalog's writer has stopped".to_owned());
                if sent { answer.await.unwrap_or_else(|_| Err(gone())) } else { Err(gone()) }
            }
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Self::Threaded { jobs, thread } = self {
            // Closing the inbox ends the thread once it has run what it was given.
            jobs.get_mut().take();
            if let Some(thread) = thread.take() {
                thread.join().unwrap_or_else(|_| tracing::error!("the catalog's writer panicked"));
            }
        }
    }
}

pub(super) struct Session {
    connection: Connection,
    clock: Arc<dyn Clock>,
    counters: Arc<Counters>,
    condition: Condition,
    dialect: Dialect,
}

impl Session {
    fn serve(mut self, inbox: &Receiver<Job>) {
        while let Ok(first) = inbox.recv() {
            let mut group = vec![first];
            group.extend(inbox.try_iter().take(GROUP_UNITS_MAX - 1));
            self.commit_group(group);
        }
    }

    fn commit_group(&mut self, group: Vec<Job>) {
        let outcomes = match group.as_slice() {
            [only] => vec![self.alone(&only.unit)],
            many => self.together(many).unwrap_or_else(|()| many.iter().map(|job| self.alone(&job.unit)).collect()),
        };
        for (job, outcome) in group.into_iter().zip(outcomes) {
            // A caller that no longer waits has given up on the answer, not on the unit.
            job.reply.send(outcome).unwrap_or_default();
        }
    }

    /// Runs a group in one transaction. `Err` means that nothing of it was committed.
    fn together(&mut self, group: &[Job]) -> Result<Vec<Outcome>, ()> {
        self.execute("BEGIN IMMEDIATE").map_err(drop)?;
        let mut outcomes = Vec::with_capacity(group.len());
        for job in group {
            let Ok(outcome) = self.within_savepoint(&job.unit) else {
                self.roll_back();
                return Err(());
            };
            outcomes.push(outcome);
        }
        if self.commit().is_err() {
            self.roll_back();
            return Err(());
        }
        Ok(outcomes)
    }

    /// Runs one unit of a group. `Err` means that the group's transaction is gone, or that it may
    /// hold a part of this unit: it must not be committed.
    fn within_savepoint(&mut self, unit: &Unit) -> Result<Outcome, Error> {
        self.execute("SAVEPOINT unit")?;
        let outcome = self.statements(unit);
        match &outcome {
            Ok(_) => {}
            Err(error) if self.connection.is_autocommit() => return Err(error.clone()),
            Err(_) => self.execute("ROLLBACK TO unit")?,
        }
        self.execute("RELEASE unit").map(|()| outcome)
    }

    /// Runs one unit in a transaction of its own.
    fn alone(&mut self, unit: &Unit) -> Outcome {
        self.execute("BEGIN IMMEDIATE")?;
        let outcome = self.statements(unit).and_then(|answers| self.commit().map(|()| answers));
        if outcome.is_err() {
            self.roll_back();
        }
        outcome
    }

    fn statements(&mut self, unit: &Unit) -> Outcome {
        let now = self.clock.now();
        let mut answers = Vec::with_capacity(unit.statements.len());
        for statement in &unit.statements {
            // Nobody else writes while this unit does.
            if statement.only_locks {
                answers.push(Answer::default());
                continue;
            }
            let answer = run(&self.connection, &mut self.dialect, statement, now).map_err(|error| {
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
