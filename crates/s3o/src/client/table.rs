//! Text tables with columns as wide as their cells and right-aligned numbers.

use serde_json::Value;

const EMPTY: &str = "-";

/// A heading and rows with the same number of cells.
pub struct Table {
    heading: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table with these column titles.
    pub fn new(heading: &[&'static str]) -> Self {
        Self { heading: heading.to_vec(), rows: Vec::new() }
    }

    /// Adds a row with one cell per column.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The table as text; every line ends with a line feed.
    pub fn render(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
            cells.chain([self.heading[column].len()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.heading.len()).map(width).collect();
        let heading = self.heading.iter().map(|&word| word.to_owned()).collect();
        std::iter::once(&heading).chain(&self.rows).map(|row| line(row, &widths)).collect()
    }
}

fn line(row: &[String], widths: &[usize]) -> String {
    // Timestamps also start with digits, but contain a colon.
    let is_number = |cell: &str| cell.starts_with(|first: char| first.is_ascii_digit()) && !cell.contains(':');
    let pad = |(cell, &width): (&String, &usize)| {
        if is_number(cell) { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
    };
    let cells: Vec<String> = row.iter().zip(widths).map(pad).collect();
    format!("{}\n", cells.join("  ").trim_end())
}

/// A JSON value as a cell; `-` if it is null or empty.
pub fn cell(value: &Value) -> String {
    match value {
        Value::Null => EMPTY.to_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::String(text) if text.is_empty() => EMPTY.to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// A number of bytes in the largest binary unit of which it has at least one, rounded down to a tenth.
pub fn bytes(value: &Value) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let Some(bytes) = value.as_u64() else { return cell(value) };
    let power = usize::try_from(bytes.checked_ilog2().unwrap_or(0) / 10).unwrap_or(0);
    if power == 0 {
        return format!("{bytes} B");
    }
    let tenths = (u128::from(bytes) * 10) >> (10 * power);
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[power])
}

/// Counts of items by outcome.
pub fn items(value: &Value) -> String {
    let Some(items) = value.as_object().filter(|items| !items.is_empty()) else { return EMPTY.to_owned() };
    items.iter().map(|(outcome, count)| format!("{outcome} {count}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::{Table, bytes, items};
    use serde_json::json;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(&["NAME", "USED"]);
        table.row(vec!["disk".into(), "5 B".into()]);
        table.row(vec!["elsewhere".into(), "1.5 KiB".into()]);
        assert_eq!(table.render(), "NAME       USED\ndisk           5 B\nelsewhere  1.5 KiB\n");
    }

    #[test]
    fn bytes_are_shown_in_binary_units() {
        for (value, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (10 << 30, "10.0 GiB"),
            (u64::MAX, "15.9 EiB"),
        ] {
            assert_eq!(bytes(&json!(value)), text);
        }
        assert_eq!(bytes(&json!(null)), "-");
    }

    #[test]
    fn items_are_listed_by_outcome() {
        assert_eq!(items(&json!({"retry": 1, "success": 2})), "retry 1, success 2");
        assert_eq!(items(&json!({})), "-");
    }
}
