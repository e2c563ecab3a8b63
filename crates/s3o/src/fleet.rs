//! The backends as configured, each in its layers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use s3o_backend::SharedBackend;
use s3o_backend::fleet::Fleet;
use s3o_backend::fs::{Fs, FsOptions};
use s3o_backend::layers::{IdleTimeout, Meter, Metered, Retry, RetryOptions};
use s3o_backend::s3::{S3, S3Options};
use s3o_catalog::{Catalog, Identities as _, Quotas as _};
use s3o_model::clock::Clock;
use s3o_model::clock_hold::StoreTime;
use s3o_model::entropy::Entropy;
use s3o_model::names::BackendName;
use s3o_workers::ProbeIntervals;

use crate::cli::Failure;
use crate::config::{BackendConfig, BackendKind, Config};

/// How long a backend may be silent while it is working for us.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// How old a look at a remote backend's identity may be; each look is a paid request.
const REMOTE_IDENTITY_AGE_MAX: Duration = Duration::from_mins(1);

/// How often a folder is probed unless it is configured.
const FOLDER_PROBE_INTERVAL: Duration = Duration::from_secs(10);
/// How often an S3 store is probed unless it is configured; each probe is a paid request.
const STORE_PROBE_INTERVAL: Duration = Duration::from_mins(15);
/// How many probes a folder waits for deletes after a start, unless a delay is configured.
const FOLDER_DELETE_PROBES: u32 = 3;
/// How long after a start an S3 store, or a folder that is not probed, takes deletes, unless it is configured.
const STORE_DELETE_DELAY: Duration = Duration::from_mins(2);

/// What backends are made with.
pub struct Surroundings {
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub entropy: Arc<dyn Entropy>,
    /// Who counts their calls.
    pub meter: Arc<dyn Meter>,
    /// Where the dates that stores send are noted.
    pub store_time: Arc<StoreTime>,
}

/// Opens the backends and their books.
pub async fn open(backends: &[BackendConfig], catalog: &Catalog, around: &Surroundings) -> Result<Fleet, Failure> {
    let mut opened = Vec::with_capacity(backends.len());
    for config in backends {
        opened.push(open_one(config, catalog, around).await?);
        // A damaged catalog is served as it is.
        if !catalog.condition().is_damaged() {
            let booked = catalog.set_limit(&config.name, config.quota_bytes).await;
            booked.map_err(|error| Failure::of("catalog", error))?;
        }
    }
    Fleet::new(opened).map_err(|error| Failure::of("backends", error))
}

async fn open_one(config: &BackendConfig, catalog: &Catalog, around: &Surroundings) -> Result<SharedBackend, Failure> {
    let known = catalog.known_backend(&config.name).await.map_err(|error| Failure::of("catalog", error))?;
    let name = config.name.clone();
    let bare: SharedBackend = match &config.kind {
        // A root that the catalog knew and that is missing is an unmounted disk, not a new one.
        BackendKind::Fs { root } => {
            Arc::new(Fs::open(name, root.clone(), FsOptions { create: known.mark.is_none(), ..FsOptions::default() }))
        }
        BackendKind::S3(options) => {
            // A bucket that the catalog knew and that is missing was deleted: an empty one would not replace it.
            let create_bucket = options.create_bucket && known.mark.is_none();
            let options = S3Options { create_bucket, ..options.as_ref().clone() };
            let connected = S3::connect(name, &options, Arc::clone(&around.clock), Arc::clone(&around.entropy));
            let connected = connected.map_err(|error| Failure::of(config.name.as_str(), error))?;
            Arc::new(connected.with_store_time(Arc::clone(&around.store_time)))
        }
    };
    let metered = Arc::new(Metered::new(bare, Arc::clone(&around.meter)));
    let timed = Arc::new(IdleTimeout::new(metered, IDLE_MAX));
    Ok(Arc::new(Retry::new(timed, RetryOptions::default(), Arc::clone(&around.entropy))))
}

/// How often each backend is probed.
pub fn probe_intervals(config: &Config) -> ProbeIntervals {
    let interval = |backend: &BackendConfig| {
        let usual = match backend.kind {
            BackendKind::Fs { .. } => FOLDER_PROBE_INTERVAL,
            BackendKind::S3(_) => STORE_PROBE_INTERVAL,
        };
        (backend.name.clone(), config.upkeep.probe_interval.unwrap_or(usual))
    };
    config.backends.iter().map(interval).collect()
}

/// How long after the raise of its attach each backend takes deletes.
pub fn delete_delays(config: &Config) -> HashMap<BackendName, Duration> {
    let delay = |backend: &BackendConfig| {
        let usual = match backend.kind {
            BackendKind::Fs { .. } if config.upkeep.probe_interval != Some(Duration::ZERO) => {
                FOLDER_DELETE_PROBES * config.upkeep.probe_interval.unwrap_or(FOLDER_PROBE_INTERVAL)
            }
            BackendKind::Fs { .. } | BackendKind::S3(_) => STORE_DELETE_DELAY,
        };
        (backend.name.clone(), config.upkeep.delete_delay.unwrap_or(usual))
    };
    config.backends.iter().map(delay).collect()
}

/// How old a look at each backend's identity may be; folders are looked at every time.
pub fn identity_ages(backends: &[BackendConfig]) -> HashMap<BackendName, Duration> {
    let remote = backends.iter().filter(|config| matches!(config.kind, BackendKind::S3(_)));
    remote.map(|config| (config.name.clone(), REMOTE_IDENTITY_AGE_MAX)).collect()
}
