//! `s3o bench`: loads one S3 endpoint, or two side by side, and prints what they did.
//!
//! Two endpoints take turns cell by cell, because on a machine with other work only ratios of one run mean something.

mod deletes;
mod drain;
mod figures;
mod load;
mod markdown;
mod metrics;
pub mod plan;
mod table;
mod target;
mod usage;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use s3o_backend::S3Options;
use s3o_backend::s3::{PUT_BYTES_MAX, Secret};
use serde_json::json;
use tokio::time::Instant;

use crate::cli::{Bench, Failure};
use figures::{Cost, Figures, Ratios, Used};
use load::Bounds;
use plan::{Cell, Plan, Workload};
use target::{Target, Watched};
use usage::Usage;

/// Objects that a cell of deletes may delete.
const DOOMED_OBJECTS: u64 = 2000;
/// What a server does behind its answers ends between two cells, mostly.
const PAUSE: Duration = Duration::from_millis(250);

/// Measures what the command line asks for. A request that failed makes the command fail.
pub fn run(arguments: &Bench) -> Result<(), Failure> {
    let plan = Plan::new(arguments)?;
    let servers = servers(arguments)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::of("cannot start", error))?;
    if let Some(objects) = arguments.deletes {
        return runtime.block_on(deletes::run(objects, &servers, arguments));
    }
    if arguments.drain {
        return runtime.block_on(drain::run(&servers[0]));
    }
    let report = Report { arguments, urls: [&arguments.endpoint, &arguments.compare] };
    let measured = runtime.block_on(measure_and_clean_up(&plan, &servers, &report))?;
    report.end(&measured)
}

fn servers(arguments: &Bench) -> Result<Vec<Arc<Target>>, Failure> {
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
    let watched =
        Watched { pids: arguments.pid.clone(), metrics: arguments.metrics.clone(), token: arguments.token.clone() };
    let mut servers = vec![Arc::new(Target::new(&first, watched, body_bytes_max)?)];
    let access_key = arguments.compare_access_key.as_ref().unwrap_or(access_key);
    let secret_key = arguments.compare_secret_key.as_ref().unwrap_or(secret_key);
    let second = arguments.compare.iter().map(|url| options(url, access_key, secret_key)).collect::<Vec<_>>();
    if !second.is_empty() {
        let (pids, metrics) = (arguments.compare_pid.clone(), arguments.compare_metrics.clone());
        let watched = Watched { pids, metrics, token: arguments.token.clone() };
        servers.push(Arc::new(Target::new(&second, watched, body_bytes_max)?));
    }
    Ok(servers)
}

/// What is left behind is deleted however the measuring ended.
async fn measure_and_clean_up(
    plan: &Plan,
    servers: &[Arc<Target>],
    report: &Report<'_>,
) -> Result<Vec<Vec<Figures>>, Failure> {
    let measured = unless_interrupted(measure(plan, servers, report)).await;
    let mut emptied = Ok(());
    for server in servers {
        emptied = emptied.and(unless_interrupted(server.empty()).await);
    }
    let measured = measured?;
    emptied.map(|()| measured)
}

async fn unless_interrupted<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::select! {
        outcome = work => outcome,
        _ = tokio::signal::ctrl_c() => Err(Failure::Failed("interrupted".to_owned())),
    }
}

/// The figures of each cell, one for each server.
async fn measure(plan: &Plan, servers: &[Arc<Target>], report: &Report<'_>) -> Result<Vec<Vec<Figures>>, Failure> {
    for server in servers {
        server.open().await.map_err(|error| Failure::of("the bucket cannot be used", error))?;
        prepare(plan, server).await?;
    }
    report.begin();
    let bounds = Bounds { duration: plan.duration, operations_max: plan.operations_max };
    let mut measured = Vec::with_capacity(plan.cells.len());
    for (round, cell) in plan.cells.iter().enumerate() {
        // Whoever goes first meets what the cell before left running, so they take turns.
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

/// Writes what cells read, which also warms the server up.
async fn prepare(plan: &Plan, server: &Arc<Target>) -> Result<(), Failure> {
    let read = plan.cells.iter().filter(|cell| cell.workload.reads_objects()).map(|cell| cell.size_bytes);
    for size_bytes in read.collect::<HashSet<_>>() {
        load::write(server, server.read_keys(size_bytes), size_bytes).await?;
    }
    if plan.cells.iter().any(|cell| cell.workload == Workload::List) {
        load::write(server, server.page_keys(), 1).await?;
    }
    Ok(())
}

async fn measure_cell(server: &Arc<Target>, cell: Cell, bounds: Bounds) -> Result<Figures, Failure> {
    let doomed = if cell.workload == Workload::Delete { DOOMED_OBJECTS.min(bounds.operations_max) } else { 0 };
    let spare: Vec<_> = (0..doomed).map(|_| server.fresh_key()).collect();
    load::write(server, spare.clone(), cell.size_bytes).await?;
    tokio::time::sleep(PAUSE).await;
    let (client, serving, told) = (Usage::own(), server.usage()?, server.told().await?);
    let began = Instant::now();
    let tally = load::run(server, cell, bounds, spare).await?;
    let elapsed = began.elapsed();
    let used = |before: Option<Usage>, after| before.zip(after).map(|(before, after)| Used { before, after });
    let cost = Cost {
        elapsed,
        client: used(client, Usage::own()),
        server: used(serving, server.usage()?),
        commits: told.zip(server.told().await?).map(|(before, after)| after.commits.saturating_sub(before.commits)),
    };
    Ok(Figures::new(cell, tally, &cost))
}

/// Where results go: line by line for people, or all at once for programs.
#[derive(Debug)]
struct Report<'a> {
    arguments: &'a Bench,
    urls: [&'a Vec<String>; 2],
}

impl Report<'_> {
    /// A name for each server, whatever the command line left out.
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

    /// Ratios, errors, and the verdict.
    fn end(&self, measured: &[Vec<Figures>]) -> Result<(), Failure> {
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
            errors => Err(Failure::Failed(format!("{errors} requests failed"))),
        }
    }
}
