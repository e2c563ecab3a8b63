//! Deletes to their end: how fast they are answered, and how fast the bytes are gone.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;

use super::figures::{Tally, float, per};
use super::target::{Request, Target};
use super::{PAUSE, load, table};
use crate::cli::{Bench, Failure};

/// Keys of one DeleteObjects, as many as S3 allows.
const BATCH_KEYS: usize = 1000;
/// How often the server is asked whether anything waits.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// How long emptying a queue may take.
const GONE_MAX: Duration = Duration::from_mins(10);

/// How objects are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Way {
    label: &'static str,
    keys: usize,
    connections: usize,
    /// Whether the queue is let fill up before it is worked on.
    fills_queue: bool,
}

const WAYS: [Way; 4] = [
    Way { label: "DELETE", keys: 1, connections: 16, fills_queue: false },
    Way { label: "DeleteObjects", keys: BATCH_KEYS, connections: 1, fills_queue: false },
    Way { label: "DeleteObjects", keys: BATCH_KEYS, connections: 16, fills_queue: false },
    Way { label: "full queue", keys: BATCH_KEYS, connections: 16, fills_queue: true },
];

/// What became of so many objects.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Removal {
    server: String,
    way: &'static str,
    connections: usize,
    objects: u64,
    /// Objects a second whose deletion was answered.
    answered_per_second: f64,
    /// Objects a second whose bytes were gone: from the first request, or from when a full queue was worked on.
    gone_per_second: f64,
    /// Calls to backends.
    calls_per_thousand: Option<f64>,
    commits_per_thousand: Option<f64>,
    server_cpu_us_per_object: Option<f64>,
    server_peak_bytes: Option<u64>,
}

/// Measures every way on every server, in turns; a request that failed makes the command fail.
pub async fn run(objects: u64, servers: &[Arc<Target>], arguments: &Bench) -> Result<(), Failure> {
    let size_bytes = arguments.sizes.first().copied().unwrap_or(0);
    let mut removals = Vec::new();
    for server in servers {
        server.open().await.map_err(|error| Failure::of("the bucket cannot be used", error))?;
    }
    for way in WAYS {
        for (name, server) in arguments.names.iter().map(String::as_str).chain(["A", "B"]).zip(servers) {
            if way.fills_queue && server.admin().is_none() {
                continue;
            }
            let removal = measure(way, objects, size_bytes, name, server).await?;
            if !arguments.json {
                eprintln!("{}", row(&removal));
            }
            removals.push(removal);
        }
    }
    if arguments.json {
        println!("{}", json!(removals));
    } else {
        println!("{}", render(&removals));
    }
    Ok(())
}

async fn measure(
    way: Way,
    objects: u64,
    size_bytes: u64,
    name: &str,
    server: &Arc<Target>,
) -> Result<Removal, Failure> {
    let keys: Vec<_> = (0..objects).map(|_| server.fresh_key()).collect();
    load::write(server, keys.clone(), size_bytes).await?;
    let requests = keys.chunks(way.keys).map(|keys| match keys {
        [key] => Request::Delete(key.clone()),
        several => Request::DeleteMany(several.to_vec()),
    });
    let requests: Vec<_> = requests.collect();
    tokio::time::sleep(PAUSE).await;
    let (usage, told) = (server.usage()?, server.told().await?);
    let mut began = Instant::now();
    let answered = answer(way, server, requests, size_bytes).await?;
    if way.fills_queue {
        steer(server, "resume").await?;
        began = Instant::now();
    }
    wait_until_gone(server).await?;
    let gone = began.elapsed();
    let (used, said) = (server.usage()?, server.told().await?);
    let cpu = usage.zip(used).map(|(before, after)| after.cpu.saturating_sub(before.cpu));
    let thousands = float(objects) / 1e3;
    let told = told.zip(said);
    Ok(Removal {
        server: name.to_owned(),
        way: way.label,
        connections: way.connections,
        objects,
        answered_per_second: per(float(objects), answered.as_secs_f64()),
        gone_per_second: per(float(objects), gone.as_secs_f64()),
        calls_per_thousand: told.map(|(before, after)| per(float(after.calls - before.calls), thousands)),
        commits_per_thousand: told.map(|(before, after)| per(float(after.commits - before.commits), thousands)),
        server_cpu_us_per_object: cpu.map(|cpu| per(cpu.as_secs_f64() * 1e6, float(objects))),
        server_peak_bytes: used.map(|used| used.peak_bytes),
    })
}

