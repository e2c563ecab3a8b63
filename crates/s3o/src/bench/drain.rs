//! A long queue: how fast s3o empties it, what memory that takes, and whether it still answers meanwhile.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::figures::{float, per};
use super::table;
use super::target::Target;
use crate::cli::Failure;

/// How often the server is asked how it is.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// How long it may take.
const DRAIN_MAX: Duration = Duration::from_mins(20);
/// When a line is due: hundredths of the rows that are gone.
const SHARES: [u64; 4] = [10, 50, 90, 100];
const HEADING: &str = "| gone | rows | seconds | rows/s | server CPU us/row | own MiB | peak MiB | slowest metrics ms \
     | slowest status ms |\n|---:|---:|---:|---:|---:|---:|---:|---:|---:|";

/// The slowest answers and the most memory since the last line.
#[derive(Debug, Default)]
struct Extremes {
    own_bytes: u64,
    metrics: Duration,
    status: Duration,
}

/// Lets the worker go on and looks until nothing waits.
pub async fn run(server: &Arc<Target>) -> Result<(), Failure> {
    let admin = server.admin().ok_or_else(|| Failure::Usage("--metrics and --token are needed".to_owned()))?;
    let unknown = || Failure::Failed("the server tells nothing of itself".to_owned());
    let rows = server.told().await?.ok_or_else(unknown)?.waiting;
    let before = server.usage()?.ok_or_else(unknown)?;
    println!("{HEADING}");
    println!("| 0 % | 0 | 0 | - | - | {} | {} | - | - |", mebibytes(before.own_bytes), mebibytes(before.peak_bytes));
    admin.steer_cleanup("resume").await.map_err(|error| Failure::of("resume", error))?;
    let began = Instant::now();
    let (mut extremes, mut shares) = (Extremes::default(), SHARES.into_iter().peekable());
    while let Some(share) = shares.peek().copied() {
        if began.elapsed() > DRAIN_MAX {
            return Err(Failure::Failed("the queue is not empty in time".to_owned()));
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
        let status = admin.time_status().await.map_err(|error| Failure::of("status", error))?;
        let asked = Instant::now();
        let told = server.told().await?.ok_or_else(unknown)?;
        extremes.metrics = extremes.metrics.max(asked.elapsed());
        extremes.status = extremes.status.max(status);
        let used = server.usage()?.ok_or_else(unknown)?;
        extremes.own_bytes = extremes.own_bytes.max(used.own_bytes);
        let gone = rows.saturating_sub(told.waiting);
        if gone * 100 < rows * share {
            continue;
        }
        shares.next();
        let seconds = began.elapsed().as_secs_f64();
        let cpu = used.cpu.saturating_sub(before.cpu).as_secs_f64() * 1e6;
        println!(
            "| {share} % | {gone} | {seconds:.1} | {} | {} | {} | {} | {:.0} | {:.0} |",
            table::shown(per(float(gone), seconds)),
            table::shown(per(cpu, float(gone))),
            mebibytes(extremes.own_bytes),
            mebibytes(used.peak_bytes),
            extremes.metrics.as_secs_f64() * 1e3,
            extremes.status.as_secs_f64() * 1e3,
        );
        extremes = Extremes::default();
    }
    Ok(())
}

fn mebibytes(bytes: u64) -> String {
    table::shown(float(bytes) / 1_048_576.0)
}
