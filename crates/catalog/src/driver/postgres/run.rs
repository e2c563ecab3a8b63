//! One unit or one query on one connection.

use std::sync::Arc;
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
use crate::unit::{Answer, Columns, Row, Statement, Unit, Value};

/// Why a unit was not committed.
pub(super) enum UnitFailure {
    /// The unit lost a deadlock or a serialization conflict and can be retried.
    RunAgain(String),
    /// A retry by the driver would not help.
    Final(Error),
}

impl From<Error> for UnitFailure {
    fn from(error: Error) -> Self {
        Self::Final(error)
    }
}

/// A connection with an open transaction. If it is dropped before `end`, the connection is closed instead of returned
/// to the pool, so that the server rolls back and releases its locks.
struct OpenTransaction(Option<Object>);

impl OpenTransaction {
    fn client(&self) -> &Object {
        self.0.as_ref().expect("only `end` takes it")
    }

    fn end(mut self) {
        drop(self.0.take());
    }
}

impl Drop for OpenTransaction {
    fn drop(&mut self) {
        if let Some(client) = self.0.take() {
            drop(Object::take(client));
        }
    }
}

/// Runs a unit: all statements in one round trip, then COMMIT if every guard holds.
pub(super) async fn unit(
    client: Object,
    dialect: &Dialect,
    unit: &Unit,
    now: Timestamp,
) -> Result<Vec<Answer>, UnitFailure> {
    let transaction = OpenTransaction(Some(client));
    let client = transaction.client();
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
            transaction.end();
            Ok(answers)
        }
        Err(failure) => {
            client.batch_execute("ROLLBACK").await.map_err(|error| translate(&error))?;
            transaction.end();
            Err(failure)
        }
    }
}

/// Runs futures concurrently and polls them from the first to the last, so that statements are sent in their order, all
/// before the first answer arrives.
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

/// Fails with the first statement that failed or the first guard that did not hold.
fn judge(unit: &Unit, answers: Vec<Result<Answer, tokio_postgres::Error>>) -> Result<Vec<Answer>, UnitFailure> {
    let mut held = Vec::with_capacity(answers.len());
    for (statement, answer) in unit.statements.iter().zip(answers) {
        let answer = answer.map_err(|error| {
            tracing::debug!(unit = unit.name, sql = statement.sql, %error, "statement failed");
            translate(&error)
        })?;
        if let Some(guard) = statement.guard.filter(|guard| guard.rows != answer.changed) {
            return Err(UnitFailure::Final(Error::Guard(guard.verdict)));
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

/// Disables every kind of index scan until the transaction ends.
const WITHOUT_INDEXES: &str =
    "SET LOCAL enable_indexscan = off; SET LOCAL enable_indexonlyscan = off; SET LOCAL enable_bitmapscan = off";

/// Runs two queries on one snapshot, the second without indexes.
pub(super) async fn both_ways(
    client: Object,
    dialect: &Dialect,
    queries: [&Statement; 2],
    now: Timestamp,
) -> Result<(Vec<Row>, Vec<Row>), Error> {
    let transaction = OpenTransaction(Some(client));
    let client = transaction.client();
    client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await.map_err(away)?;
    let first = query(client, dialect, queries[0], now).await?;
    client.batch_execute(WITHOUT_INDEXES).await.map_err(away)?;
    let second = query(client, dialect, queries[1], now).await?;
    client.batch_execute("COMMIT").await.map_err(away)?;
    transaction.end();
    Ok((first, second))
}

/// A prepared statement with its parameters.
struct Prepared<'a> {
    statement: tokio_postgres::Statement,
    columns: Arc<Columns>,
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
    let prepared = client.prepare_cached(&translated.sql).await?;
    let columns = translated.columns.get_or_init(|| {
        let names = prepared.columns().iter().map(|column| column.name().to_owned()).collect();
        Arc::new(Columns { sql: statement.sql, names })
    });
    Ok(Prepared { statement: prepared, columns: Arc::clone(columns), values, clock })
}

async fn execute(client: &Object, prepared: &Prepared<'_>) -> Result<Answer, tokio_postgres::Error> {
    let values = prepared.values.iter().copied().chain(prepared.clock.as_ref());
    let values: Vec<&(dyn ToSql + Sync)> = values.map(|value| value as &(dyn ToSql + Sync)).collect();
    let stream = client.query_raw(&prepared.statement, values).await?;
    let mut stream = std::pin::pin!(stream);
    let mut rows = Vec::new();
    while let Some(row) = stream.try_next().await? {
        rows.push(Row::new(Arc::clone(&prepared.columns), value::values(&row)?));
    }
    let changed = stream.rows_affected().map_or(rows.len(), |count| usize::try_from(count).unwrap_or(usize::MAX));
    Ok(Answer { rows, changed })
}

#[expect(clippy::needless_pass_by_value, reason = "`map_err` passes a value")]
fn away(error: tokio_postgres::Error) -> Error {
    match translate(&error) {
        UnitFailure::Final(error) => error,
        UnitFailure::RunAgain(why) => Error::Away(why),
    }
}

/// A COMMIT without an answer may have happened or not.
#[expect(clippy::needless_pass_by_value, reason = "`map_err` passes a value")]
fn unknown(error: tokio_postgres::Error) -> UnitFailure {
    match error.as_db_error() {
        Some(_) => translate(&error),
        None => UnitFailure::Final(Error::Unknown(error.to_string())),
    }
}

fn translate(error: &tokio_postgres::Error) -> UnitFailure {
    let why = describe(error);
    let Some(code) = error.code() else { return UnitFailure::Final(Error::Away(why)) };
    let run_again = [SqlState::T_R_DEADLOCK_DETECTED, SqlState::T_R_SERIALIZATION_FAILURE];
    let class = &code.code()[..2];
    if run_again.contains(code) {
        UnitFailure::RunAgain(why)
    } else if ["08", "53", "55", "57"].contains(&class) || *code == SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT {
        UnitFailure::Final(Error::Away(why))
    } else {
        UnitFailure::Final(Error::Internal(why))
    }
}

fn describe(error: &tokio_postgres::Error) -> String {
    error.as_db_error().map_or_else(
        || super::reason::chain(error),
        |database| format!("{}: {}", database.code().code(), database.message()),
    )
}
