//! The composition root of `s3o serve`: opens every part of the server, runs them, and drains them at shutdown.
//!
//! To follow a start, read [`serve`], [`App::open`] and [`App::run`]; SIGHUP calls [`App::reload`].

mod banner;
mod context;
mod file_modes;
mod open;
mod os;
mod reload;
mod rollback;
mod services;
mod usage;
mod workers;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use s3o_backend::Fleet;
use s3o_cache::Cache;
use s3o_catalog::Catalog;
use s3o_engine::Engine;
use s3o_model::shared::Shared;
use s3o_server::admin::{self, AdminToken, LogLevel, Stats};
use s3o_server::listener;
use s3o_server::s3::{Keys, SharedKeys};
use s3o_workers::{IdentityWorker, ProbeIntervals, Prober, Runner, UsageLedger};
use tokio::signal::unix::Signal;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::cli::{CommandFailure, Serve};
use crate::config::{Config, default_file};
use crate::credentials::{CredentialStore, Generated};
use crate::{credentials, fleet, logging};
use context::AppContext;
use os::{Listeners, Signals, Sockets};
use rollback::StartRollback;
use workers::WorkerParts;

pub use os::early_sighup;

/// How long requests in flight may take to finish after a shutdown began.
const DRAIN_MAX: Duration = Duration::from_secs(30);
/// How long blocked threads may delay the end of the process.
const THREADS_WAIT_MAX: Duration = Duration::from_secs(5);
/// How often the start checks whether every backend was probed.
const PROBED_INTERVAL: Duration = Duration::from_millis(100);
/// How long the start waits for backends to answer.
const ATTACH_WAIT_MAX: Duration = Duration::from_secs(3);

/// Serves until SIGTERM or SIGINT; `sighup` is the stream of [`early_sighup`].
pub fn serve(arguments: &Serve, sighup: Option<io::Result<Signal>>) -> Result<(), CommandFailure> {
    let cannot_start = |error: io::Error| CommandFailure::of("cannot start", error);
    let sighup = sighup.unwrap_or_else(os::install_sighup).map_err(cannot_start)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(cannot_start)?;
    // The process uses this file until it ends, also where another one appears later.
    let arguments = Serve { config: arguments.config.clone().or_else(default_file), ..arguments.clone() };
    let outcome = runtime.block_on(async {
        // Before anything else, so that SIGTERM and SIGINT during the start shut down in order.
        let signals = Signals::install(sighup).map_err(cannot_start)?;
        let config = load_config(&arguments)?;
        let log_level = logging::start(arguments.log_format, arguments.log.as_deref());
        config.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
        let sockets = Sockets::bind(&config)?;
        let app = App::open(arguments, config, log_level).await?;
        app.run(sockets.listen()?, signals).await
    });
    // A thread that a hanging disk blocks must not keep the process alive.
    runtime.shutdown_timeout(THREADS_WAIT_MAX);
    outcome
}

/// Reads the configuration file, or the defaults without one; command-line options override both.
fn load_config(arguments: &Serve) -> Result<Config, CommandFailure> {
    let mut config = match &arguments.config {
        Some(path) => Config::load(path, &arguments.data)?,
        None => Config::embedded(&arguments.data),
    };
    config = config.overridden()?;
    config.server.listen = arguments.listen.unwrap_or(config.server.listen);
    config.admin.listen = arguments.admin_listen.unwrap_or(config.admin.listen);
    Ok(config)
}

/// A server whose parts are open.
struct App {
    arguments: Serve,
    /// The settings in force.
    config: Config,
    context: AppContext,
    catalog: Arc<Catalog>,
    fleet: Arc<Fleet>,
    identity: Arc<IdentityWorker>,
    usage: Arc<UsageLedger>,
    cache: Option<Arc<Cache>>,
    engine: Engine,
    runner: Arc<Runner>,
    stats: Arc<Stats>,
    probe_intervals: Shared<ProbeIntervals>,
    keys: SharedKeys,
    token: AdminToken,
    credential_store: CredentialStore,
    /// Credentials that the configuration leaves out.
    generated: Option<Generated>,
    log_level: Arc<LogLevel>,
    /// Dropped last, after every part has closed its files.
    rollback: StartRollback,
}

impl App {
    /// Opens every part and changes no backend. Unless the app runs, dropping it removes the files that it created.
    async fn open(arguments: Serve, mut config: Config, log_level: LogLevel) -> Result<Self, CommandFailure> {
        let mut rollback = StartRollback::new(&config, &arguments.data);
        let mut context = AppContext::new(&config)?;
        let catalog = rollback.hold(open::catalog(&config.database, &context).await?);
        context.clock_guard = open::clock_guard(&config.database, &catalog, &context).await;
        let (store, generated) = credentials::open(&mut config, &catalog, &arguments.data, &context.entropy).await?;
        let (fleet, usage) = open::fleet(&config, &catalog, &context).await?;
        let identity = open::identity(&config, &catalog, &fleet, &context).await?;
        let cache = open::cache(&config, &catalog, &context).await?;
        let engine = open::engine(&config, &catalog, &fleet, cache.clone(), &context);
        open::create_buckets(&config, &catalog).await?;
        Ok(Self {
            runner: open::runner(&WorkerParts {
                config: &config,
                catalog: &catalog,
                fleet: &fleet,
                identity: &identity,
                engine: &engine,
                context: &context,
                usage: &usage,
            })?,
            stats: open::stats(&config, &catalog, &context),
            probe_intervals: Shared::new(fleet::probe_intervals(&config)),
            keys: SharedKeys::new(config.access_keys.iter().cloned().collect::<Keys>()),
            token: AdminToken::new(config.admin.token.as_deref().unwrap_or_default()),
            credential_store: store,
            generated,
            log_level: Arc::new(log_level),
            arguments,
            config,
            context,
            catalog,
            fleet,
            identity,
            usage,
            cache,
            engine,
            rollback,
        })
    }

