//! `s3o cleanup` and `s3o dlq`.

use serde_json::Value;

use super::connection::Connection;
use super::table::{Table, bytes, cell};
use super::{Listing, Which};
use crate::cli::Failure;

/// Shows a page of the cleanup queue.
pub fn cleanups(connection: &Connection, listing: &Listing, json: bool) -> Result<(), Failure> {
    let page = connection.get_where(&["cleanup-queue"], &listing.query())?;
    let columns = [("DUE", "due"), ("CLAIMED BY", "claimed_by")];
    show(&page, &columns, json);
    Ok(())
}

/// Shows a page of the dead letters.
pub fn dead_letters(connection: &Connection, listing: &Listing, json: bool) -> Result<(), Failure> {
    let page = connection.get_where(&["dlq"], &listing.query())?;
    show(&page, &[("DEAD SINCE", "dead_since")], json);
    Ok(())
}

fn show(page: &Value, columns: &[(&'static str, &str)], json: bool) {
    if json {
        println!("{page}");
    } else {
        print!("{}", render(page, columns));
    }
}

/// What queue and dead letters have in common, these columns, and what is long.
fn render(page: &Value, columns: &[(&'static str, &str)]) -> String {
    let mut heading = vec!["ID", "BACKEND", "REASON", "SIZE", "ATTEMPTS"];
    heading.extend(columns.iter().map(|(title, _)| *title));
    heading.extend(["PHYSICAL KEY", "LAST ERROR"]);
    let mut table = Table::new(&heading);
    for item in page["items"].as_array().into_iter().flatten() {
        let mut row: Vec<String> = ["id", "backend", "reason"].map(|field| cell(&item[field])).to_vec();
        row.extend([bytes(&item["size_bytes"]), cell(&item["attempts"])]);
        row.extend(columns.iter().map(|(_, field)| cell(&item[*field])));
        row.extend(["physical_key", "last_error"].map(|field| cell(&item[field])));
        table.row(row);
    }
    let more = page["next"].as_str().map(|next| format!("more: --after {next}\n"));
    format!("{}{}", table.render(), more.unwrap_or_default())
}

/// Sends dead letters back to the queue.
pub fn retry(connection: &Connection, which: &Which, json: bool) -> Result<(), Failure> {
    dispose(connection, which, ("retry", "retried"), &[], json)
}

/// Discards dead letters.
pub fn discard(connection: &Connection, which: &Which, force: bool, json: bool) -> Result<(), Failure> {
    let query: &[(&str, &str)] = if force { &[("force", "true")] } else { &[] };
    dispose(connection, which, ("discard", "discarded"), query, json)
}

fn dispose(
    connection: &Connection,
    which: &Which,
    (verb, done): (&str, &str),
    query: &[(&str, &str)],
    json: bool,
) -> Result<(), Failure> {
    if which.ids.is_empty() {
        let mut query = query.to_vec();
        query.extend(which.query());
        let answer = connection.post_where(&["dlq", verb], &query)?;
        return told(&answer, done, json);
    }
    let mut failed = Vec::new();
    for id in &which.ids {
        // One that is not there keeps no other from being disposed of.
        match connection.post_where(&["dlq", id, verb], query) {
            Ok(answer) if json => println!("{answer}"),
            Ok(_) => println!("{id}: {done}"),
            Err(failure) => failed.push(failure.to_string()),
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(Failure::Failed(failed.join("\n"))) }
}

/// What became of many; those that were refused make the command fail.
fn told(answer: &Value, done: &str, json: bool) -> Result<(), Failure> {
    if json {
        println!("{answer}");
    } else {
        println!("{} {done}", cell(&answer[done]));
    }
    match answer["refused"].as_u64().unwrap_or(0) {
        0 => Ok(()),
        refused => Err(Failure::Failed(format!("{refused} refused: their bytes are there, or not proven gone"))),
    }
}

#[cfg(test)]
mod tests {
    use super::render;
    use serde_json::json;

    #[test]
    fn dead_letters_are_shown_for_people() {
        let page = json!({"items": [{"id": 7, "backend": "disk", "reason": "delete", "size_bytes": 2048, "attempts": 10,
            "physical_key": "b/k~1", "last_error": "403 AccessDenied", "dead_since": "2026-01-01T00:00:00Z"}], "next": "7"});
        let text = render(&page, &[("DEAD SINCE", "dead_since")]);
        for part in ["ID", "7", "disk", "2.0 KiB", "2026-01-01T00:00:00Z", "b/k~1", "403 AccessDenied", "--after 7"] {
            assert!(text.contains(part), "{part} not in\n{text}");
        }
    }
}
