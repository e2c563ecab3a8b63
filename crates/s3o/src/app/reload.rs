//! Reloads the configuration at SIGHUP: as a whole, or not at all.

use std::sync::Arc;

use s3o_model::names::BackendName;
use s3o_server::audit::Cause;
use s3o_server::s3::Keys;
use serde_json::json;
use tokio::signal::unix::Signal;

use super::workers::{self, WorkerParts};
use super::{App, load_config, open, usage};
use crate::blocking::blocking_with_timeout;
use crate::cli::CommandFailure;
use crate::config::{Config, keep_until_restart};
use crate::credentials::complete_credentials;
use crate::fleet;

impl App {
    /// Reopens the audit file and reloads at every SIGHUP, for as long as it is polled.
    pub(super) async fn reload_on(&mut self, mut sighup: Signal) {
        while sighup.recv().await.is_some() {
            self.reopen_audit().await;
            let audit = Arc::clone(&self.context.audit);
            match self.reload().await {
                Ok(kept) => {
                    tracing::info!("config reloaded");
                    for setting in &kept {
                        tracing::warn!(setting, "changed setting needs a restart, keeping current value");
                    }
                    audit.record("config.reloaded", Cause::Program, "signal", &json!({"needs_restart": kept}));
                }
                Err(failure) => {
                    tracing::error!(error = %failure, "config reload rejected, keeping current settings");
                    let why = failure.to_string();
                    audit.record("config.refused", Cause::Program, "signal", &json!({"error": why}));
                }
            }
        }
    }

    async fn reopen_audit(&self) {
        let audit = Arc::clone(&self.context.audit);
        let opened = blocking_with_timeout("audit", move || audit.reopen()).await;
        if let Err(error) = opened.and_then(|opened| opened.map_err(|error| CommandFailure::of("audit", error))) {
            tracing::error!(%error, "cannot reopen audit file, still writing to the old one");
        }
    }

    /// Puts the configuration file in force; returns the changed settings that need a restart and keep their value.
    async fn reload(&mut self) -> Result<Vec<&'static str>, CommandFailure> {
        let arguments = self.arguments.clone();
        let mut config = blocking_with_timeout("reading the settings", move || load_config(&arguments)).await??;
        complete_credentials(&mut config, &self.credential_store, &self.context.entropy).await?;
        let kept = keep_until_restart(&self.config, &mut config);
        self.store_in_catalog(&config).await?;
        // Another instance may have stored the new factors before; writes of this one used the old ones until now.
        if config.buckets != self.config.buckets {
            self.catalog.start_copy_review().await.map_err(|error| CommandFailure::of("catalog", error))?;
        }
        // Nothing below can fail: a reload applies every setting or none.
        self.keys.replace(config.access_keys.iter().cloned().collect::<Keys>());
        self.token.replace(config.admin.token.as_deref().unwrap_or_default());
        self.engine.apply_settings(open::engine_settings(&config), config.buckets.clone());
        self.context.lifecycle_rules.replace(config.lifecycle.rules.iter().cloned().collect()).await;
        self.context.circuit.replace(config.circuit_breaker.circuit);
        self.context.unhealthy_after.replace(config.replication.unhealthy_after);
        fleet::set_limits(&self.fleet, &config);
        self.context.usage_settings.replace(usage::settings(&config));
        self.probe_intervals.replace(fleet::probe_intervals(&config));
        for backend in self.fleet.backends() {
            self.fleet.suspect(backend.name());
        }
        self.context.rebalance.replace(workers::rebalance_settings(&config));
        self.context.reconcile.replace(config.reconcile);
        self.context.longest.replace(workers::longest(&config));
        self.stats.set_stale_timeout(config.cleanup.multipart_stale_timeout);
        self.runner.replace(workers::all(&WorkerParts {
            config: &config,
            catalog: &self.catalog,
            fleet: &self.fleet,
            identity: &self.identity,
            engine: &self.engine,
            context: &self.context,
            usage: &self.usage,
        }));
        config.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
        self.config = config;
        Ok(kept)
    }

    /// Creates new buckets and sets the quotas.
    async fn store_in_catalog(&self, config: &Config) -> Result<(), CommandFailure> {
        open::create_buckets(config, &self.catalog).await?;
        let limits: Vec<(&BackendName, Option<u64>)> =
            config.backends.iter().map(|backend| (&backend.name, backend.quota_bytes)).collect();
        let failed = |error| CommandFailure::of("catalog", error);
        self.catalog.set_limits(&limits).await.map_err(failed)?;
        // What fitted nowhere may fit now.
        self.catalog.hasten_copy_work().await.map_err(failed)
    }
}
