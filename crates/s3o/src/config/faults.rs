//! What is wrong with a configuration, all of it at once.

use std::fmt;

/// Everything that is wrong with a configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Faults(Vec<(String, String)>);

impl Faults {
    /// A single fault.
    pub fn one(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self(vec![(path.into(), message.into())])
    }

    /// Notes a fault.
    pub fn add(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.0.push((path.into(), message.into()));
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (path, message)) in self.0.iter().enumerate() {
            let line_break = if position == 0 { "" } else { "\n" };
            let separator = if path.is_empty() { "" } else { ": " };
            write!(f, "{line_break}{path}{separator}{message}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}
