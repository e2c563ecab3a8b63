//! The conformance suite on PostgreSQL, each fact in a schema of its own.

mod condemned_lately;
mod explained;
mod held_snapshot;
mod integrity;
mod tables;

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::{Client, NoTls};

use super::{Postgres, PostgresOptions};
use crate::conformance::scene::{Scene, clock};

/// Where the server for tests is.
fn url() -> String {
    std::env::var("S3O_TEST_POSTGRES_URL").expect("S3O_TEST_POSTGRES_URL names no server: run through make test")
}

/// A session of the test's own, with this schema.
pub(crate) async fn session(schema: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(&url(), NoTls).await.expect("a server");
    tokio::task::spawn(connection);
    client.batch_execute(&format!("SET search_path = {schema}")).await.expect("a schema");
    client
}

async fn fresh_schema() -> String {
    let name = format!("fact_{}", uuid::Uuid::now_v7().as_simple());
    session("public").await.batch_execute(&format!("CREATE SCHEMA {name}")).await.expect("a schema");
    name
}

pub(crate) async fn scene() -> Scene {
    let schema = fresh_schema().await;
    let clock = clock();
    let options = PostgresOptions {
        url: url(),
        connections: 8,
        // Facts that start a thousand tasks at once mean to wait.
        wait_max: Duration::from_mins(1),
        schema: Some(schema.clone()),
        clock: Some(clock.clone()),
    };
    let driver = Postgres::open(&options).await.expect("a catalog");
    Scene::over(Arc::new(driver), clock, schema)
}

crate::conformance!(crate::driver::postgres::facts::scene);
