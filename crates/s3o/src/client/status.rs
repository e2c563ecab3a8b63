//! `s3o status`.

use serde_json::Value;

use super::connection::AdminConnection;
use super::table::{Table, bytes, cell};
use super::workers;
use crate::cli::CommandFailure;

/// Prints backends, buckets, queues and workers.
pub fn show(connection: &AdminConnection, json: bool) -> Result<(), CommandFailure> {
    let status = connection.get(&["status"])?;
    if json {
        println!("{status}");
    } else {
        print!("{}", render(&status));
    }
    Ok(())
}

fn rows(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// State of the catalog with its remedy; empty if it is ok.
fn catalog(catalog: &Value) -> String {
    match (catalog["state"].as_str(), catalog["reason"].as_str()) {
        (Some("checking"), _) => "catalog: the integrity check is running\n\n".to_owned(),
        (Some(state), Some(reason)) => format!("catalog {state}: {reason}\n  {}\n\n", cell(&catalog["remedy"])),
        _ => String::new(),
    }
}

fn render(status: &Value) -> String {
    let mut backends = Table::new(&["BACKEND", "USED", "LIMIT", "ORPHAN", "RESERVED", "OBJECTS", "HEALTH", "DRAINING"]);
    for backend in rows(&status["backends"]) {
        backends.row(vec![
            cell(&backend["name"]),
            bytes(&backend["used"]),
            bytes(&backend["limit"]),
            bytes(&backend["orphan"]),
            bytes(&backend["reserved"]),
            cell(&backend["objects"]),
            health(backend),
            cell(&backend["draining"]),
        ]);
    }
    let usage = usage(&status["backends"]);
    let buckets = buckets(&status["buckets"]);
    let catalog = catalog(&status["catalog"]);
    let queues = &status["queues"];
    let waiting = format!(
        "waiting: {} cleanups, {} dead letters, {} intents, {} uploads",
        cell(&queues["cleanup"]),
        cell(&queues["dead_letters"]),
        cell(&queues["intents"]),
        cell(&queues["uploads"])
    );
    let due = overdue(&queues["oldest_due_seconds"]);
    let (cache, clock) = (cached(&status["cache"]), clock(&status["clock"]));
    let workers = workers::render(rows(&status["workers"]));
    let warnings: Vec<String> =
        rows(&status["warnings"]).map(|warning| format!("warning: {}\n", cell(warning))).collect();
    let warnings = warnings.concat();
    format!(
        "{catalog}{warnings}{}\n{usage}{}\n{waiting}{due}{cache}{clock}\n\n{workers}",
        backends.render(),
        buckets.render()
    )
}

fn buckets(buckets: &Value) -> Table {
    let mut table = Table::new(&["BUCKET", "OBJECTS", "BYTES", "TRASH", "TRASH BYTES", "SAVED"]);
    for bucket in rows(buckets) {
        let [held, trashed, saved] = ["bytes", "trash_bytes", "saved"].map(|field| bytes(&bucket[field]));
        let [name, objects, in_trash] = ["name", "objects", "trash_objects"].map(|field| cell(&bucket[field]));
        table.row(vec![name, objects, held, in_trash, trashed, saved]);
    }
    table
}

/// The usage of the backends this month against their limits; empty if no backend is counted.
fn usage(backends: &Value) -> String {
    let mut table = Table::new(&["USAGE", "MONTH", "API REQUESTS", "EGRESS", "INGRESS", "STOPPED"]);
    let counted: Vec<&Value> = rows(backends).filter(|backend| !backend["usage"].is_null()).collect();
    for backend in &counted {
        let usage = &backend["usage"];
        table.row(vec![
            cell(&backend["name"]),
            cell(&usage["month"]),
            of_limit(&usage["api_requests"], cell),
            of_limit(&usage["egress_bytes"], bytes),
            of_limit(&usage["ingress_bytes"], bytes),
            stopped(usage),
        ]);
    }
    if counted.is_empty() { String::new() } else { format!("{}\n", table.render()) }
}

fn of_limit(number: &Value, shown: fn(&Value) -> String) -> String {
    let used = shown(&number["used"]);
    if number["limit"].is_null() { used } else { format!("{used} of {}", shown(&number["limit"])) }
}

/// What usage limits have stopped.
fn stopped(usage: &Value) -> String {
    let calls = [("reads", "reads_stopped_by"), ("writes", "writes_stopped_by")].into_iter();
    let calls = calls.filter_map(|(calls, field)| Some(format!("{calls} by {}", usage[field].as_str()?)));
    let background = (usage["background_stopped"] == true).then(|| "background work".to_owned());
    let all: Vec<String> = calls.chain(background).collect();
    if all.is_empty() { "-".to_owned() } else { all.join(", ") }
}

/// The health of a backend with its cause, and whether its copies count.
fn health(backend: &Value) -> String {
    let unhealthy = backend["unhealthy_since"].as_str().map(|since| format!(", unhealthy since {since}"));
    format!("{}{}", cause_of_health(backend), unhealthy.unwrap_or_default())
}

fn cause_of_health(backend: &Value) -> String {
    match (backend["health"].as_str(), backend["frozen"].as_str()) {
        (Some("away"), _) => {
            let (since, error) = (cell(&backend["since"]), cell(&backend["error"]));
            format!("away since {since}: {error}{}", skipped_calls(backend))
        }
        (Some("full"), _) => format!("full: no space for {}", bytes(&backend["full_from"])),
        (_, Some(reason)) => format!("frozen: {reason}"),
        (_, None) => {
            let deletes = backend["deletes_wait"].as_str().map(|why| format!(", deletes wait: {why}"));
            format!("{}{}{}", cell(&backend["health"]), skipped_calls(backend), deletes.unwrap_or_default())
        }
    }
}

/// The calls that the circuit breaker skips; empty if there are none.
fn skipped_calls(backend: &Value) -> &'static str {
    let is_open = |calls: &str| backend["circuit_breaker"][calls] == "open";
    match (is_open("reads"), is_open("writes")) {
        (true, true) => ", circuit breaker open",
        (true, false) => ", circuit breaker open for reads",
        (false, true) => ", circuit breaker open for writes",
        (false, false) => "",
    }
}

