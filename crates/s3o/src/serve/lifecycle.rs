//! What lifecycle rules would remove, as the admin door shows it.

use async_trait::async_trait;
use s3o_server::admin::LifecycleControl;
use s3o_workers::{Preview, preview};
use serde_json::{Value, json};

use super::control::Controls;

#[async_trait]
impl LifecycleControl for Controls {
    async fn preview(&self) -> Result<Value, String> {
        let Preview { items, left_out, total } = self.look_ahead().await?;
        Ok(json!({"items": items, "next": null, "left_out": left_out, "total": total}))
    }
}

impl Controls {
    async fn look_ahead(&self) -> Result<Preview, String> {
        preview(self.catalog.as_ref(), &self.lifecycle_rules).await.map_err(|error| error.to_string())
    }

    /// What a run of the worker would count now, in the words of its report.
    pub(super) async fn rehearse_lifecycle(&self) -> Result<Value, String> {
        let total = self.look_ahead().await?.total;
        let counts = [("deleted", total.count), ("aborted", total.uploads)];
        let items: serde_json::Map<String, Value> = counts
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(end, count)| (end.to_owned(), count.into()))
            .collect();
        Ok(json!({"worker": "lifecycle", "dry_run": true, "outcome": "ok", "items": items, "error": null}))
    }
}
