//! `s3o workers`.

use serde_json::Value;

use super::connection::Connection;
use super::table::{Table, cell, items};
use crate::cli::Failure;

/// Shows every worker.
pub fn list(connection: &Connection, json: bool) -> Result<(), Failure> {
    let list = connection.get(&["workers"])?;
    if json {
        println!("{list}");
    } else {
        print!("{}", render(list["items"].as_array().into_iter().flatten()));
    }
    Ok(())
}

/// Workers as a table.
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

/// Runs a worker; a run that failed is a failure of the command.
pub fn run(connection: &Connection, name: &str, json: bool) -> Result<(), Failure> {
    let report = connection.post(&["workers", name, "run"])?;
    let outcome = report["outcome"].as_str().unwrap_or_default();
    if json {
        println!("{report}");
    } else {
        println!("{name}: {outcome}, items: {}", items(&report["items"]));
    }
    match outcome {
        "error" | "panicked" => Err(Failure::of(name, cell(&report["error"]))),
        _ => Ok(()),
    }
}

/// Pauses or resumes a worker.
pub fn steer(connection: &Connection, name: &str, verb: &str, json: bool) -> Result<(), Failure> {
    let answer = connection.post(&["workers", name, verb])?;
    if json {
        println!("{answer}");
    } else {
        println!("{name}: {verb}d");
    }
    Ok(())
}
