//! Measures deletes: how fast they are answered, and how fast the bytes are gone from the backend.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;

use super::endpoint::{Endpoint, LoadRequest};
use super::figures::{LoadStats, float, per};
use super::{PAUSE, load, table};
use crate::{BenchArguments, Error};

/// Keys of one `DeleteObjects` request, the most that S3 allows.
const BATCH_KEYS: usize = 1000;
/// How often the length of the cleanup queue is read.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time limit for emptying the cleanup queue.
const QUEUE_EMPTY_MAX: Duration = Duration::from_mins(10);

/// One way to delete objects, measured as one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DeleteMethod {
    label: &'static str,
    keys: usize,
    connections: usize,
    /// The cleanup worker is paused until all deletes are answered.
    fills_queue: bool,
}

const METHODS: [DeleteMethod; 4] = [
    DeleteMethod { label: "DELETE", keys: 1, connections: 16, fills_queue: false },
    DeleteMethod { label: "DeleteObjects", keys: BATCH_KEYS, connections: 1, fills_queue: false },
    DeleteMethod { label: "DeleteObjects", keys: BATCH_KEYS, connections: 16, fills_queue: false },
    DeleteMethod { label: "full queue", keys: BATCH_KEYS, connections: 16, fills_queue: true },
];

/// The numbers of one row.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct DeleteFigures {
    server: String,
    #[serde(rename = "way")]
    method: &'static str,
    connections: usize,
    objects: u64,
    /// Objects per second whose deletion was answered.
    answered_per_second: f64,
    /// Objects per second whose bytes were gone, counted from the first request or from when the worker resumed.
    gone_per_second: f64,
    /// Backend calls.
    calls_per_thousand: Option<f64>,
    commits_per_thousand: Option<f64>,
    server_cpu_us_per_object: Option<f64>,
    server_peak_bytes: Option<u64>,
}

/// Measures every method on every server, in turns; fails if a request failed.
pub async fn run(objects: u64, servers: &[Arc<Endpoint>], arguments: &BenchArguments) -> Result<(), Error> {
    let size_bytes = arguments.sizes.first().copied().unwrap_or(0);
    let mut rows = Vec::new();
    for server in servers {
        server.open().await.map_err(|error| Error::of("cannot use the bucket", error))?;
    }
    for method in METHODS {
        for (name, server) in arguments.names.iter().map(String::as_str).chain(["A", "B"]).zip(servers) {
            if method.fills_queue && server.admin().is_none() {
                continue;
            }
            let figures = measure(method, objects, size_bytes, name, server).await?;
            if !arguments.json {
                eprintln!("{}", row(&figures));
            }
            rows.push(figures);
        }
    }
    if arguments.json {
        println!("{}", json!(rows));
    } else {
        println!("{}", render(&rows));
    }
    Ok(())
}

async fn measure(
    method: DeleteMethod,
    objects: u64,
    size_bytes: u64,
    name: &str,
    server: &Arc<Endpoint>,
) -> Result<DeleteFigures, Error> {
    let keys: Vec<_> = (0..objects).map(|_| server.fresh_key()).collect();
    load::write(server, keys.clone(), size_bytes).await?;
    let requests = keys.chunks(method.keys).map(delete_request).collect();
    tokio::time::sleep(PAUSE).await;
    let (usage, before) = (server.usage()?, server.stats().await?);
    let mut began = Instant::now();
    let answered = answer(method, server, requests, size_bytes).await?;
    if method.fills_queue {
        control_cleanup(server, "resume").await?;
        began = Instant::now();
    }
    wait_until_deleted(server).await?;
    let gone = began.elapsed();
    let (used, after) = (server.usage()?, server.stats().await?);
    let cpu = usage.zip(used).map(|(before, after)| after.cpu.saturating_sub(before.cpu));
    let thousands = float(objects) / 1e3;
    let stats = before.zip(after);
    Ok(DeleteFigures {
        server: name.to_owned(),
        method: method.label,
        connections: method.connections,
        objects,
        answered_per_second: per(float(objects), answered.as_secs_f64()),
        gone_per_second: per(float(objects), gone.as_secs_f64()),
        calls_per_thousand: stats.map(|(before, after)| per(float(after.calls - before.calls), thousands)),
        commits_per_thousand: stats.map(|(before, after)| per(float(after.commits - before.commits), thousands)),
        server_cpu_us_per_object: cpu.map(|cpu| per(cpu.as_secs_f64() * 1e6, float(objects))),
        server_peak_bytes: used.map(|used| used.peak_bytes),
    })
}

