//! A catalog that runs its statements with EXPLAIN. Costs are counted in buffers, which do not depend on the machine.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;

use super::{Postgres, PostgresOptions, fresh_schema, url};
use crate::conformance::fixture::{Fixture, clock};
use crate::unit::{Answer, Row, Statement, Unit};
use crate::{Driver, DriverLayer, Error};

/// Runs every statement with EXPLAIN ANALYZE and counts the buffers that it touched.
pub(super) struct Explained {
    inner: Postgres,
    buffers: Mutex<u64>,
}

impl Explained {
    pub(super) fn inner(&self) -> &Postgres {
        &self.inner
    }

    /// Buffers touched since the last call.
    pub(super) fn take_buffers(&self) -> u64 {
        std::mem::take(&mut *self.buffers.lock())
    }

    async fn explain(&self, statement: &Statement) -> Result<(), Error> {
        let sql = format!("EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF) {}", statement.sql).leak();
        let mut unit = Unit::new("explain");
        unit.statements.push(Statement::new(sql, statement.params.clone()));
        let plan = self.inner.write(unit).await?;
        // The first such line counts the buffers of the whole statement.
        let lines = plan[0].rows.iter().map(|row| row.text("QUERY PLAN").expect("a line"));
        let touched = lines.map(str::trim).find_map(|line| line.strip_prefix("Buffers: shared "));
        let counts = touched.unwrap_or_default().split(' ').filter_map(|count| count.split_once('='));
        let read = counts.filter(|(kind, _)| ["hit", "read"].contains(kind));
        let sum: u64 = read.map(|(_, count)| count.parse::<u64>().expect("a number")).sum();
        *self.buffers.lock() += sum;
        Ok(())
    }
}

#[async_trait]
impl DriverLayer for Explained {
    fn inner(&self) -> &dyn Driver {
        &self.inner
    }

    /// EXPLAIN ANALYZE executes the statement but returns the plan, so the answers are empty.
    async fn on_write(&self, unit: Unit) -> Result<Vec<Answer>, Error> {
        for statement in &unit.statements {
            self.explain(statement).await?;
        }
        Ok(vec![Answer::default(); unit.statements.len()])
    }

    async fn on_read(&self, query: Statement) -> Result<Vec<Row>, Error> {
        self.explain(&query).await?;
        self.inner.read(query).await
    }
}

/// A catalog with the real clock, its driver and its schema.
pub(super) async fn explained() -> (Fixture, Arc<Explained>, String) {
    let schema = fresh_schema().await;
    let options = PostgresOptions {
        url: url(),
        connections: 2,
        wait_max: Duration::from_mins(1),
        schema: Some(schema.clone()),
        clock: None,
    };
    let inner = Postgres::open(&options).await.expect("a catalog");
    let driver = Arc::new(Explained { inner, buffers: Mutex::default() });
    (Fixture::over(driver.clone(), clock(), ()), driver, schema)
}
