//! Credentials that s3o generated, shared by all instances on one catalog.

use async_trait::async_trait;

use crate::error::Error;
use crate::unit::Unit;
use crate::{Catalog, params};

/// The generated credentials of a cluster.
#[async_trait]
pub trait SharedCredentials: Send + Sync {
    /// Returns the stored document; stores `offered` and returns it if none was stored. Of several instances that offer one
    /// at a time, one wins and all get the same answer.
    async fn shared_credentials(&self, offered: &str) -> Result<String, Error>;
}

#[async_trait]
impl SharedCredentials for Catalog {
    async fn shared_credentials(&self, offered: &str) -> Result<String, Error> {
        const STORED: &str = "SELECT document FROM generated_credentials";
        if let Some(row) = self.find(STORED, vec![], |rows| !rows.is_empty()).await?.first() {
            return Ok(row.text(0)?.to_owned());
        }
        let mut unit = Unit::new("shared_credentials");
        unit.run(
            "INSERT INTO generated_credentials (only_row, document) VALUES (1, $1) ON CONFLICT (only_row) DO NOTHING",
            params![offered],
        );
        let answer = unit.run(STORED, vec![]);
        Ok(self.write(unit).await?[answer].rows[0].text(0)?.to_owned())
    }
}
