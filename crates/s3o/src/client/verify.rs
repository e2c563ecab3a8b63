//! `s3o verify`.

use std::fmt::Write as _;

use serde_json::Value;

use super::arguments::VerifyCommand;
use super::connection::AdminConnection;
use super::table::{Table, bytes, cell};
use crate::cli::CommandFailure;

/// Checks the invariants. The command fails if a check found a violation or could not run.
pub fn run(connection: &AdminConnection, command: &VerifyCommand) -> Result<(), CommandFailure> {
    let options = [("deep", command.deep), ("catalog", command.catalog)];
    let query: Vec<(&str, &str)> = options.into_iter().filter(|(_, is)| *is).map(|(name, _)| (name, "true")).collect();
    let report = connection.post_with_progress(&["verify"], &query, print_progress)?;
    if command.client.json {
        println!("{report}");
    } else {
        print!("{}", render(&report));
    }
    if report["holds"] == true {
        return Ok(());
    }
    let broken = rows(&report["checks"]).filter(|check| check["violations"] != 0).count();
    let unchecked = rows(&report["unchecked"]).count();
    Err(CommandFailure::Failed(format!("{broken} checks found violations, {unchecked} checks could not run")))
}

fn print_progress(progress: &Value) {
    if progress["running"] == true {
        eprintln!("{}: {} seen", cell(&progress["step"]), cell(&progress["seen"]));
    }
}

fn rows(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn render(report: &Value) -> String {
    let mut checks = Table::new(&["INVARIANT", "CHECK", "VIOLATIONS"]);
    let mut text = String::new();
    for check in rows(&report["checks"]) {
        checks.row(vec![cell(&check["invariant"]), cell(&check["what"]), cell(&check["violations"])]);
        for sample in rows(&check["samples"]) {
            writeln!(text, "{}: {}", cell(&check["invariant"]), cell(sample)).expect("writing to a string cannot fail");
        }
    }
    for skipped in rows(&report["unchecked"]) {
        writeln!(text, "could not check {}: {}", cell(&skipped["what"]), cell(&skipped["reason"]))
            .expect("writing to a string cannot fail");
    }
    if report["lost"]["contents"].as_u64().is_some_and(|contents| contents > 0) {
        writeln!(text, "lost with backends that were written off: {} contents", report["lost"]["contents"])
            .expect("writing to a string cannot fail");
    }
    for sample in rows(&report["lost"]["samples"]) {
        writeln!(text, "lost: {}", cell(sample)).expect("writing to a string cannot fail");
    }
    format!("{}{}{text}", checks.render(), backends(report))
}

fn backends(report: &Value) -> String {
    let mut table = Table::new(&["BACKEND", "OBJECTS", "BYTES", "FOREIGN", "AT REST"]);
    for held in rows(&report["backends"]) {
        let at_rest = if held["accounted_bytes"].is_null() { "no" } else { "yes" };
        let numbers = [cell(&held["objects"]), bytes(&held["bytes"]), cell(&held["foreign"])];
        table.row([vec![cell(&held["backend"])], numbers.to_vec(), vec![at_rest.to_owned()]].concat());
    }
    if rows(&report["backends"]).count() == 0 { String::new() } else { format!("\n{}", table.render()) }
}

#[cfg(test)]
mod tests {
    use super::render;
    use serde_json::json;

    #[test]
    fn report_lists_checks_violations_and_backends() {
        let text = render(&json!({
            "holds": false,
            "checks": [{"invariant": "I3", "what": "named", "violations": 12, "samples": ["backend disk: b/k~1"]}],
            "lost": {"contents": 2, "samples": ["content 17, 5 bytes"]},
            "unchecked": [{"what": "backend cloud", "reason": "away"}],
            "backends": [{"backend": "disk", "objects": 3, "bytes": 2048, "foreign": 1, "accounted_bytes": null}],
        }));
        for part in [
            "I3",
            "12",
            "I3: backend disk: b/k~1",
            "could not check backend cloud: away",
            "2.0 KiB",
            "2 contents",
            "lost: content 17",
        ] {
            assert!(text.contains(part), "{part} not in\n{text}");
        }
    }
}
