//! `s3o rebalance`.

use serde_json::Value;

use super::connection::AdminConnection;
use super::table::{Table, bytes, cell};
use crate::cli::CommandFailure;

/// Prints the moves that a run would make now.
pub fn plan(connection: &AdminConnection, json: bool) -> Result<(), CommandFailure> {
    let report = connection.post_where(&["workers", "rebalancer", "run"], &[("dry_run", "true")])?;
    if json {
        println!("{report}");
    } else {
        print!("{}", render(&report["plan"]));
    }
    Ok(())
}

fn render(plan: &Value) -> String {
    let moves: Vec<&Value> = plan["moves"].as_array().into_iter().flatten().collect();
    let mut table = Table::new(&["FROM", "TO", "SIZE", "KEY"]);
    for planned in &moves {
        let [from, to, key] = ["from", "to", "physical_key"].map(|field| cell(&planned[field]));
        table.row(vec![from, to, bytes(&planned["size_bytes"]), key]);
    }
    let summary = format!("{} copies, {} would be moved\n", moves.len(), bytes(&plan["bytes"]));
    let rest = if plan["complete"] == true { "" } else { "a run plans further moves when these are done\n" };
    if moves.is_empty() { format!("nothing to move\n{rest}") } else { format!("{}{summary}{rest}", table.render()) }
}

#[cfg(test)]
mod tests {
    use super::render;
    use serde_json::json;

    #[test]
    fn planned_moves_are_listed_with_their_total() {
        let planned = json!({"content": "c", "physical_key": "photos/a~1", "size_bytes": 2048, "from": "a", "to": "b"});
        let text = render(&json!({"moves": [planned], "bytes": 2048, "complete": true}));
        assert_eq!(text, "FROM  TO  SIZE     KEY\na     b   2.0 KiB  photos/a~1\n1 copies, 2.0 KiB would be moved\n");
        let none = render(&json!({"moves": [], "bytes": 0, "complete": true}));
        assert_eq!(none, "nothing to move\n");
    }
}
