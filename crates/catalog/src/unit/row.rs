//! Rows of an answer, read by the names of their columns.

use std::sync::Arc;

use s3o_model::clock::Timestamp;

use super::Value;
use crate::error::Error;

/// Column names of a statement's answer. A driver builds them once per statement, and all rows share them.
#[derive(Debug, PartialEq, Eq)]
pub struct Columns {
    /// The statement, for errors.
    pub sql: &'static str,
    /// In the order of the values.
    pub names: Vec<String>,
}

/// One row of an answer. Columns are read by the names that the statement gives them.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    columns: Arc<Columns>,
    /// In the order of the statement's columns.
    pub values: Vec<Value>,
}

impl Row {
    /// A row whose values are in the order of `columns`.
    #[must_use]
    pub fn new(columns: Arc<Columns>, values: Vec<Value>) -> Self {
        Self { columns, values }
    }

    /// A column of any type. Fails as `Internal` if the statement has no column of that name.
    pub fn value(&self, column: &str) -> Result<&Value, Error> {
        let position = self.columns.names.iter().position(|name| name == column);
        let value = position.and_then(|position| self.values.get(position));
        value.ok_or_else(|| Error::Internal(format!("no column {column} in the answer of {}", self.columns.sql)))
    }

    /// A number that is not NULL.
    pub fn int(&self, column: &str) -> Result<i64, Error> {
        self.opt_int(column)?.ok_or_else(|| Error::Corrupt(format!("column {column} is null")))
    }

    /// A number that is neither NULL nor negative.
    pub fn size(&self, column: &str) -> Result<u64, Error> {
        u64::try_from(self.int(column)?).map_err(|_| Error::Corrupt(format!("column {column} is negative")))
    }

    /// A number; `None` for NULL.
    pub fn opt_int(&self, column: &str) -> Result<Option<i64>, Error> {
        match self.value(column)? {
            Value::Null => Ok(None),
            Value::Int(number) => Ok(Some(*number)),
            Value::Text(_) => Err(Error::Corrupt(format!("column {column} is text"))),
        }
    }

    /// A time that is not NULL.
    pub fn time(&self, column: &str) -> Result<Timestamp, Error> {
        self.int(column).map(Timestamp::from_millis)
    }

    /// A time; `None` for NULL.
    pub fn opt_time(&self, column: &str) -> Result<Option<Timestamp>, Error> {
        Ok(self.opt_int(column)?.map(Timestamp::from_millis))
    }

    /// Text that is not NULL.
    pub fn text(&self, column: &str) -> Result<&str, Error> {
        self.opt_text(column)?.ok_or_else(|| Error::Corrupt(format!("column {column} is null")))
    }

    /// Text; `None` for NULL.
    pub fn opt_text(&self, column: &str) -> Result<Option<&str>, Error> {
        match self.value(column)? {
            Value::Null => Ok(None),
            Value::Text(text) => Ok(Some(text)),
            Value::Int(_) => Err(Error::Corrupt(format!("column {column} is a number"))),
        }
    }

    /// Text that is not NULL, as an owned value.
    pub fn string(&self, column: &str) -> Result<String, Error> {
        self.text(column).map(str::to_owned)
    }

    /// Text as an owned value; `None` for NULL.
    pub fn opt_string(&self, column: &str) -> Result<Option<String>, Error> {
        Ok(self.opt_text(column)?.map(str::to_owned))
    }

    /// Text that is parsed as a name, an ID or a digest.
    pub fn parse<T: std::str::FromStr>(&self, column: &str) -> Result<T, Error> {
        let text = self.text(column)?;
        text.parse().map_err(|_| Error::Corrupt(format!("column {column} holds {text:?}")))
    }

    /// Text that holds JSON.
    pub fn json<T: serde::de::DeserializeOwned>(&self, column: &str) -> Result<T, Error> {
        serde_json::from_str(self.text(column)?).map_err(|error| Error::Corrupt(error.to_string()))
    }

    /// Text that holds JSON; `None` for NULL.
    pub fn opt_json<T: serde::de::DeserializeOwned>(&self, column: &str) -> Result<Option<T>, Error> {
        let text = self.opt_text(column)?;
        text.map(serde_json::from_str).transpose().map_err(|error| Error::Corrupt(error.to_string()))
    }
}
