//! Measures how fast s3o empties a long cleanup queue, with what memory, and how fast it answers meanwhile.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::endpoint::Endpoint;
use super::figures::{UsageInterval, float, per};
use super::table;
use crate::Error;

/// How often the metrics and the status are read.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Time limit for the whole queue.
const DRAIN_MAX: Duration = Duration::from_mins(20);
/// A line is printed when this percentage of the rows is done.
const SHARES: [u64; 4] = [10, 50, 90, 100];
const HEADING: &str = "| gone | rows | seconds | rows/s | server CPU us/row | own MiB | peak MiB | slowest metrics ms \
     | slowest status ms |\n|---:|---:|---:|---:|---:|---:|---:|---:|---:|";

/// The slowest responses and the highest memory use since the last line.
#[derive(Debug, Default)]
struct Extremes {
    own_bytes: u64,
    metrics: Duration,
    status: Duration,
}

/// Resumes the cleanup worker and polls until the queue is empty.
pub async fn run(server: &Arc<Endpoint>) -> Result<(), Error> {
    let admin = server.admin().ok_or_else(|| Error::Usage("--metrics and --token are needed".to_owned()))?;
    let unknown = || Error::Failed("no metrics or no process of the server, check --metrics and --pid".to_owned());
    let rows = server.stats().await?.ok_or_else(unknown)?.waiting;
    let before = server.usage()?.ok_or_else(unknown)?;
    println!("{HEADING}");
    println!("| 0 % | 0 | 0 | - | - | {} | {} | - | - |", mebibytes(before.own_bytes), mebibytes(before.peak_bytes));
    admin.control_cleanup("resume").await.map_err(|error| Error::of("resume", error))?;
    let began = Instant::now();
    let (mut extremes, mut shares) = (Extremes::default(), SHARES.into_iter().peekable());
    while let Some(share) = shares.peek().copied() {
        if began.elapsed() > DRAIN_MAX {
            return Err(Error::Failed("the queue was not empty within the time limit".to_owned()));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
        let latency = admin.time_status().await.map_err(|error| Error::of("status", error))?;
        let requested = Instant::now();
        let stats = server.stats().await?.ok_or_else(unknown)?;
        extremes.metrics = extremes.metrics.max(requested.elapsed());
        extremes.status = extremes.status.max(latency);
        let used = server.usage()?.ok_or_else(unknown)?;
        extremes.own_bytes = extremes.own_bytes.max(used.own_bytes);
        let gone = rows.saturating_sub(stats.waiting);
        if gone * 100 < rows * share {
            continue;
        }
        shares.next();
        let usage = UsageInterval { before, after: used };
        println!("| {share} % | {}", cells(gone, began.elapsed(), usage, &extremes));
        extremes = Extremes::default();
    }
    Ok(())
}

fn cells(gone: u64, elapsed: Duration, usage: UsageInterval, extremes: &Extremes) -> String {
    let seconds = elapsed.as_secs_f64();
    let cpu = usage.after.cpu.saturating_sub(usage.before.cpu).as_secs_f64() * 1e6;
    format!(
        "{gone} | {seconds:.1} | {} | {} | {} | {} | {:.0} | {:.0} |",
        table::shown(per(float(gone), seconds)),
        table::shown(per(cpu, float(gone))),
        mebibytes(extremes.own_bytes),
        mebibytes(usage.after.peak_bytes),
        extremes.metrics.as_secs_f64() * 1e3,
        extremes.status.as_secs_f64() * 1e3,
    )
}

fn mebibytes(bytes: u64) -> String {
    table::shown(float(bytes) / 1_048_576.0)
}
