//! The conformance suite on PostgreSQL, each test in its own schema, and tests of this driver alone.

mod explained;
mod held_snapshot;
mod integrity;
mod migrations;
mod recently_condemned;
mod tables;

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::{Client, NoTls};

use super::{Postgres, PostgresOptions};
use crate::conformance::fixture::{Fixture, clock};

fn url() -> String {
    std::env::var("S3O_TEST_POSTGRES_URL").expect("S3O_TEST_POSTGRES_URL names no server: run through make test")
}

/// Connects without the driver, with this schema as search path.
pub(crate) async fn session(schema: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(&url(), NoTls).await.expect("a server");
    tokio::task::spawn(connection);
    client.batch_execute(&format!("SET search_path = {schema}")).await.expect("a schema");
    client
}

async fn fresh_schema() -> String {
    let name = format!("test_{}", uuid::Uuid::now_v7().as_simple());
    session("public").await.batch_execute(&format!("CREATE SCHEMA {name}")).await.expect("a schema");
    name
}

pub(crate) async fn fixture() -> Fixture {
    let schema = fresh_schema().await;
    let clock = clock();
    let options = PostgresOptions {
        url: url(),
        connections: 8,
        // Tests that start a thousand tasks at once wait long for a connection.
        wait_max: Duration::from_mins(1),
        schema: Some(schema.clone()),
        clock: Some(clock.clone()),
    };
    let driver = Postgres::open(&options).await.expect("a catalog");
    Fixture::over(Arc::new(driver), clock, schema)
}

crate::conformance!(crate::driver::postgres::tests::fixture);
