//! `s3o bench`: loads one S3 endpoint, or two in turns, and prints a table of rates and latencies.
//!
//! Two endpoints take turns cell by cell: on a machine with other load, only ratios within one run are meaningful.

mod arguments;
mod deletes;
mod drain;
mod endpoint;
mod error;
mod figures;
mod load;
mod markdown;
mod metrics;
mod plan;
mod server_stats;
mod table;
mod transfer;
mod usage;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use s3o_backend::S3Options;
use s3o_backend::s3::{PUT_BYTES_MAX, Secret};
use serde_json::json;
use tokio::time::Instant;

pub use arguments::BenchArguments;
pub use error::Error;

use endpoint::Endpoint;
use figures::{CatalogWork, Cost, Figures, Ratios, UsageInterval};
use load::LoadBounds;
use plan::{BenchPlan, Cell, Workload};
use server_stats::MonitoredServer;
use usage::Usage;

/// The most objects that one cell of the DELETE workload deletes.
const DOOMED_OBJECTS: u64 = 2000;
/// Pause between two cells, in which most background work of the server for the first one ends.
const PAUSE: Duration = Duration::from_millis(250);

/// Runs the benchmark and prints the result.
///
/// # Errors
/// If a request failed, or the plan, an endpoint or a process is unusable.
pub fn run(arguments: &BenchArguments) -> Result<(), Error> {
    let plan = BenchPlan::new(arguments)?;
    let servers = servers(arguments)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Error::of("cannot start", error))?;
    if let Some(objects) = arguments.deletes {
        return runtime.block_on(deletes::run(objects, &servers, arguments));
    }
    if let Some((source, target)) = arguments.transfer.as_ref().zip(arguments.transfer_to.as_ref()) {
        return runtime.block_on(transfer::run(source, target, arguments));
    }
    if arguments.drain {
        return runtime.block_on(drain::run(&servers[0]));
    }
    let report = BenchReport { arguments, urls: [&arguments.endpoint, &arguments.compare] };
    let measured = runtime.block_on(measure_and_clean_up(&plan, &servers, &report))?;
    report.end(&measured)
}

fn servers(arguments: &BenchArguments) -> Result<Vec<Arc<Endpoint>>, Error> {
    let body_bytes_max = arguments.sizes.iter().copied().max().unwrap_or(0);
    let options = |endpoint: &String, access_key: &str, secret_key: &Secret| S3Options {
        endpoint: endpoint.clone(),
        region: arguments.region.clone(),
        bucket: arguments.bucket.clone(),
        access_key_id: access_key.to_owned(),
        secret_access_key: secret_key.clone(),
        path_style: true,
        put_bytes_max: PUT_BYTES_MAX,
        create_bucket: false,
    };
    let (access_key, secret_key) = (&arguments.access_key, &arguments.secret_key);
    let first = arguments.endpoint.iter().map(|url| options(url, access_key, secret_key)).collect::<Vec<_>>();
    let monitored = MonitoredServer {
        pids: arguments.pid.clone(),
        metrics: arguments.metrics.clone(),
        token: arguments.token.clone(),
    };
    let mut servers = vec![Arc::new(Endpoint::new(&first, monitored, body_bytes_max)?)];
    let access_key = arguments.compare_access_key.as_ref().unwrap_or(access_key);
    let secret_key = arguments.compare_secret_key.as_ref().unwrap_or(secret_key);
    let second = arguments.compare.iter().map(|url| options(url, access_key, secret_key)).collect::<Vec<_>>();
    if !second.is_empty() {
        let (pids, metrics) = (arguments.compare_pid.clone(), arguments.compare_metrics.clone());
        let monitored = MonitoredServer { pids, metrics, token: arguments.token.clone() };
        servers.push(Arc::new(Endpoint::new(&second, monitored, body_bytes_max)?));
    }
    Ok(servers)
}

/// Measures, then deletes the objects of this run, also after a failure or an interrupt.
async fn measure_and_clean_up(
    plan: &BenchPlan,
    servers: &[Arc<Endpoint>],
    report: &BenchReport<'_>,
) -> Result<Vec<Vec<Figures>>, Error> {
    let measured = unless_interrupted(measure(plan, servers, report)).await;
    let mut emptied = Ok(());
    for server in servers {
        emptied = emptied.and(unless_interrupted(server.empty()).await);
    }
    let measured = measured?;
    emptied.map(|()| measured)
}

async fn unless_interrupted<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    tokio::select! {
        outcome = work => outcome,
        _ = tokio::signal::ctrl_c() => Err(Error::Failed("interrupted".to_owned())),
    }
}

