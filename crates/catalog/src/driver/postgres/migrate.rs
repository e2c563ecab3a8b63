//! Migration of a PostgreSQL catalog: the version is in a table, and steps run under an advisory lock.

use deadpool_postgres::Object;

use crate::error::Error;
use crate::migrations;

/// Number of the advisory lock that serialises the migrations of instances that start together.
const LOCK: i64 = 0x7333_6F00;

pub(super) async fn migrate(client: &mut Object) -> Result<(), Error> {
    let transaction = client.transaction().await.map_err(failed)?;
    transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await.map_err(failed)?;
    transaction
        .batch_execute("CREATE TABLE IF NOT EXISTS s3o_schema (version BIGINT NOT NULL)")
        .await
        .map_err(failed)?;
    let row = transaction.query_one("SELECT coalesce(max(version), 0) FROM s3o_schema", &[]).await.map_err(failed)?;
    let found: i64 = row.get(0);
    let known = i64::try_from(migrations::POSTGRES.len()).expect("a handful of migrations");
    if found > known {
        return Err(Error::Newer { found, known });
    }
    for (step, version) in migrations::POSTGRES.iter().zip(1_i64..).skip(usize::try_from(found).unwrap_or(0)) {
        transaction.batch_execute(step).await.map_err(failed)?;
        transaction.execute("INSERT INTO s3o_schema VALUES ($1)", &[&version]).await.map_err(failed)?;
    }
    transaction.commit().await.map_err(failed)
}

#[expect(clippy::needless_pass_by_value, reason = "`map_err` passes a value")]
fn failed(error: tokio_postgres::Error) -> Error {
    match error.as_db_error() {
        Some(database) => Error::Internal(format!("migration: {database}")),
        None => Error::Away(error.to_string()),
    }
}