/// Sends the deletes; how long until the last was answered.
async fn answer(way: Way, server: &Arc<Target>, requests: Vec<Request>, size_bytes: u64) -> Result<Duration, Failure> {
    if way.fills_queue {
        steer(server, "pause").await?;
        // A run that is under way is not paused.
        tokio::time::sleep(PAUSE).await;
    }
    let began = Instant::now();
    let sent = load::send(server, requests, size_bytes, way.connections).await;
    let elapsed = began.elapsed();
    let failed = match sent {
        Ok(Tally { first_error: None, .. }) => return Ok(elapsed),
        Ok(Tally { first_error: Some(why), .. }) => Failure::of(way.label, why),
        Err(failure) => failure,
    };
    if way.fills_queue {
        steer(server, "resume").await?;
    }
    Err(failed)
}

async fn steer(server: &Target, verb: &str) -> Result<(), Failure> {
    let Some(admin) = server.admin() else { return Ok(()) };
    admin.steer_cleanup(verb).await.map_err(|error| Failure::of(verb, error))
}

/// Waits until no row says that bytes are still to go; of a server that tells nothing its answers are believed.
async fn wait_until_gone(server: &Target) -> Result<(), Failure> {
    let began = Instant::now();
    while let Some(told) = server.told().await? {
        if told.dead > 0 {
            return Err(Failure::Failed(format!("{} deletes became dead letters", told.dead)));
        }
        if told.waiting == 0 {
            break;
        }
        if began.elapsed() > GONE_MAX {
            return Err(Failure::Failed(format!("{} bytes' rows still wait", told.waiting)));
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
    Ok(())
}

const HEADING: &str = "| deletes | connections | server | objects | answered/s | gone/s | backend calls/1000 \
     | commits/1000 | server CPU us/object | peak MiB |\n|---|---:|---|---:|---:|---:|---:|---:|---:|---:|";

fn render(removals: &[Removal]) -> String {
    let mut text = HEADING.to_owned();
    for removal in removals {
        let _ = write!(text, "\n{}", row(removal));
    }
    text
}

fn row(removal: &Removal) -> String {
    let optional = |number: Option<f64>| number.map_or_else(|| "-".to_owned(), |number| format!("{number:.2}"));
    let whole = |number: Option<f64>| number.map_or_else(|| "-".to_owned(), table::shown);
    let peak = removal.server_peak_bytes.map(|bytes| float(bytes) / 1_048_576.0);
    format!(
        "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
        removal.way,
        removal.connections,
        removal.server,
        removal.objects,
        table::shown(removal.answered_per_second),
        table::shown(removal.gone_per_second),
        optional(removal.calls_per_thousand),
        optional(removal.commits_per_thousand),
        whole(removal.server_cpu_us_per_object),
        whole(peak),
    )
}

#[cfg(test)]
mod tests {
    use super::{HEADING, Removal, row};

    #[test]
    fn a_row_has_a_cell_for_every_column() {
        let removal = Removal {
            server: "A".to_owned(),
            way: "DELETE",
            connections: 16,
            objects: 1000,
            answered_per_second: 500.0,
            gone_per_second: 250.0,
            calls_per_thousand: Some(1.0),
            commits_per_thousand: None,
            server_cpu_us_per_object: None,
            server_peak_bytes: Some(1 << 20),
        };
        let row = row(&removal);
        assert_eq!(row, "| DELETE | 16 | A | 1000 | 500 | 250 | 1.00 | - | - | 1.0 |");
        let heading = HEADING.lines().next().expect("a line");
        assert_eq!(row.matches('|').count(), heading.matches('|').count());
    }
}
