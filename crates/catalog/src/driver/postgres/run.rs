//! One unit or one query on one connection.

use std::task::Poll;

use deadpool_postgres::Object;
use futures_util::TryStreamExt as _;
use futures_util::future::{join, maybe_done, poll_fn};
use s3o_model::clock::Timestamp;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use super::dialect::Dialect;
use super::value;
use crate::error::Error;
use crate::unit::{Answer, Row, Statement, Unit, Value};

/// Why a unit was not committed.
pub(super) enum Failure {
    /// The database chose this one to lose.
    RunAgain(String),
    /// Nothing that a second try would mend by itself.
    Final(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Final(error)
    }
}

/// A connection in the middle of a transaction. Dropped there, it is closed, not handed to the
/// next one: whoever waits for its locks then waits no longer.
struct Conversation(Option<Object>);

impl Conversation {
    fn client(&self) -> &Object {
        self.0.as_ref().expect("taken only when the conversation ends")
    }

    fn end(mut self) {
        drop(self.0.take());
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        if let Some(client) = self.0.take() {
            drop(Object::take(client));
        }
    }
}

/// Runs a unit: everything in one round trip, COMMIT once the guards were read.
pub(super) async fn unit(
    client: Object,
    dialect: &Dialect,
    unit: &Unit,
    now: Timestamp,
) -> Result<Vec<Answer>, Failure> {
    let talk = Conversation(Some(client));
    let client = talk.client();
    let mut prepared = Vec::with_capacity(unit.statements.len());
    for statement in &unit.statements {
        prepared.push(prepare(client, dialect, statement, now).await.map_err(|error| translate(&error))?);
    }
    let begin = client.batch_execute("BEGIN");
    let work = prepared.iter().map(|prepared| execute(client, prepared));
    let (opened, answers) = join(begin, in_order(work)).await;
    opened.map_err(|error| translate(&error))?;
    match judge(unit, answers) {
        Ok(answers) => {
            client.batch_execute("COMMIT").await.map_err(unknown)?;
            talk.end();
            Ok(answers)
        }
        Err(failure) => {
            client.batch_execute("ROLLBACK").await.map_err(|error| translate(&error))?;
            talk.end();
            Err(failure)
        }
    }
}

/// Runs futures side by side, always polled from the first to the last: statements are then sent
/// in their order, all before the first answer is awaited.
async fn in_order<F: Future>(work: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<_> = work.map(|future| Box::pin(maybe_done(future))).collect();
    poll_fn(|context| {
        let polled = running.iter_mut().map(|future| future.as_mut().poll(context).is_pending());
        let waiting = polled.filter(|pending| *pending).count();
        if waiting == 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    running.iter_mut().map(|future| future.as_mut().take_output().expect("all are done")).collect()
}

/// The first statement that failed, or the first guard that did not hold.
fn judge(unit: &Unit, answers: Vec<Result<Answer, tokio_postgres::Error>>) -> Result<Vec<Answer>, Failure> {
    let mut held = Vec::with_capacity(answers.len());
    for (statement, answer) in unit.statements.iter().zip(answers) {
        let answer = answer.map_err(|error| {
            tracing::debug!(unit = unit.name, sql = statement.sql, %error, "statement failed");
            translate(&error)
        })?;
        if let Some(guard) = statement.guard.filter(|guard| guard.rows != answer.changed) {
            return Err(Failure::Final(Error::Guard(guard.verdict)));
        }
        held.push(answer);
    }
    Ok(held)
}

/// Runs a query outside any transaction.
pub(super) async fn query(
    client: &Object,
    dialect: &Dialect,
    statement: &Statement,
    now: Timestamp,
) -> Result<Vec<Row>, Error> {
    let prepared = prepare(client, dialect, statement, now).await.map_err(away)?;
    Ok(execute(client, &prepared).await.map_err(away)?.rows)
}

/// What keeps a session from every index until its transaction ends.
const WITHOUT_INDEXES: &str =
    "SET LOCAL enable_indexscan = off; SET LOCAL enable_indexonlyscan = off; SET LOCAL enable_bitmapscan = off";

/// Runs two queries on one snapshot, the second without indexes.
pub(super) async fn both_ways(
    client: Object,
    dialect: &Dialect,
    queries: [&Statement; 2],
    now: Timestamp,
) -> Result<(Vec<Row>, Vec<Row>), Error> {
    let talk = Conversation(Some(client));
    let client = talk.client();
    client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await.map_err(away)?;
    let first = query(client, dialect, queries[0], now).await?;
    client.batch_execute(WITHOUT_INDEXES).await.map_err(away)?;
    let second = query(client, dialect, queries[1], now).await?;
    client.batch_execute("COMMIT").await.map_err(away)?;
    talk.end();
    Ok((first, second))
}

/// A statement that the server knows, and the values for it.
struct Prepared<'a> {
    statement: tokio_postgres::Statement,
    values: Vec<&'a Value>,
    clock: Option<Value>,
}

async fn prepare<'a>(
    client: &Object,
    dialect: &Dialect,
    statement: &'a Statement,
    now: Timestamp,
) -> Result<Prepared<'a>, tokio_postgres::Error> {
    let translated = dialect.of(statement.sql);
    // Trailing parameters that the statement does not mention are left out.
    let values = statement.params.iter().take(translated.params).collect();
    let clock = translated.binds_clock.then_some(Value::Int(now.millis()));
    Ok(Prepared { statement: client.prepare_cached(&translated.sql).await?, values, clock })
}

async fn execute(client: &Object, prepared: &Prepared<'_>) -> Result<Answer, tokio_postgres::Error> {
    let values = prepared.values.iter().copied().chain(prepared.clock.as_ref());
    let values: Vec<&(dyn ToSql + Sync)> = values.map(|value| value as &(dyn ToSql + Sync)).collect();
    let stream = client.query_raw(&prepared.statement, values).await?;
    let mut stream = std::pin::pin!(stream);
    let mut rows = Vec::new();
    while let Some(row) = stream.try_next().await? {
        rows.push(value::row(&row)?);
    }
    let changed = stream.rows_affected().map_or(rows.len(), |count| usize::try_from(count).unwrap_or(usize::MAX));
    Ok(Answer { rows, changed })
}

#[expect(clippy::needless_pass_by_value, reason = "it stands in `map_err`")]
fn away(error: tokio_postgres::Error) -> Error {
    match translate(&error) {
        Failure::Final(error) => error,
        Failure::RunAgain(why) => Error::Away(why),
    }
}

/// An answer to COMMIT that did not come says nothing about whether it happened.
#[expect(clippy::needless_pass_by_value, reason = "it stands in `map_err`")]
fn unknown(error: tokio_postgres::Error) -> Failure {
    match error.as_db_error() {
        Some(_) => translate(&error),
        None => Failure::Final(Error::Unknown(error.to_string())),
    }
}

fn translate(error: &tokio_postgres::Error) -> Failure {
    let why = describe(error);
    let Some(code) = error.code() else { return Failure::Final(Error::Away(why)) };
    let run_again = [SqlState::T_R_DEADLOCK_DETECTED, SqlState::T_R_SERIALIZATION_FAILURE];
    let class = &code.code()[..2];
    if run_again.contains(code) {
        Failure::RunAgain(why)
    } else if ["08", "53", "55", "57"].contains(&class) || *code == SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT {
        Failure::Final(Error::Away(why))
    } else {
        Failure::Final(Error::Internal(why))
    }
}

fn describe(error: &tokio_postgres::Error) -> String {
    error.as_db_error().map_or_else(
        || super::reason::chain(error),
        |database| format!("{}: {}", database.code().code(), database.message()),
    )
}
