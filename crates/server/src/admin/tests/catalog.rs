//! Copies of the catalog, and contradictions that are accepted.

use std::path::Path;

use async_trait::async_trait;

use super::super::CatalogControl;
use super::House;

#[async_trait]
impl CatalogControl for House {
    async fn backup(&self, to: &Path) -> Result<u64, String> {
        if to.exists() { Err("File exists".to_owned()) } else { Ok(7) }
    }

    fn accept(&self) -> bool {
        false
    }
}
