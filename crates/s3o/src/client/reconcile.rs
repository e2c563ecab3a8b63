//! `s3o reconcile`.

use std::fmt::Write as _;

use serde_json::Value;

use super::arguments::ReconcileCommand;
use super::connection::AdminConnection;
use super::table::{Table, bytes, cell};
use crate::cli::CommandFailure;

/// Compares backends with the catalog and prints what was found. The command fails if a pass was not valid.
pub fn run(connection: &AdminConnection, command: &ReconcileCommand) -> Result<(), CommandFailure> {
    let mut query: Vec<(&str, &str)> = command.backend.iter().map(|name| ("backend", name.as_str())).collect();
    query.extend(command.dry_run.then_some(("dry_run", "true")));
    let answer = connection.post_with_progress(&["reconcile"], &query, print_progress)?;
    if command.client.json {
        println!("{answer}");
    } else {
        print!("{}", render(&answer));
    }
    let invalid = passes(&answer).filter(|pass| !is_valid(pass)).count();
    if invalid == 0 { Ok(()) } else { Err(CommandFailure::Failed(format!("{invalid} passes are not valid"))) }
}

fn passes(answer: &Value) -> impl Iterator<Item = &Value> {
    answer["passes"].as_array().into_iter().flatten()
}

fn is_valid(pass: &Value) -> bool {
    matches!(pass["state"].as_str(), Some("acting" | "done" | "dry_run"))
}

fn print_progress(answer: &Value) {
    for pass in passes(answer).filter(|pass| pass["ended_at"].is_null()) {
        eprintln!("{}: {} keys", cell(&pass["backend"]), cell(&pass["keys"]));
    }
}

fn render(answer: &Value) -> String {
    let mut table = Table::new(&["BACKEND", "STATE", "KEYS", "BYTES", "FOREIGN", "FOREIGN BYTES"]);
    let (mut found, mut notes) = (Table::new(&["BACKEND", "KIND", "FOUND", "BYTES", "DISMISSED"]), String::new());
    let mut has_findings = false;
    for pass in passes(answer) {
        let backend = cell(&pass["backend"]);
        table.row(vec![
            backend.clone(),
            cell(&pass["state"]),
            cell(&pass["keys"]),
            bytes(&pass["bytes"]),
            cell(&pass["foreign_keys"]),
            bytes(&pass["foreign_bytes"]),
        ]);
        for (kind, numbers) in pass["found"].as_object().into_iter().flatten() {
            has_findings = true;
            let dismissed = cell(&numbers["dismissed"]);
            let row = [backend.clone(), kind.clone(), cell(&numbers["total"]), bytes(&numbers["bytes"]), dismissed];
            found.row(row.to_vec());
        }
        notes.push_str(&remarks(pass));
    }
    let found = if has_findings { format!("\n{}", found.render()) } else { "\nnothing found\n".to_owned() };
    format!("{}{found}{notes}", table.render())
}

/// Why a pass is held or not valid, and what a dry run found.
fn remarks(pass: &Value) -> String {
    let mut text = String::new();
    let backend = cell(&pass["backend"]);
    for (field, what) in [("held", "held until it is approved"), ("reason", "reason")] {
        if pass[field].is_string() {
            writeln!(text, "{backend}: {what}: {}", cell(&pass[field])).expect("writing to a string cannot fail");
        }
    }
    for found in pass["findings"].as_array().into_iter().flatten() {
        let [kind, key, target] = ["kind", "physical_key", "target"].map(|field| cell(&found[field]));
        let size = bytes(&found["size_bytes"]);
        writeln!(text, "{backend}: {kind} {key} {target} {size}").expect("writing to a string cannot fail");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::render;
    use serde_json::json;

    #[test]
    fn passes_are_listed_with_their_findings_and_reasons() {
        let found = json!({"stray": {"total": 3, "bytes": 2048, "dismissed": 1}});
        let shown = json!([{"kind": "stray", "physical_key": "b/k~1", "target": "", "size_bytes": 5}]);
        let pass = json!({"backend": "disk", "state": "dry_run", "keys": 12, "bytes": 4096, "foreign_keys": 7,
            "foreign_bytes": 9, "found": found, "held": "3 of 12 keys would be deleted", "reason": null,
            "findings": shown});
        let text = render(&json!({"passes": [pass]}));
        for part in ["disk", "dry_run", "12", "4.0 KiB", "stray", "2.0 KiB", "3 of 12 keys would be deleted", "b/k~1"] {
            assert!(text.contains(part), "{part} not in\n{text}");
        }
        let clean = json!({"backend": "disk", "state": "done", "keys": 1, "bytes": 1, "foreign_keys": 0,
            "foreign_bytes": 0, "found": {}});
        assert!(render(&json!({"passes": [clean]})).contains("nothing found"));
    }
}
