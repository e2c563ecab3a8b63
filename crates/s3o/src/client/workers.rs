//! `s3o workers`.

use serde_json::Value;

use super::connection::AdminConnection;
use super::table::{Table, cell, items};
use crate::cli::CommandFailure;

/// Lists every worker.
pub fn list(connection: &AdminConnection, json: bool) -> Result<(), CommandFailure> {
    let list = connection.get(&["workers"])?;
    if json {
        println!("{list}");
    } else {
        print!("{}", render(list["items"].as_array().into_iter().flatten()));
    }
    Ok(())
}

/// Workers with their last and next runs, as a table.
pub fn render<'a>(workers: impl Iterator<Item = &'a Value>) -> String {
    let mut table = Table::new(&["WORKER", "PAUSED", "LAST RUN", "OUTCOME", "ITEMS", "NEXT RUN"]);
    for worker in workers {
        let last = &worker["last_run"];
        table.row(vec![
            cell(&worker["name"]),
            cell(&worker["paused"]),
            cell(&last["finished_at"]),
            cell(&last["outcome"]),
            items(&last["items"]),
            cell(&worker["next_due_at"]),
        ]);
    }
    table.render()
}

/// Runs a worker; the command fails if the run failed or panicked.
pub fn run(connection: &AdminConnection, name: &str, json: bool) -> Result<(), CommandFailure> {
    let report = connection.post(&["workers", name, "run"])?;
    let outcome = report["outcome"].as_str().unwrap_or_default();
    if json {
        println!("{report}");
    } else {
        println!("{name}: {outcome}, items: {}", items(&report["items"]));
    }
    match outcome {
        "error" | "panicked" => Err(CommandFailure::of(name, cell(&report["error"]))),
        _ => Ok(()),
    }
}

/// Pauses or resumes a worker; `verb` is `pause` or `resume`.
pub fn set_paused(connection: &AdminConnection, name: &str, verb: &str, json: bool) -> Result<(), CommandFailure> {
    let answer = connection.post(&["workers", name, verb])?;
    if json {
        println!("{answer}");
    } else {
        println!("{name}: {verb}d");
    }
    Ok(())
}
