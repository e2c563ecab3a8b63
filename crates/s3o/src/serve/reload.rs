//! Settings that change while the process runs: read again as a whole, and refused as a whole.

use std::sync::Arc;

use s3o_backend::Fleet;
use s3o_catalog::{Buckets as _, Catalog, Quotas as _};
use s3o_engine::Engine;
use s3o_model::names::BackendName;
use s3o_model::shared::Shared;
use s3o_server::admin::AdminToken;
use s3o_server::audit::Cause;
use s3o_server::s3::{Keys, SharedKeys};
use s3o_workers::{Identity, ProbeIntervals, Runner};
use serde_json::json;
use tokio::signal::unix::Signal;

use super::aside::aside;
use super::source::CredentialStore;
use super::{Ground, open, source, workers};
use crate::cli::{Failure, Serve};
use crate::config::{Config, keep_until_restart};
use crate::tally::Tally;

/// All that settings reach.
pub(super) struct Reload {
    pub arguments: Serve,
    pub ground: Arc<Ground>,
    pub catalog: Arc<Catalog>,
    pub fleet: Arc<Fleet>,
    pub identity: Arc<Identity>,
    pub engine: Engine,
    pub runner: Arc<Runner>,
    pub tally: Arc<Tally>,
    pub probe_intervals: Shared<ProbeIntervals>,
    pub keys: SharedKeys,
    pub token: AdminToken,
    pub store: CredentialStore,
    /// What is in force.
    pub config: Config,
}

impl Reload {
    /// Reads settings again at every hang-up, for as long as it is polled.
    pub async fn whenever_asked(mut self, mut hang_ups: Signal) {
        while hang_ups.recv().await.is_some() {
            self.reopen_audit().await;
            match self.reload().await {
                Ok(kept) => self.tell(&kept),
                Err(failure) => self.refuse(&failure),
            }
        }
    }

    async fn reopen_audit(&self) {
        let audit = Arc::clone(&self.ground.audit);
        let opened = aside("audit", move || audit.reopen()).await;
        if let Err(error) = opened.and_then(|opened| opened.map_err(|error| Failure::of("audit", error))) {
            tracing::error!(%error, "the audit file was not opened again");
        }
    }

    /// Puts the file in force; what would need a restart stays as it is and is named.
    async fn reload(&mut self) -> Result<Vec<&'static str>, Failure> {
        let mut config = source::read_again(&self.arguments).await?;
        source::complete_credentials(&mut config, &self.store, &self.ground.entropy).await?;
        let kept = keep_until_restart(&self.config, &mut config);
        self.enter(&config).await?;
        // From here on nothing can fail: all of it is in force, or none.
        self.keys.replace(config.access_keys.iter().cloned().collect::<Keys>());
        self.token.replace(config.admin.token.as_deref().unwrap_or_default());
        self.engine.resettle(open::engine_settings(&config), config.buckets.clone());
        self.ground.lifecycle_rules.replace(config.lifecycle.rules.iter().cloned().collect()).await;
        self.probe_intervals.replace(crate::fleet::probe_intervals(&config));
        for backend in self.fleet.backends() {
            self.fleet.suspect(backend.name());
        }
        self.ground.longest.replace(workers::longest(&config));
        self.tally.resettle(config.cleanup.multipart_stale_timeout);
        self.runner.replace(workers::all(&workers::Parts {
            config: &config,
            catalog: &self.catalog,
            fleet: &self.fleet,
            identity: &self.identity,
            ground: &self.ground,
        }));
        source::warn(&config);
        self.config = config;
        Ok(kept)
    }

    /// What the catalog has to know.
    async fn enter(&self, config: &Config) -> Result<(), Failure> {
        let lost = |error| Failure::of("catalog", error);
        for bucket in config.buckets.names() {
            self.catalog.create_bucket(bucket).await.map_err(lost)?;
        }
        let limits: Vec<(&BackendName, Option<u64>)> =
            config.backends.iter().map(|backend| (&backend.name, backend.quota_bytes)).collect();
        self.catalog.set_limits(&limits).await.map_err(lost)
    }

    fn tell(&self, kept: &[&str]) {
        tracing::info!("settings were read again and are in force");
        for name in kept {
            tracing::warn!(setting = name, "it changed and needs a restart; until then the old one stays");
        }
        self.ground.audit.record("config.reloaded", Cause::Program, "signal", &json!({"needs_restart": kept}));
    }

    fn refuse(&self, failure: &Failure) {
        tracing::error!("settings were read again and refused, the old ones stay: {failure}");
        let why = failure.to_string();
        self.ground.audit.record("config.refused", Cause::Program, "signal", &json!({"error": why}));
    }
}
