//! What an audit does about counts.

use s3o_model::ids::ContentId;

use super::Scene;
use crate::{Audits, CondemnedPlace, Recounted};

impl Scene {
    /// Confirms these contents and repairs their counts.
    pub async fn recount(&self, contents: &[ContentId]) -> Vec<Recounted> {
        let seen = self.catalog.confirm_suspects(contents).await.expect("confirmed");
        self.catalog.recount(&seen).await.expect("recounted")
    }

    /// Confirms these contents and condemns those that nothing refers to.
    pub async fn condemn_unreferenced(&self, contents: &[ContentId]) -> Vec<CondemnedPlace> {
        let seen = self.catalog.confirm_suspects(contents).await.expect("confirmed");
        self.catalog.condemn_unreferenced(&seen).await.expect("a unit")
    }
}
