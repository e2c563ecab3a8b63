//! Drivers for tests that wrap another driver: they record units and queries, change them or make them fail.

use async_trait::async_trait;

use super::{Driver, Effort};
use crate::condition::Condition;
use crate::error::Error;
use crate::unit::{Answer, Row, Statement, Unit};

/// A driver that forwards all calls it does not override to another driver.
#[async_trait]
pub trait DriverLayer: Send + Sync {
    /// The wrapped driver.
    fn inner(&self) -> &dyn Driver;

    /// Called for every unit.
    async fn on_write(&self, unit: Unit) -> Result<Vec<Answer>, Error> {
        self.inner().write(unit).await
    }

    /// Called for every query and every scan.
    async fn on_read(&self, query: Statement) -> Result<Vec<Row>, Error> {
        self.inner().read(query).await
    }

    /// Called for every pair of queries on one snapshot.
    async fn on_read_both_ways(&self, query: Statement, by_table: Statement) -> Result<(Vec<Row>, Vec<Row>), Error> {
        self.inner().read_both_ways(query, by_table).await
    }
}

#[async_trait]
impl<T: DriverLayer> Driver for T {
    async fn write(&self, unit: Unit) -> Result<Vec<Answer>, Error> {
        self.on_write(unit).await
    }

    async fn read(&self, query: Statement) -> Result<Vec<Row>, Error> {
        self.on_read(query).await
    }

    async fn read_both_ways(&self, query: Statement, by_table: Statement) -> Result<(Vec<Row>, Vec<Row>), Error> {
        self.on_read_both_ways(query, by_table).await
    }

    fn condition(&self) -> Condition {
        self.inner().condition()
    }

    fn stripes(&self) -> u32 {
        self.inner().stripes()
    }

    fn moved_rows_max(&self) -> usize {
        self.inner().moved_rows_max()
    }

    fn effort(&self) -> Effort {
        self.inner().effort()
    }
}
