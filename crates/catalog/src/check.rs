//! The check after a start: the database's own integrity check, then the consistency of its rows. It repairs nothing.
//!
//! Until it has passed, no content is condemned because of missing references. A database that fails its own check is
//! damaged. If only rows contradict each other, the catalog is doubtful, which an operator may accept.

use std::time::Duration;

use crate::error::Error;
use crate::unit::Value;
use crate::verification::{Check, DRIFTED, SHOWN, checks};
use crate::{Catalog, Integrity};

/// Number of rows that one statement checks.
const PAGE: usize = 5000;
/// Delay after a check that could not run.
const CHECK_RETRY: Duration = Duration::from_mins(1);

impl Catalog {
    /// Checks the catalog and sets its condition. Retries a check that cannot run, for example because the disk is
    /// full.
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
                    tracing::warn!(%error, "catalog check failed, retrying");
                    tokio::time::sleep(CHECK_RETRY).await;
                    continue;
                }
                Err(_) => {}
            }
            return self.condition.integrity();
        }
    }

    /// The first contradiction between rows; fails as `Corrupt` if the database itself is damaged.
    async fn contradiction(&self) -> Result<Option<String>, Error> {
        let faults = self.driver.check_integrity().await?;
        if !faults.is_empty() {
            return Err(Error::Corrupt(faults.join("; ")));
        }
        if let Some(row) = self.scan(&DRIFTED, vec![]).await?.first() {
            return row.string(SHOWN).map(Some);
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
                return row.string(SHOWN).map(Some);
            }
            after = crate::Cursor(upto);
        }
    }

    async fn scan_page(&self, check: &'static Check, after: &[Value]) -> Result<Option<Vec<Value>>, Error> {
        let values = [after.to_vec(), crate::params![PAGE]].concat();
        Ok(self.scan(check.page(), values).await?.into_iter().next().map(|row| row.values))
    }

    /// Writes a complete copy of the catalog to a file that must not exist. Returns its size in bytes.
    pub async fn backup(&self, to: &std::path::Path) -> Result<u64, Error> {
        self.condition.demand_undamaged()?;
        self.driver.backup(to).await
    }
}
