//! Opens the configured backends, each wrapped in its layers, and derives their intervals.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use s3o_backend::SharedBackend;
use s3o_backend::fleet::{BreakerContext, Fleet};
use s3o_backend::fs::{Fs, FsOptions};
use s3o_backend::layers::{CountedCalls, IdleTimeout, Meter, Metered, Retry, RetryOptions};
use s3o_backend::s3::{S3, S3Options};
use s3o_backend::usage::{BackendUsage, UsageContext};
use s3o_catalog::Catalog;
use s3o_model::circuit::CircuitSettings;
use s3o_model::clock::Clock;
use s3o_model::clock_hold::StoreTime;
use s3o_model::entropy::Entropy;
use s3o_model::names::BackendName;
use s3o_model::shared::Shared;
use s3o_model::usage::UsagePolicy;
use s3o_workers::ProbeIntervals;

use crate::cli::CommandFailure;
use crate::config::{BackendConfig, BackendKind, Config};

/// How long a call to a backend may make no progress.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// How old a check of an S3 backend's identity may be; each check is a paid request.
const REMOTE_IDENTITY_AGE_MAX: Duration = Duration::from_mins(1);

/// Default probe interval of a folder.
const FOLDER_PROBE_INTERVAL: Duration = Duration::from_secs(10);
/// Default probe interval of an S3 backend; each probe is a paid request.
const STORE_PROBE_INTERVAL: Duration = Duration::from_mins(15);
/// Default delay of deletes in a folder after a start, in probe intervals.
const FOLDER_DELETE_PROBES: u32 = 3;
/// Default delay of deletes after a start for an S3 backend, or a folder that is not probed.
const STORE_DELETE_DELAY: Duration = Duration::from_mins(2);

/// What backends are made with.
pub struct FleetContext {
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
    /// Measures every call.
    pub meter: Arc<dyn Meter>,
    /// Receives the dates that S3 backends send.
    pub store_time: Arc<StoreTime>,
    /// Settings of the circuit breakers; a reload replaces them.
    pub circuit: Shared<CircuitSettings>,
    /// Counts usage by the catalog's clock.
    pub usage: UsageContext,
}

/// Opens the backends and stores their quotas in the catalog.
pub async fn open(config: &Config, catalog: &Catalog, context: &FleetContext) -> Result<Fleet, CommandFailure> {
    let backends = &config.backends;
    let usage = |backend: &BackendConfig| {
        Arc::new(BackendUsage::new(backend.name.clone(), usage_policy(config, backend), context.usage.clone()))
    };
    let usages: Vec<Arc<BackendUsage>> = backends.iter().map(usage).collect();
    let mut opened = Vec::with_capacity(backends.len());
    for (config, usage) in backends.iter().zip(&usages) {
        opened.push(open_one(config, catalog, context, usage).await?);
        // A damaged catalog is served as it is.
        if !catalog.condition().is_damaged() {
            let stored = catalog.set_limit(&config.name, config.quota_bytes).await;
            stored.map_err(|error| CommandFailure::of("catalog", error))?;
        }
    }
    let breakers = BreakerContext {
        settings: context.circuit.clone(),
        clock: Arc::clone(&context.clock),
        entropy: Arc::clone(&context.entropy),
    };
    let fleet = Fleet::with_breakers(opened, &breakers).map_err(|error| CommandFailure::of("backends", error))?;
    let fleet = fleet.with_usage(usages);
    set_limits(&fleet, config);
    Ok(fleet)
}

/// Sets the size of the largest object and the usage limits of each backend.
pub fn set_limits(fleet: &Fleet, config: &Config) {
    for backend in &config.backends {
        fleet.set_object_bytes_max(&backend.name, backend.object_bytes_max);
        if let Some(usage) = fleet.usage(&backend.name) {
            usage.set_policy(usage_policy(config, backend));
        }
    }
}

fn usage_policy(config: &Config, backend: &BackendConfig) -> UsagePolicy {
    UsagePolicy { limits: backend.usage_limits, threshold: config.usage_flush.adaptive_threshold }
}

async fn open_one(
    config: &BackendConfig,
    catalog: &Catalog,
    context: &FleetContext,
    usage: &Arc<BackendUsage>,
) -> Result<SharedBackend, CommandFailure> {
    let known = catalog.known_backend(&config.name).await.map_err(|error| CommandFailure::of("catalog", error))?;
    let name = config.name.clone();
    let bare: SharedBackend = match &config.kind {
        // A missing root of a known backend is an unmounted disk: creating it would hide that.
        BackendKind::Fs { root } => {
            let options = FsOptions { create: known.mark.is_none(), ..FsOptions::default() };
            Arc::new(CountedCalls::new(Arc::new(Fs::open(name, root.clone(), options)), Arc::clone(usage)))
        }
        BackendKind::S3(options) => {
            // A missing bucket of a known backend was deleted: an empty one would hide that.
            let create_bucket = options.create_bucket && known.mark.is_none();
            let options = S3Options { create_bucket, ..options.as_ref().clone() };
            let connected = S3::connect(name, &options, Arc::clone(&context.clock), Arc::clone(&context.entropy));
            let connected =
                connected.map_err(|error| CommandFailure::of(&format!("backend {}", config.name), error))?;
            Arc::new(connected.with_store_time(Arc::clone(&context.store_time)).with_usage(Arc::clone(usage)))
        }
    };
    let metered = Arc::new(Metered::new(bare, Arc::clone(&context.meter)));
    let timed = Arc::new(IdleTimeout::new(metered, IDLE_MAX));
    Ok(Arc::new(Retry::new(timed, RetryOptions::default(), Arc::clone(&context.entropy))))
}

/// The probe interval of each backend.
pub fn probe_intervals(config: &Config) -> ProbeIntervals {
    let interval = |backend: &BackendConfig| {
        let default = match backend.kind {
            BackendKind::Fs { .. } => FOLDER_PROBE_INTERVAL,
            BackendKind::S3(_) => STORE_PROBE_INTERVAL,
        };
        (backend.name.clone(), config.maintenance.probe_interval.unwrap_or(default))
    };
    config.backends.iter().map(interval).collect()
}

/// How long each backend takes no deletes after a start raised its mark.
pub fn delete_delays(config: &Config) -> HashMap<BackendName, Duration> {
    let delay = |backend: &BackendConfig| {
        let default = match backend.kind {
            BackendKind::Fs { .. } if config.maintenance.probe_interval != Some(Duration::ZERO) => {
                FOLDER_DELETE_PROBES * config.maintenance.probe_interval.unwrap_or(FOLDER_PROBE_INTERVAL)
            }
            BackendKind::Fs { .. } | BackendKind::S3(_) => STORE_DELETE_DELAY,
        };
        (backend.name.clone(), config.maintenance.delete_delay.unwrap_or(default))
    };
    config.backends.iter().map(delay).collect()
}

/// How old a check of each backend's identity may be; folders are checked every time.
pub fn identity_ages(backends: &[BackendConfig]) -> HashMap<BackendName, Duration> {
    let remote = backends.iter().filter(|config| matches!(config.kind, BackendKind::S3(_)));
    remote.map(|config| (config.name.clone(), REMOTE_IDENTITY_AGE_MAX)).collect()
}
