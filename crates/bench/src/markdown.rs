//! The table as Markdown.

use super::figures::Figures;
use super::table::shown;

const HEADING: [&str; 8] =
    ["load", "size", "connections", "server", "ops/s", "p50 / p99 ms", "server CPU us/op", "commits/op"];
const ALIGNMENT: &str = "|---|---|---:|---|---:|---:|---:|---:|";

/// One row for each server of each cell.
pub fn table(lines: &[(&str, &Figures)]) -> String {
    let rows = lines.iter().map(|(server, figures)| row(server, figures));
    [line(&HEADING.map(str::to_owned)), ALIGNMENT.to_owned()].into_iter().chain(rows).collect::<Vec<_>>().join("\n")
}

fn row(server: &str, figures: &Figures) -> String {
    let optional = |number: Option<String>| number.unwrap_or_else(|| "-".to_owned());
    line(&[
        figures.cell.workload.label().to_owned(),
        figures.cell.size_label(),
        figures.cell.concurrency.to_string(),
        server.to_owned(),
        shown(figures.ops_per_second),
        format!("{:.2} / {:.2}", figures.p50_ms, figures.p99_ms),
        optional(figures.server_cpu_us_per_op.map(shown)),
        optional(figures.commits_per_op.map(|commits| format!("{commits:.2}"))),
    ])
}

fn line(cells: &[String]) -> String {
    format!("| {} |", cells.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::table;
    use crate::figures::{CatalogWork, Cost, Figures, LoadStats};
    use crate::plan::{Cell, Workload};
    use std::time::Duration;

    #[test]
    fn every_server_has_a_row() {
        let mut stats = LoadStats::default();
        stats.succeeded(Duration::from_millis(2), 4096);
        let work = Some(CatalogWork { units: 2, commits: 2 });
        let cost = Cost { elapsed: Duration::from_secs(1), client: None, server: None, work };
        let cell = Cell { workload: Workload::Put, size_bytes: 4096, concurrency: 16 };
        let figures = Figures::new(cell, stats, &cost);
        let table = table(&[("SQLite", &figures), ("PostgreSQL", &figures)]);
        assert_eq!(table.lines().count(), 4);
        assert!(table.ends_with("| PUT | 4KiB | 16 | PostgreSQL | 1.0 | 2.00 / 2.00 | - | 2.00 |"), "{table}");
    }
}
