//! `s3o lifecycle`.

use std::fmt::Write as _;

use serde_json::Value;

use super::connection::AdminConnection;
use super::table::{Table, bytes, cell};
use crate::cli::CommandFailure;

/// Prints what the rules in force would delete.
pub fn preview(connection: &AdminConnection, json: bool) -> Result<(), CommandFailure> {
    let preview = connection.get(&["lifecycle", "preview"])?;
    if json {
        println!("{preview}");
    } else {
        print!("{}", render(&preview));
    }
    Ok(())
}

fn rows(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn render(preview: &Value) -> String {
    let mut table = Table::new(&["BUCKET", "PREFIX", "SOURCE", "RULE", "OBJECTS", "BYTES", "UPLOADS"]);
    let mut samples = String::new();
    for item in rows(&preview["items"]) {
        let words = ["bucket", "prefix", "source", "rule"].map(|field| cell(&item[field]));
        table.row([words.to_vec(), numbers(item)].concat());
        for sample in rows(&item["samples"]) {
            let (key, written) = (cell(&sample["key"]), cell(&sample["last_modified"]));
            let size = bytes(&sample["size_bytes"]);
            writeln!(samples, "{}: {}/{key}, {size}, {written}", cell(&item["rule"]), cell(&item["bucket"]))
                .expect("writing to a string cannot fail");
        }
    }
    let total = &preview["total"];
    table.row([vec!["total".to_owned(), String::new(), String::new(), String::new()], numbers(total)].concat());
    let omitted = match preview["left_out"].as_u64() {
        Some(rules) if rules > 0 => format!("{rules} more rules are included in the total\n"),
        Some(_) | None => String::new(),
    };
    format!("{}{omitted}{samples}", table.render())
}

fn numbers(of: &Value) -> Vec<String> {
    vec![cell(&of["count"]), bytes(&of["bytes"]), cell(&of["uploads"])]
}

#[cfg(test)]
mod tests {
    use super::render;
    use serde_json::json;

    #[test]
    fn preview_lists_rules_samples_and_total() {
        let text = render(&json!({
            "items": [{"bucket": "photos", "prefix": "tmp/", "source": "configuration", "rule": "lifecycle.rules[0]",
                "count": 12, "bytes": 2048, "uploads": 3,
                "samples": [{"key": "tmp/a", "size_bytes": 5, "last_modified": "2026-01-01T00:00:00Z"}]}],
            "left_out": 2,
            "total": {"count": 12, "bytes": 2048, "uploads": 3},
        }));
        for part in ["photos", "tmp/", "2.0 KiB", "total", "2 more rules", "photos/tmp/a, 5 B, 2026-01-01T00:00:00Z"] {
            assert!(text.contains(part), "{part} not in\n{text}");
        }
    }
}
