//! The table for terminals: one line for each cell, and the ratios at the end.

use super::figures::{Figures, Ratios, float};

const MEBIBYTE: f64 = 1_048_576.0;

/// The heading of the measured lines.
pub fn heading() -> String {
    line([
        "server",
        "workload",
        "size",
        "conc",
        "ops",
        "ops/s",
        "MB/s",
        "p50 ms",
        "p99 ms",
        "errors",
        "cpu us/op",
        "client us/op",
        "peak MiB",
        "units/op",
        "commits/op",
    ])
}

/// The line of one cell on one server.
pub fn row(server: &str, figures: &Figures) -> String {
    let optional = |number: Option<f64>| number.map_or_else(|| "-".to_owned(), shown);
    let each = |number: Option<f64>| number.map_or_else(|| "-".to_owned(), |number| format!("{number:.2}"));
    let peak = figures.server_peak_bytes.map(|bytes| float(bytes) / MEBIBYTE);
    let cells = [
        server.to_owned(),
        figures.cell.workload.label().to_owned(),
        figures.cell.size_label(),
        figures.cell.concurrency.to_string(),
        figures.operations.to_string(),
        shown(figures.ops_per_second),
        optional(figures.megabytes_per_second),
        format!("{:.2}", figures.p50_ms),
        format!("{:.2}", figures.p99_ms),
        figures.errors.to_string(),
        optional(figures.server_cpu_us_per_op),
        optional(figures.client_cpu_us_per_op),
        optional(peak),
        each(figures.units_per_op),
        each(figures.commits_per_op),
    ];
    line(cells.each_ref().map(String::as_str))
}

/// The table of ratios, the first server divided by the second.
pub fn ratios(ratios: &[Ratios]) -> String {
    let heading = ratio_line(["workload", "size", "conc", "ops/s", "p50", "p99", "cpu/op"]);
    let rows = ratios.iter().map(|ratios| {
        let cells = [
            ratios.cell.workload.label().to_owned(),
            ratios.cell.size_label(),
            ratios.cell.concurrency.to_string(),
            format!("{:.2}", ratios.ops_per_second),
            format!("{:.2}", ratios.p50),
            format!("{:.2}", ratios.p99),
            ratios.server_cpu.map_or_else(|| "-".to_owned(), |cpu| format!("{cpu:.2}")),
        ];
        ratio_line(cells.each_ref().map(String::as_str))
    });
    [heading].into_iter().chain(rows).collect::<Vec<_>>().join("\n")
}

/// One decimal below 100, none above.
pub fn shown(number: f64) -> String {
    if number < 100.0 { format!("{number:.1}") } else { format!("{number:.0}") }
}

fn line(cells: [&str; 15]) -> String {
    const WIDTHS: [usize; 15] = [14, 8, 7, 4, 7, 8, 8, 8, 8, 6, 9, 12, 8, 8, 10];
    aligned(&cells, &WIDTHS, 2)
}

fn ratio_line(cells: [&str; 7]) -> String {
    const WIDTHS: [usize; 7] = [8, 7, 4, 6, 6, 6, 6];
    aligned(&cells, &WIDTHS, 1)
}

/// Aligns the first `names` cells to the left, the others to the right.
fn aligned(cells: &[&str], widths: &[usize], names: usize) -> String {
    let padded = cells.iter().zip(widths).enumerate().map(|(position, (cell, width))| {
        if position < names { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
    });
    padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::{heading, ratios, row};
    use crate::figures::{Figures, Ratios};
    use crate::plan::{Cell, Workload};

    fn figures() -> Figures {
        Figures {
            cell: Cell { workload: Workload::Put, size_bytes: 4096, concurrency: 16 },
            operations: 12_345,
            errors: 3,
            first_error: Some("away".to_owned()),
            seconds: 3.0,
            ops_per_second: 4115.0,
            megabytes_per_second: Some(16.85),
            p50_ms: 3.5,
            p99_ms: 12.25,
            server_cpu_us_per_op: Some(210.4),
            client_cpu_us_per_op: None,
            server_peak_bytes: Some(48 << 20),
            units_per_op: Some(2.0),
            commits_per_op: Some(0.5),
        }
    }

    #[test]
    fn columns_are_aligned_with_the_heading() {
        let (heading, row) = (heading(), row("A", &figures()));
        assert_eq!(heading.len(), row.len());
        let cells: Vec<_> = row.split_whitespace().collect();
        let expected = [
            "A", "PUT", "4KiB", "16", "12345", "4115", "16.9", "3.50", "12.25", "3", "210", "-", "48.0", "2.00", "0.50",
        ];
        assert_eq!(cells, expected);
        for name in ["errors", "p99 ms", "ops/s"] {
            let end = heading.find(name).expect("a column") + name.len();
            assert!(row[..end].ends_with(|last: char| last.is_ascii_digit()), "{name}");
        }
    }

    #[test]
    fn ratios_have_a_line_for_each_cell() {
        let table = ratios(&[Ratios::new(&figures(), &figures())]);
        let cells: Vec<_> = table.lines().nth(1).expect("a line").split_whitespace().collect();
        assert_eq!(cells, ["PUT", "4KiB", "16", "1.00", "1.00", "1.00", "1.00"]);
    }
}
