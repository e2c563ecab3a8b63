//! Log lines on standard error. `S3O_LOG` or `--log` sets the level at the start; the admin API changes it later.

use std::borrow::Cow;
use std::io::{self, Write};

use clap::ValueEnum;
use s3o_model::escape::must_be_escaped;
use s3o_server::admin::{InvalidLevel, LogLevel};
use tracing_subscriber::filter::FilterFn;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, fmt, reload};

const DEFAULT: &str = "info";
/// This library logs whole requests, and for a wrong signature the expected one. No level shows its lines; the audit
/// log has refused requests.
const HIDDEN_CRATE: &str = "s3s";
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Plain text, one line per event.
    Text,
    /// One JSON object per line.
    Json,
}

/// Starts logging; an invalid level is logged and replaced by the default.
pub fn start(format: Format, level: Option<&str>) -> LogLevel {
    let requested = level.map_or(DEFAULT, str::trim);
    let (level, initial) = match filter(requested) {
        Ok(filter) => (requested, filter),
        Err(_) => (DEFAULT, EnvFilter::new(format!("{HIDDEN_CRATE}=off,{DEFAULT}"))),
    };
    let (reloadable, handle) = reload::Layer::new(initial);
    let lines = fmt::layer().with_writer(move || EscapingWriter { format, to: io::stderr() }).with_ansi(false);
    let lines = match format {
        Format::Text => lines.boxed(),
        Format::Json => lines.json().flatten_event(true).boxed(),
    };
    let lines = lines.with_filter(FilterFn::new(|metadata| !is_hidden(metadata.target())));
    tracing_subscriber::registry().with(reloadable).with(lines).init();
    if level != requested {
        tracing::warn!(requested, level, "invalid log level in --log or S3O_LOG, using default");
    }
    LogLevel::new(level, move |level| handle.reload(filter(level)?).map_err(|_| InvalidLevel(level.to_owned())))
}

/// True for modules whose lines no level shows.
fn is_hidden(module: &str) -> bool {
    module.split("::").next() == Some(HIDDEN_CRATE)
}

/// Escapes control and bidirectional characters in log lines: clients choose keys, paths and access key IDs, and such
/// characters could forge lines or change what a terminal shows. The subscriber writes one whole line per call.
struct EscapingWriter<W> {
    format: Format,
    to: W,
}

impl<W: Write> Write for EscapingWriter<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        self.to.write_all(escaped(&text, self.format).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

fn escaped(line: &str, format: Format) -> Cow<'_, str> {
    let (content, end) = line.strip_suffix('\n').map_or((line, ""), |content| (content, "\n"));
    if !content.chars().any(must_be_escaped) {
        return Cow::Borrowed(line);
    }
    let mut safe = String::with_capacity(line.len() + 16);
    for character in content.chars() {
        match format {
            _ if !must_be_escaped(character) => safe.push(character),
            Format::Text => safe.extend(character.escape_default()),
            Format::Json => safe.push_str(&json_escape(character)),
        }
    }
    safe.push_str(end);
    Cow::Owned(safe)
}

/// All characters to escape are in the basic multilingual plane, so four digits are enough.
fn json_escape(character: char) -> String {
    format!("\\u{:04x}", u32::from(character))
}

/// Parses a level, or a list of levels by module.
fn filter(level: &str) -> Result<EnvFilter, InvalidLevel> {
    let is_level = |word: &str| LEVELS.contains(&word.to_ascii_lowercase().as_str());
    // EnvFilter would accept any word as the name of a module to log in full.
    let is_valid = |part: &&str| match part.split_once('=') {
        Some((module, level)) => !module.is_empty() && !is_hidden(module) && is_level(level),
        None => is_level(part),
    };
    let invalid = || InvalidLevel(level.to_owned());
    let parts: Vec<&str> = level.split(',').map(str::trim).collect();
    if !parts.iter().all(is_valid) {
        return Err(invalid());
    }
    EnvFilter::try_new(format!("{HIDDEN_CRATE}=off,{}", parts.join(","))).map_err(|_| invalid())
}

#[cfg(test)]
mod tests {
    use super::{Format, HIDDEN_CRATE, escaped, filter, is_hidden};

    #[test]
    fn control_and_bidirectional_characters_are_escaped() {
        let line = "WARN key=\"a\u{1b}[2J\u{202e}b\" \u{fc}\nforged\n";
        assert_eq!(escaped(line, Format::Text), "WARN key=\"a\\u{1b}[2J\\u{202e}b\" \u{fc}\\nforged\n");
        let line = "{\"key\":\"a\u{9b}\u{2066}b\"}\n";
        let json = escaped(line, Format::Json);
        assert_eq!(json, "{\"key\":\"a\\u009b\\u2066b\"}\n");
        let read: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(read["key"], "a\u{9b}\u{2066}b");
        assert_eq!(escaped("plain line\n", Format::Text), "plain line\n");
    }

    #[test]
    fn unknown_levels_are_rejected() {
        for level in ["debug", "OFF", "info,s3o_workers=debug", "warn, s3o_engine=trace"] {
            assert!(filter(level).is_ok(), "{level}");
        }
        for level in ["", "loud", "debug,", "s3o_engine", "=debug", "s3o_engine=loud", "{}"] {
            assert!(filter(level).is_err(), "{level}");
        }
    }

    #[test]
    fn modules_that_log_signatures_cannot_be_enabled() {
        let below = format!("{HIDDEN_CRATE}::ops");
        for level in [format!("{HIDDEN_CRATE}=debug"), format!("info,{below}=trace")] {
            assert!(filter(&level).is_err(), "{level}");
        }
        assert!(is_hidden(HIDDEN_CRATE) && is_hidden(&below));
        assert!(!is_hidden("s3s_like") && !is_hidden("s3o_server::s3"));
    }
}