/// Queues whose oldest row is due, with its age.
fn overdue(ages: &Value) -> String {
    let ages = ages.as_object().into_iter().flatten().filter_map(|(queue, age)| Some((queue, age.as_f64()?)));
    let due: Vec<_> =
        ages.filter(|(_, age)| *age > 0.0).map(|(queue, age)| format!("{queue} for {age:.0} s")).collect();
    if due.is_empty() { String::new() } else { format!("\ndue: {}", due.join(", ")) }
}

/// Why time-based deletes are paused; empty if they are not.
fn clock(clock: &Value) -> String {
    match clock["reason"].as_str() {
        Some(reason) => format!("\nclock: held, {reason}; expiry, lifecycle, stale uploads and grace periods paused"),
        None => String::new(),
    }
}

/// Size and hits of the cache; empty if it is disabled.
fn cached(cache: &Value) -> String {
    if cache.is_null() {
        return String::new();
    }
    let shared = match cache["shared"].as_str() {
        Some("ok") => format!(", {} of the misses found in the shared cache", cell(&cache["shared_hits"])),
        Some("away") => ", the shared cache is unreachable".to_owned(),
        Some(_) | None => String::new(),
    };
    format!(
        "\ncache: {} bodies, {} of {}, {} hits, {} misses{shared}",
        cell(&cache["entries"]),
        bytes(&cache["bytes"]),
        bytes(&cache["limit"]),
        cell(&cache["hits"]),
        cell(&cache["misses"])
    )
}

#[cfg(test)]
mod tests {
    use super::render;
    use serde_json::json;

    #[test]
    fn status_shows_every_part_with_its_cause() {
        let text = render(&json!({
            "backends": [{"name": "disk", "used": 2048, "limit": null, "orphan": 0, "reserved": 0, "objects": null,
                          "health": "frozen", "frozen": "wrong disk", "draining": false,
                          "usage": {"month": "2026-11", "api_requests": {"used": 4000, "limit": 5000},
                                    "egress_bytes": {"used": 3072, "limit": null},
                                    "ingress_bytes": {"used": 1024, "limit": 1024}, "reads_stopped_by": null,
                                    "writes_stopped_by": "ingress_byte_limit", "background_stopped": true}},
                         {"name": "b2", "health": "away", "since": "yesterday", "error": "no route"},
                         {"name": "c3", "health": "full", "full_from": 2048}],
            "buckets": [{"name": "photos", "objects": 3, "bytes": 10, "trash_objects": 7,
                         "trash_bytes": 5120, "saved": 3072}],
            "queues": {"cleanup": 1, "dead_letters": 4, "intents": 2, "uploads": 3,
                       "oldest_due_seconds": {"cleanup": 71.6, "pending_intents": 0.0}},
            "cache": {"entries": 5, "bytes": 2048, "limit": 1_048_576, "hits": 9, "misses": 4, "shared_hits": 3,
                      "shared": "ok"},
            "clock": {"state": "held", "reason": "the clock jumped ahead by 90 s", "since": "2026-01-01T00:00:00Z"},
            "workers": [{"name": "cleanup"}],
            "warnings": ["backend old is not configured"],
        }));
        for part in [
            "2.0 KiB",
            "disk   2026-11  4000 of 5000  3.0 KiB  1.0 KiB of 1.0 KiB  writes by ingress_byte_limit, background",
            "frozen: wrong disk",
            "away since yesterday: no route",
            "full: no space for 2.0 KiB",
            "warning: backend old is not configured\n",
            "photos",
            "3.0 KiB",
            "7      5.0 KiB",
            "1 cleanups, 4 dead letters, 2 intents, 3 uploads\ndue: cleanup for 72 s\n",
            "cache: 5 bodies, 2.0 KiB of 1.0 MiB, 9 hits, 4 misses, 3 of the misses found in the shared cache",
            "clock: held, the clock jumped ahead by 90 s",
            "cleanup",
        ] {
            assert!(text.contains(part), "{part} not in\n{text}");
        }
    }
}
