//! The last recorded time, by which a start detects a clock that was set back.

use s3o_model::clock::Timestamp;

use crate::Catalog;
use crate::error::Error;
use crate::unit::Unit;

impl Catalog {
    /// The time of the last [`Self::note_time`]; `None` if there was none.
    pub async fn newest_time(&self) -> Result<Option<Timestamp>, Error> {
        let rows = self.read("SELECT noted_at FROM cluster", vec![]).await?;
        let noted = rows.first().map(|row| row.opt_time("noted_at")).transpose()?;
        Ok(noted.flatten())
    }

    /// Records the catalog's time, also if it is earlier than the recorded one.
    pub async fn note_time(&self) -> Result<(), Error> {
        let mut unit = Unit::new("note_time");
        unit.run("UPDATE cluster SET noted_at = :now", vec![]);
        self.write(unit).await.map(drop)
    }
}
