//! The check after a start: the database is whole, and its rows agree. Nothing is repaired.
//!
//! Until it has passed, nothing is destroyed for want of a reference. A database that is not whole is damaged; rows that
//! contradict each other in a whole one are a doubt that an operator may put aside.

use std::time::Duration;

use crate::error::Error;
use crate::unit::Value;
use crate::verification::{Check, DRIFTED, checks};
use crate::{Catalog, Integrity};

/// How many rows one question is about.
const PAGE: usize = 5000;
/// When a check that could not be made is made again.
const CHECK_RETRY: Duration = Duration::from_mins(1);

impl Catalog {
    /// Checks the catalog and notes what was found.
    /// One that cannot be made now, because the disk is full or files run out, is made again.
    pub async fn check(&self) -> Integrity {
        self.condition.begin_check();
        loop {
            match self.contradiction().await {
                Ok(None) => self.condition.pass_check(),
                Ok(Some(why)) => self.condition.doubt(&why),
                Err(error @ Error::Corrupt(_)) => {
                    self.condition.damage(&format!("the integrity check failed: {error}"));
                }
                Err(error) if !self.condition.is_damaged() => {
                    tracing::warn!(%error, "catalog not checked, trying again");
                    tokio::time::sleep(CHECK_RETRY).await;
                    continue;
                }
                Err(_) => {}
            }
            return self.condition.integrity();
        }
    }

    /// The first contradiction between rows, in a database that is whole.
    async fn contradiction(&self) -> Result<Option<String>, Error> {
        let faults = self.driver.check_integrity().await?;
        if !faults.is_empty() {
            return Err(Error::Corrupt(faults.join("; ")));
        }
        if let Some(row) = self.scan(&DRIFTED, vec![]).await?.first() {
            return Ok(Some(row.text(0)?.to_owned()));
        }
        for check in checks() {
            if let Some(broken) = self.first_broken(check).await? {
                return Ok(Some(format!("{}: {broken}", check.what)));
            }
        }
        Ok(None)
    }

    async fn first_broken(&self, check: &'static Check) -> Result<Option<String>, Error> {
        let mut after = check.start();
        loop {
            let Some(upto) = self.scan_page(check, &after.0).await? else { return Ok(None) };
            if let Some(row) = self.scan(&check.broken, [after.0, upto.clone()].concat()).await?.first() {
                return Ok(Some(row.text(0)?.to_owned()));
            }
            after = crate::Cursor(upto);
        }
    }

    async fn scan_page(&self, check: &'static Check, after: &[Value]) -> Result<Option<Vec<Value>>, Error> {
        let values = [after.to_vec(), crate::params![PAGE]].concat();
        Ok(self.scan(check.page(), values).await?.into_iter().next().map(|row| row.0))
    }

    /// Writes a whole copy of the catalog to a file that is not there yet; how many bytes it has is returned.
    pub async fn backup(&self, to: &std::path::Path) -> Result<u64, Error> {
        self.condition.demand_undamaged()?;
        self.driver.backup(to).await
    }
}
