//! Credentials that s3o generated, shared by all instances on one catalog.

use crate::error::Error;
use crate::unit::Unit;
use crate::{Catalog, params};

impl Catalog {
    /// Returns the stored document, or stores and returns `offered` if there is none. Instances that call it
    /// concurrently all get the same document.
    pub async fn shared_credentials(&self, offered: &str) -> Result<String, Error> {
        const STORED: &str = "SELECT document FROM generated_credentials";
        if let Some(row) = self.find(STORED, vec![], |rows| !rows.is_empty()).await?.first() {
            return row.string("document");
        }
        let mut unit = Unit::new("shared_credentials");
        unit.run(
            "INSERT INTO generated_credentials (only_row, document) VALUES (1, $1) ON CONFLICT (only_row) DO NOTHING",
            params![offered],
        );
        let answer = unit.run(STORED, vec![]);
        self.write(unit).await?[answer].rows[0].string("document")
    }
}
