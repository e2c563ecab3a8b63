//! The integrity check of PostgreSQL: the extension `amcheck` compares every index with its table and reads every table
//! page. Its locks do not conflict with writers.

use deadpool_postgres::Object;
use tokio_postgres::error::SqlState;

use super::reason;
use crate::error::Error;

const FAULTS_MAX: usize = 5;

const EXTENSION: &str = "SELECT quote_ident(n.nspname) FROM pg_extension e \
     JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'amcheck'";

/// Tables and B-tree indexes of the catalog, with the names that statements use.
const RELATIONS: &str = "SELECT c.oid::regclass::text, c.relkind = 'i' FROM pg_class c JOIN pg_am a ON a.oid = c.relam \
     WHERE c.relnamespace = current_schema()::regnamespace \
     AND (c.relkind = 'r' OR c.relkind = 'i' AND a.amname = 'btree') ORDER BY c.relkind, c.relname";

/// Faults of a database, at most [`FAULTS_MAX`].
pub(super) async fn check(client: &Object) -> Result<Vec<String>, Error> {
    let found = client.query_opt(EXTENSION, &[]).await.map_err(|error| failed(&error))?;
    let Some(schema) = found.map(|row| row.get::<_, String>(0)) else {
        return Err(Error::Internal("amcheck is not installed: run CREATE EXTENSION amcheck".to_owned()));
    };
    let mut faults = Vec::new();
    for relation in client.query(RELATIONS, &[]).await.map_err(|error| failed(&error))? {
        let (name, is_index): (String, bool) = (relation.get(0), relation.get(1));
        let found = if is_index { index(client, &schema, &name).await } else { table(client, &schema, &name).await };
        faults.extend(found?.iter().map(|fault| format!("{name}: {fault}")));
        if faults.len() >= FAULTS_MAX {
            break;
        }
    }
    faults.truncate(FAULTS_MAX);
    Ok(faults)
}

/// Checks the order of an index and that it contains every row of its table. The first fault ends the check.
async fn index(client: &Object, schema: &str, name: &str) -> Result<Vec<String>, Error> {
    let query = format!("SELECT {schema}.bt_index_check('{name}'::regclass, true)");
    match client.batch_execute(&query).await {
        Ok(()) => Ok(Vec::new()),
        Err(error) if is_damage(&error) => Ok(vec![reason::chain(&error)]),
        Err(error) => Err(failed(&error)),
    }
}

async fn table(client: &Object, schema: &str, name: &str) -> Result<Vec<String>, Error> {
    let query = format!("SELECT msg FROM {schema}.verify_heapam('{name}'::regclass) LIMIT {FAULTS_MAX}");
    match client.query(&query, &[]).await {
        Ok(rows) => Ok(rows.iter().map(|row| row.get(0)).collect()),
        Err(error) if is_damage(&error) => Ok(vec![reason::chain(&error)]),
        Err(error) => Err(failed(&error)),
    }
}

fn is_damage(error: &tokio_postgres::Error) -> bool {
    let damage = [SqlState::INDEX_CORRUPTED, SqlState::DATA_CORRUPTED];
    error.code().is_some_and(|code| damage.contains(code))
}

fn failed(error: &tokio_postgres::Error) -> Error {
    Error::Away(reason::chain(error))
}
