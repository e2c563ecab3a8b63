//! Reads the newest lines of an audit file: at most [`BYTES_MAX`] bytes, whatever the file's size.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The most bytes that one request reads.
const BYTES_MAX: u64 = 64 << 20;
/// The bytes of one read call.
const BLOCK_BYTES: u64 = 256 << 10;

/// A text that is not an RFC 3339 time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("since: {0:?} is not a time such as 2026-01-31T12:00:00Z")]
pub struct InvalidSince(String);

/// Selects lines.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    /// The event; a `*` at its end matches any text. None selects every event.
    pub event: Option<String>,
    /// The earliest time.
    since: Option<OffsetDateTime>,
    /// The most lines, counted from the newest.
    pub limit: usize,
}

impl AuditFilter {
    /// The newest lines, at most this many.
    #[must_use]
    pub fn newest(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Selects only lines from this RFC 3339 time on.
    pub fn since(mut self, time: &str) -> Result<Self, InvalidSince> {
        let parsed = OffsetDateTime::parse(time, &Rfc3339).map_err(|_| InvalidSince(time.to_owned()))?;
        self.since = Some(parsed);
        Ok(self)
    }

    fn matches_event(&self, line: &Value) -> bool {
        let event = line["event"].as_str().unwrap_or_default();
        self.event.as_deref().is_none_or(|pattern| match pattern.strip_suffix('*') {
            Some(start) => event.starts_with(start),
            None => event == pattern,
        })
    }

    /// Lines are in the order of time, except that concurrent events may be swapped.
    fn is_too_early(&self, line: &Value) -> bool {
        let Some(since) = self.since else { return false };
        let time = line["time"].as_str().and_then(|text| OffsetDateTime::parse(text, &Rfc3339).ok());
        time.is_some_and(|time| time < since)
    }
}

/// The newest lines of a file that match the filter, newest last. Lines that are not JSON are skipped.
pub(super) fn read(path: &Path, filter: &AuditFilter) -> io::Result<Vec<Value>> {
    let mut file = File::open(path)?;
    let mut end = file.seek(SeekFrom::End(0))?;
    let stop = end.saturating_sub(BYTES_MAX);
    let mut found = Vec::new();
    // The start of a line whose end was read in the previous round.
    let mut rest = Vec::new();
    while end > stop && found.len() < filter.limit {
        let start = end.saturating_sub(BLOCK_BYTES).max(stop);
        let mut block = vec![0; usize::try_from(end - start).unwrap_or_default()];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut block)?;
        block.append(&mut rest);
        let whole =
            if start == 0 { 0 } else { block.iter().position(|byte| *byte == b'\n').map_or(block.len(), |at| at + 1) };
        if collect(&block[whole..], filter, &mut found) {
            break;
        }
        block.truncate(whole);
        rest = block;
        end = start;
    }
    found.reverse();
    Ok(found)
}

/// Collects lines from the last to the first; returns true if no earlier line can match.
fn collect(block: &[u8], filter: &AuditFilter, found: &mut Vec<Value>) -> bool {
    for line in block.rsplit(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        if found.len() >= filter.limit {
            return true;
        }
        let Ok(line) = serde_json::from_slice::<Value>(line) else { continue };
        if filter.is_too_early(&line) {
            return true;
        }
        if filter.matches_event(&line) {
            found.push(line);
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::{AuditFilter, BLOCK_BYTES, read};
    use serde_json::json;

    fn file(lines: impl Iterator<Item = String>) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), lines.map(|line| line + "\n").collect::<String>()).unwrap();
        file
    }

    fn numbered(count: usize) -> tempfile::NamedTempFile {
        file((0..count).map(|n| {
            let event = if n % 2 == 0 { "s3.PutObject" } else { "worker.run" };
            let time = format!("2026-01-01T00:{:02}:{:02}Z", n / 60 % 60, n % 60);
            json!({"time": time, "event": event, "n": n, "pad": "x".repeat(100)}).to_string()
        }))
    }

    fn numbers(file: &tempfile::NamedTempFile, filter: &AuditFilter) -> Vec<u64> {
        read(file.path(), filter).unwrap().iter().map(|line| line["n"].as_u64().unwrap()).collect()
    }

    #[test]
    fn newest_line_comes_last() {
        let file = numbered(10);
        assert_eq!(numbers(&file, &AuditFilter::newest(3)), [7, 8, 9]);
        assert_eq!(numbers(&file, &AuditFilter::newest(100)).len(), 10);
        assert!(numbers(&file, &AuditFilter::newest(0)).is_empty());
    }

    #[test]
    fn lines_across_blocks_are_read_whole() {
        let count = usize::try_from(BLOCK_BYTES).unwrap() * 3 / 100;
        let found = numbers(&numbered(count), &AuditFilter::newest(usize::MAX));
        assert!(found.into_iter().eq(0..count as u64));
    }

    #[test]
    fn line_longer_than_a_block_is_read() {
        let long = "x".repeat(usize::try_from(BLOCK_BYTES).unwrap() * 3);
        let file =
            file([json!({"n": 1}), json!({"n": 2, "long": long}), json!({"n": 3})].iter().map(ToString::to_string));
        assert_eq!(numbers(&file, &AuditFilter::newest(10)), [1, 2, 3]);
    }

    #[test]
    fn event_filter_matches_exactly_or_by_prefix() {
        let file = numbered(6);
        let by = |event: &str| AuditFilter { event: Some(event.into()), ..AuditFilter::newest(2) };
        assert_eq!(numbers(&file, &by("s3.PutObject")), [2, 4]);
        assert_eq!(numbers(&file, &by("worker.*")), [3, 5]);
        assert_eq!(numbers(&file, &by("*")), [4, 5]);
        assert!(numbers(&file, &by("s3")).is_empty());
    }

    #[test]
    fn since_excludes_earlier_lines() {
        let file = numbered(10);
        let since = AuditFilter::newest(100).since("2026-01-01T00:00:07Z").unwrap();
        assert_eq!(numbers(&file, &since), [7, 8, 9]);
        assert!(AuditFilter::newest(1).since("yesterday").is_err());
    }

    #[test]
    fn truncated_lines_are_skipped() {
        let file = file(["{\"n\": 1}", "{\"n\": 2, \"half", "", "{\"n\": 3}"].iter().map(ToString::to_string));
        assert_eq!(numbers(&file, &AuditFilter::newest(10)), [1, 3]);
    }
}