    /// Serves until SIGTERM or SIGINT, then drains. Nothing of the start can fail any more, so backends may be written.
    async fn run(mut self, listeners: Listeners, signals: Signals) -> Result<(), CommandFailure> {
        self.rollback.disarm();
        let connection_limits = os::raise_open_files(&self.config.server);
        // Backends that do not answer in time are attached in the background.
        tokio::time::timeout(ATTACH_WAIT_MAX, self.identity.attach()).await.unwrap_or_default();
        let (s3_service, admin_router) = (self.s3_service(), admin::router(self.admin_state()));
        admin::warn_unconfigured_backends(&self.catalog, &self.fleet).await;
        file_modes::warn(&self.config, &self.arguments);
        banner::print(&self.config, self.generated.as_ref(), &listeners);
        let (stopping, stopped) = watch::channel(false);
        let Listeners { s3, admin } = listeners;
        let admin_service = listener::router_service(admin_router);
        let s3 = listener::serve(s3, s3_service, connection_limits, wait(stopped.clone()), DRAIN_MAX);
        let admin = listener::serve(admin, admin_service, os::ADMIN_LIMITS, wait(stopped.clone()), DRAIN_MAX);
        let workers = Arc::clone(&self.runner).serve(stopped);
        let tasks = [tokio::spawn(s3), tokio::spawn(admin), tokio::spawn(workers)];
        let (engine, audit, usage) = (self.engine.clone(), Arc::clone(&self.context.audit), Arc::clone(&self.usage));
        let (sighup, stop) = signals.split();
        let mut background = tokio::spawn(self.background(sighup));
        let outcome = tokio::select! {
            () = stop => Ok(()),
            // Without it, leases are not renewed and backends are not probed; the next start recovers.
            ended = &mut background => {
                let why = ended.err().map_or_else(String::new, |why| why.to_string());
                Err(CommandFailure::of("background work ended unexpectedly", why))
            }
        };
        tracing::info!(timeout = ?DRAIN_MAX, "shutting down, finishing requests in flight");
        stopping.send_replace(true);
        drain(tasks, &engine).await?;
        background.abort();
        if let Err(error) = usage.end().await {
            tracing::warn!(%error, "cannot record last usage totals");
        }
        audit.close();
        tracing::info!("shutdown complete");
        outcome
    }

    /// Work that is neither a request nor a worker, for as long as the process lives.
    async fn background(mut self, sighup: Signal) {
        let (engine, identity, cache) = (self.engine.clone(), Arc::clone(&self.identity), self.cache.clone());
        let (clock_guard, usage) = (self.context.clock_guard.clone(), Arc::clone(&self.usage));
        let prober = Arc::new(Prober {
            fleet: Arc::clone(&self.fleet),
            identity: Arc::clone(&self.identity),
            clock: Arc::clone(&self.context.clock),
            intervals: self.probe_intervals.clone(),
        });
        let follower = self.follower(&prober);
        let maintain_cache = async {
            if let Some(cache) = cache {
                cache.run_maintenance().await;
            }
        };
        let watch_clock = async {
            if let Some(guard) = clock_guard {
                guard.keep().await;
            }
        };
        let first_replication =
            replicate_once_probed(Arc::clone(&self.fleet), Arc::clone(&self.context.replicator_wakeup));
        tokio::join!(
            engine.keep_leases(),
            first_replication,
            identity.watch(),
            follower.serve(),
            prober.serve(),
            maintain_cache,
            watch_clock,
            usage.run_renewals(),
            self.reload_on(sighup)
        );
    }
}

/// Starts the replicator once every backend was probed: copies that the last process did not write come first.
async fn replicate_once_probed(fleet: Arc<Fleet>, wakeup: Arc<Notify>) {
    while !fleet.is_probed() {
        tokio::time::sleep(PROBED_INTERVAL).await;
    }
    wakeup.notify_one();
}

/// Waits for the listeners and workers, then for work that requests left in the background.
async fn drain(tasks: [JoinHandle<()>; 3], engine: &Engine) -> Result<(), CommandFailure> {
    for task in tasks {
        task.await.map_err(|error| CommandFailure::of("shutdown", error))?;
    }
    if tokio::time::timeout(DRAIN_MAX, engine.tasks().drained()).await.is_err() {
        tracing::warn!(
            tasks = engine.tasks().count(),
            "background tasks unfinished at shutdown, the next start recovers their work"
        );
    }
    // Rows that the catalog did not take are lost with this process, so they are sent once more.
    tokio::time::timeout(DRAIN_MAX, engine.retry_unanswered()).await.unwrap_or_default();
    Ok(())
}

/// Completes when the shutdown begins, or when its sender is gone.
async fn wait(mut stopped: watch::Receiver<bool>) {
    stopped.wait_for(|stop| *stop).await.map(drop).unwrap_or_default();
}
