//! `s3o findings`.

use serde_json::Value;

use super::connection::AdminConnection;
use super::table::{Table, bytes, cell};
use crate::cli::CommandFailure;

/// Prints a page of the findings.
pub fn list(connection: &AdminConnection, query: &[(&str, &str)], json: bool) -> Result<(), CommandFailure> {
    let page = connection.get_where(&["findings"], query)?;
    if json {
        println!("{page}");
    } else {
        print!("{}", render(&page));
    }
    Ok(())
}

/// Approves or dismisses findings, one by one; the first that is refused ends the command.
pub fn decide(connection: &AdminConnection, decision: &str, ids: &[String], json: bool) -> Result<(), CommandFailure> {
    for id in ids {
        let answer = connection.post(&["findings", id.as_str(), decision])?;
        if json {
            println!("{answer}");
        } else {
            println!("finding {id}: {decision}");
        }
    }
    Ok(())
}

fn render(page: &Value) -> String {
    const COLUMNS: [&str; 9] =
        ["ID", "KIND", "BACKEND", "SIZE", "CREATED", "PASSES", "PHYSICAL KEY", "TARGET", "DETAIL"];
    let mut table = Table::new(&COLUMNS);
    for item in page["items"].as_array().into_iter().flatten() {
        let mut row = ["id", "kind", "backend"].map(|field| cell(&item[field])).to_vec();
        row.push(bytes(&item["size_bytes"]));
        row.extend(["created_at", "passes", "physical_key", "target", "detail"].map(|field| cell(&item[field])));
        table.row(row);
    }
    let more = page["next"].as_str().map(|next| format!("more: --after {next}\n"));
    format!("{}{}", table.render(), more.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::render;
    use serde_json::json;

    #[test]
    fn findings_are_listed_with_all_fields() {
        let page = json!({"items": [{"id": 7, "kind": "written_off", "backend": "disk", "size_bytes": 2048,
            "created_at": "2026-01-01T00:00:00Z", "physical_key": "b/k~1", "target": "version:9",
            "passes": 2, "detail": "still there"}], "next": "7"});
        let text = render(&page);
        for part in [
            "7",
            "written_off",
            "disk",
            "2.0 KiB",
            "2026-01-01T00:00:00Z",
            "b/k~1",
            "version:9",
            "still there",
            "--after 7",
        ] {
            assert!(text.contains(part), "{part} not in\n{text}");
        }
    }
}
