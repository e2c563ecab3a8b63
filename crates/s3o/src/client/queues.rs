//! `s3o cleanup` and `s3o dlq`.

use serde_json::Value;

use super::arguments::{DeadLetterFilter, ListOptions};
use super::connection::AdminConnection;
use super::table::{Table, bytes, cell};
use crate::cli::CommandFailure;

/// Prints a page of the cleanup queue.
pub fn cleanups(connection: &AdminConnection, options: &ListOptions, json: bool) -> Result<(), CommandFailure> {
    let page = connection.get_where(&["cleanup-queue"], &options.query())?;
    let columns = [("DUE", "due"), ("CLAIMED BY", "claimed_by")];
    show(&page, &columns, json);
    Ok(())
}

/// Prints a page of the dead letters.
pub fn dead_letters(connection: &AdminConnection, options: &ListOptions, json: bool) -> Result<(), CommandFailure> {
    let page = connection.get_where(&["dlq"], &options.query())?;
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

/// The columns that both lists have, with `columns` before the long ones.
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

/// Returns dead letters to the cleanup queue.
pub fn retry(connection: &AdminConnection, which: &DeadLetterFilter, json: bool) -> Result<(), CommandFailure> {
    change(connection, which, ("retry", "retried"), &[], json)
}

/// Deletes dead letters whose bytes are gone; with `force`, also the others.
pub fn discard(
    connection: &AdminConnection,
    which: &DeadLetterFilter,
    force: bool,
    json: bool,
) -> Result<(), CommandFailure> {
    let query: &[(&str, &str)] = if force { &[("force", "true")] } else { &[] };
    change(connection, which, ("discard", "discarded"), query, json)
}

fn change(
    connection: &AdminConnection,
    which: &DeadLetterFilter,
    (verb, done): (&str, &str),
    query: &[(&str, &str)],
    json: bool,
) -> Result<(), CommandFailure> {
    if which.ids.is_empty() {
        let mut query = query.to_vec();
        query.extend(which.query());
        let answer = connection.post_where(&["dlq", verb], &query)?;
        return print_counts(&answer, done, json);
    }
    let mut failed = Vec::new();
    for id in &which.ids {
        // An ID that fails does not stop the others.
        match connection.post_where(&["dlq", id, verb], query) {
            Ok(answer) if json => println!("{answer}"),
            Ok(_) => println!("{id}: {done}"),
            Err(failure) => failed.push(failure.to_string()),
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(CommandFailure::Failed(failed.join("\n"))) }
}

/// Prints how many were changed; the command fails if some were refused.
fn print_counts(answer: &Value, done: &str, json: bool) -> Result<(), CommandFailure> {
    if json {
        println!("{answer}");
    } else {
        println!("{} {done}", cell(&answer[done]));
    }
    match answer["refused"].as_u64().unwrap_or(0) {
        0 => Ok(()),
        refused => Err(CommandFailure::Failed(format!(
            "{refused} refused: their bytes exist or may exist; retry them, or discard them with --force"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::render;
    use serde_json::json;

    #[test]
    fn dead_letters_are_listed_with_all_fields() {
        let page = json!({"items": [{"id": 7, "backend": "disk", "reason": "delete", "size_bytes": 2048, "attempts": 10,
            "physical_key": "b/k~1", "last_error": "403 AccessDenied", "dead_since": "2026-01-01T00:00:00Z"}],
            "next": "7"});
        let text = render(&page, &[("DEAD SINCE", "dead_since")]);
        for part in ["ID", "7", "disk", "2.0 KiB", "2026-01-01T00:00:00Z", "b/k~1", "403 AccessDenied", "--after 7"] {
            assert!(text.contains(part), "{part} not in\n{text}");
        }
    }
}