fn delete_request(keys: &[String]) -> LoadRequest {
    match keys {
        [key] => LoadRequest::Delete(key.clone()),
        several => LoadRequest::DeleteMany(several.to_vec()),
    }
}

/// Sends the deletes; returns the time until the last one was answered.
async fn answer(
    method: DeleteMethod,
    server: &Arc<Endpoint>,
    requests: Vec<LoadRequest>,
    size_bytes: u64,
) -> Result<Duration, Error> {
    if method.fills_queue {
        control_cleanup(server, "pause").await?;
        // Pausing does not stop a run that has started.
        tokio::time::sleep(PAUSE).await;
    }
    let began = Instant::now();
    let sent = load::send(server, requests, size_bytes, method.connections).await;
    let elapsed = began.elapsed();
    let failed = match sent {
        Ok(LoadStats { first_error: None, .. }) => return Ok(elapsed),
        Ok(LoadStats { first_error: Some(why), .. }) => Error::of(method.label, why),
        Err(failure) => failure,
    };
    if method.fills_queue {
        control_cleanup(server, "resume").await?;
    }
    Err(failed)
}

async fn control_cleanup(server: &Endpoint, verb: &str) -> Result<(), Error> {
    let Some(admin) = server.admin() else { return Ok(()) };
    admin.control_cleanup(verb).await.map_err(|error| Error::of(verb, error))
}

/// Waits until the cleanup queue is empty. Without metrics, the answered deletes count as done.
async fn wait_until_deleted(server: &Endpoint) -> Result<(), Error> {
    let began = Instant::now();
    while let Some(stats) = server.stats().await? {
        if stats.dead > 0 {
            return Err(Error::Failed(format!("{} deletes became dead letters", stats.dead)));
        }
        if stats.waiting == 0 {
            break;
        }
        if began.elapsed() > QUEUE_EMPTY_MAX {
            return Err(Error::Failed(format!("{} rows are still in the cleanup queue", stats.waiting)));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

const HEADING: &str = "| deletes | connections | server | objects | answered/s | gone/s | backend calls/1000 \
     | commits/1000 | server CPU us/object | peak MiB |\n|---|---:|---|---:|---:|---:|---:|---:|---:|---:|";

fn render(rows: &[DeleteFigures]) -> String {
    let mut text = HEADING.to_owned();
    for figures in rows {
        let _ = write!(text, "\n{}", row(figures));
    }
    text
}

fn row(figures: &DeleteFigures) -> String {
    let optional = |number: Option<f64>| number.map_or_else(|| "-".to_owned(), |number| format!("{number:.2}"));
    let whole = |number: Option<f64>| number.map_or_else(|| "-".to_owned(), table::shown);
    let peak = figures.server_peak_bytes.map(|bytes| float(bytes) / 1_048_576.0);
    format!(
        "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
        figures.method,
        figures.connections,
        figures.server,
        figures.objects,
        table::shown(figures.answered_per_second),
        table::shown(figures.gone_per_second),
        optional(figures.calls_per_thousand),
        optional(figures.commits_per_thousand),
        whole(figures.server_cpu_us_per_object),
        whole(peak),
    )
}

#[cfg(test)]
mod tests {
    use super::{DeleteFigures, HEADING, row};

    #[test]
    fn row_has_a_cell_for_every_column() {
        let figures = DeleteFigures {
            server: "A".to_owned(),
            method: "DELETE",
            connections: 16,
            objects: 1000,
            answered_per_second: 500.0,
            gone_per_second: 250.0,
            calls_per_thousand: Some(1.0),
            commits_per_thousand: None,
            server_cpu_us_per_object: None,
            server_peak_bytes: Some(1 << 20),
        };
        let row = row(&figures);
        assert_eq!(row, "| DELETE | 16 | A | 1000 | 500 | 250 | 1.00 | - | - | 1.0 |");
        let heading = HEADING.lines().next().expect("a line");
        assert_eq!(row.matches('|').count(), heading.matches('|').count());
    }
}
