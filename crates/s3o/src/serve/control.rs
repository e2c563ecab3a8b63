//! What the admin door may ask of the rest.

use std::sync::Arc;

use async_trait::async_trait;
use s3o_catalog::Quotas;
use s3o_server::admin::{AcceptError, BackendControl, Readiness, WorkerControl};
use s3o_workers::{Error, Identity, Runner};

/// The parts that the admin door acts upon.
pub struct Controls {
    /// The workers.
    pub runner: Arc<Runner>,
    /// The identities of the backends.
    pub identity: Arc<Identity>,
    /// The books, which tell whether the catalog answers.
    pub quotas: Arc<dyn Quotas>,
}

#[async_trait]
impl Readiness for Controls {
    /// Ready means that the catalog answers: a backend that is away is an error of the requests
    /// that need it, and the others go on.
    async fn ready(&self) -> bool {
        self.quotas.books().await.is_ok()
    }
}

#[async_trait]
impl WorkerControl for Controls {
    async fn run(&self, name: &str) -> Option<serde_json::Value> {
        let report = self.runner.run_now(name).await?;
        Some(serde_json::to_value(report).expect("a report always serialises"))
    }
}

#[async_trait]
impl BackendControl for Controls {
    async fn accept(&self, name: &str) -> Result<(), AcceptError> {
        self.identity.accept(name).await.map_err(|error| match error {
            Error::NoSuchBackend(_) => AcceptError::NotFound,
            Error::Backend { .. } | Error::Catalog(_) => AcceptError::Away(error.to_string()),
        })
    }
}