/// The figures of each cell, one for each server.
async fn measure(
    plan: &BenchPlan,
    servers: &[Arc<Endpoint>],
    report: &BenchReport<'_>,
) -> Result<Vec<Vec<Figures>>, Error> {
    for server in servers {
        server.open().await.map_err(|error| Error::of("cannot use the bucket", error))?;
        prepare(plan, server).await?;
    }
    report.begin();
    let bounds = LoadBounds { duration: plan.duration, operations_max: plan.operations_max };
    let mut measured = Vec::with_capacity(plan.cells.len());
    for (round, cell) in plan.cells.iter().enumerate() {
        // Background work of the previous cell slows the first server down, so the order alternates.
        let mut order: Vec<_> = servers.iter().enumerate().collect();
        if round % 2 == 1 {
            order.reverse();
        }
        let mut figures = Vec::with_capacity(order.len());
        for (position, server) in order {
            figures.push((position, measure_cell(server, *cell, bounds).await?));
        }
        figures.sort_by_key(|(position, _)| *position);
        let figures: Vec<_> = figures.into_iter().map(|(_, figures)| figures).collect();
        report.cell(&figures);
        measured.push(figures);
    }
    Ok(measured)
}

/// Writes the objects that cells read; this also warms the server up.
async fn prepare(plan: &BenchPlan, server: &Arc<Endpoint>) -> Result<(), Error> {
    let read = plan.cells.iter().filter(|cell| cell.workload.reads_objects()).map(|cell| cell.size_bytes);
    for size_bytes in read.collect::<HashSet<_>>() {
        load::write(server, server.read_keys(size_bytes), size_bytes).await?;
    }
    if plan.cells.iter().any(|cell| cell.workload == Workload::List) {
        load::write(server, server.page_keys(), 1).await?;
    }
    Ok(())
}

async fn measure_cell(server: &Arc<Endpoint>, cell: Cell, bounds: LoadBounds) -> Result<Figures, Error> {
    let doomed = if cell.workload == Workload::Delete { DOOMED_OBJECTS.min(bounds.operations_max) } else { 0 };
    let spare: Vec<_> = (0..doomed).map(|_| server.fresh_key()).collect();
    load::write(server, spare.clone(), cell.size_bytes).await?;
    tokio::time::sleep(PAUSE).await;
    let (client, serving, before) = (Usage::own(), server.usage()?, server.stats().await?);
    let began = Instant::now();
    let stats = load::run(server, cell, bounds, spare).await?;
    let elapsed = began.elapsed();
    let used = |before: Option<Usage>, after| before.zip(after).map(|(before, after)| UsageInterval { before, after });
    let cost = Cost {
        elapsed,
        client: used(client, Usage::own()),
        server: used(serving, server.usage()?),
        work: before.zip(server.stats().await?).map(|(before, after)| CatalogWork {
            units: after.units.saturating_sub(before.units),
            commits: after.commits.saturating_sub(before.commits),
        }),
    };
    Ok(Figures::new(cell, stats, &cost))
}

/// Prints the results: a table line after each cell, or JSON at the end.
#[derive(Debug)]
struct BenchReport<'a> {
    arguments: &'a BenchArguments,
    urls: [&'a Vec<String>; 2],
}

impl BenchReport<'_> {
    /// A name for each server; A and B if the command line names too few.
    fn names(&self) -> impl Iterator<Item = &str> {
        self.arguments.names.iter().map(String::as_str).chain(["A", "B"])
    }

    fn begin(&self) {
        if self.arguments.json {
            return;
        }
        for (name, urls) in self.names().zip(self.urls).filter(|(_, urls)| !urls.is_empty()) {
            println!("{name} = {}", urls.join(" and "));
        }
        println!("\n{}", table::heading());
    }

    fn cell(&self, figures: &[Figures]) {
        if self.arguments.json {
            return;
        }
        for (name, figures) in self.names().zip(figures) {
            println!("{}", table::row(name, figures));
        }
    }

    /// Prints ratios and errors; fails if any request failed.
    fn end(&self, measured: &[Vec<Figures>]) -> Result<(), Error> {
        let ratios: Vec<_> =
            measured.iter().filter_map(|cell| Some(Ratios::new(cell.first()?, cell.get(1)?))).collect();
        if self.arguments.json {
            println!("{}", json!({ "servers": self.urls, "cells": measured, "ratios": ratios }));
        } else if !ratios.is_empty() {
            let names: Vec<_> = self.names().take(2).collect();
            println!("\n{}:\n{}", names.join(" divided by "), table::ratios(&ratios));
        }
        let lines: Vec<_> = measured.iter().flat_map(|cell| self.names().zip(cell)).collect();
        if self.arguments.markdown {
            println!("\n{}", markdown::table(&lines));
        }
        let failed: Vec<_> = lines.into_iter().filter(|(_, figures)| figures.errors > 0).collect();
        for (name, Figures { cell, errors, first_error, .. }) in &failed {
            let (load, size, connections) = (cell.workload.label(), cell.size_label(), cell.concurrency);
            let why = first_error.as_deref().unwrap_or("unknown");
            eprintln!("{name} {load} {size} at {connections}: {errors} errors, the first: {why}");
        }
        match failed.iter().map(|(_, figures)| figures.errors).sum::<u64>() {
            0 => Ok(()),
            errors => Err(Error::Failed(format!("{errors} requests failed"))),
        }
    }
}
