//! How much the backends together can still store.

use s3o_model::quota::Books;

use crate::{Engine, Error};

impl Engine {
    /// The bytes that the quotas of all backends leave beside stored objects and bytes that wait for deletion, reserved or
    /// not; `None` if a backend has no quota.
    pub async fn free_capacity_bytes(&self) -> Result<Option<u64>, Error> {
        let books = self.quotas.books().await?;
        let configured = books.iter().filter(|books| self.fleet.get(&books.backend).is_some());
        Ok(configured.map(Books::free_bytes).sum())
    }
}
