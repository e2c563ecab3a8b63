//! The newest time that the catalog has seen, so that a start notices a clock that went back.

use async_trait::async_trait;
use s3o_model::clock::Timestamp;

use crate::Catalog;
use crate::error::Error;
use crate::unit::Unit;

/// What the catalog knows of the time.
#[async_trait]
pub trait ClockNotes: Send + Sync {
    /// The time that was last noted.
    async fn newest_time(&self) -> Result<Option<Timestamp>, Error>;

    /// Notes the present time, earlier or later than the one before.
    async fn note_time(&self) -> Result<(), Error>;
}

#[async_trait]
impl ClockNotes for Catalog {
    async fn newest_time(&self) -> Result<Option<Timestamp>, Error> {
        let rows = self.read("SELECT noted_at FROM cluster", vec![]).await?;
        let noted = rows.first().map(|row| row.opt_int(0)).transpose()?.flatten();
        Ok(noted.map(Timestamp::from_millis))
    }

    async fn note_time(&self) -> Result<(), Error> {
        let mut unit = Unit::new("note_time");
        unit.run("UPDATE cluster SET noted_at = :now", vec![]);
        self.write(unit).await.map(drop)
    }
}
