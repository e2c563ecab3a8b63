//! All errors of a configuration.

use std::fmt;

/// Length of the shortest value of a variable that is not shown in messages.
const SECRET_BYTES_MIN: usize = 6;

/// Errors of a configuration, each with the path of its setting; displayed one per line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Faults(Vec<(String, String)>);

impl Faults {
    pub fn one(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self(vec![(path.into(), message.into())])
    }

    /// Adds an error; `path` may be empty.
    pub fn add(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.0.push((path.into(), message.into()));
    }

    /// Shows `${NAME}` instead of the value of a variable, which may be a secret. Shorter values are left alone: they
    /// are no secrets and are parts of many words.
    #[must_use]
    pub fn without_values(mut self, variables: &[(String, String)]) -> Self {
        for (name, value) in variables.iter().filter(|(_, value)| value.len() >= SECRET_BYTES_MIN) {
            let shown = format!("${{{name}}}");
            for (_, message) in &mut self.0 {
                *message = message.replace(&value.escape_debug().to_string(), &shown).replace(value, &shown);
            }
        }
        self
    }

    /// True if the configuration is valid.
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
