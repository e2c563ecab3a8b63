//! Units of work: lists of statements with guards, run atomically by a driver.
//!
//! No closure and no handle crosses an await, so nobody can wait for a backend inside a
//! transaction. SQL is written once: `$1..$n` are parameters, `:now` is the catalog's clock, and
//! `/*lock*/`, `/*share*/`, `/*skip*/` become row locks where the database has them.

use crate::error::{Error, Verdict};

/// A value that goes into or comes out of a statement.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Nothing.
    Null,
    /// A number.
    Int(i64),
    /// Text, compared as bytes.
    Text(String),
}

macro_rules! value_from {
    ($($type:ty => |$v:ident| $value:expr),* $(,)?) => {
        $(impl From<$type> for Value { fn from($v: $type) -> Self { $value } })*
    };
}

value_from! {
    i64 => |v| Value::Int(v),
    i32 => |v| Value::Int(i64::from(v)),
    u32 => |v| Value::Int(i64::from(v)),
    // Sizes are bounded by what S3 allows, far below the sign bit.
    u64 => |v| Value::Int(i64::try_from(v).unwrap_or(i64::MAX)),
    usize => |v| Value::Int(i64::try_from(v).unwrap_or(i64::MAX)),
    String => |v| Value::Text(v),
    &str => |v| Value::Text(v.to_owned()),
    &String => |v| Value::Text(v.clone()),
    s3o_model::ids::BucketId => |v| Value::Int(v.0),
    s3o_model::ids::ContentId => |v| Value::Text(v.to_string()),
    s3o_model::ids::IntentId => |v| Value::Text(v.to_string()),
    s3o_model::ids::WriteId => |v| Value::Text(v.to_string()),
    s3o_model::ids::UploadId => |v| Value::Text(v.to_string()),
    s3o_model::ids::VersionId => |v| Value::Text(v.to_string()),
    s3o_model::ids::ClaimToken => |v| Value::Text(v.to_string()),
    s3o_model::ids::InstanceId => |v| Value::Text(v.to_string()),
    &s3o_model::names::BucketName => |v| Value::Text(v.as_str().to_owned()),
    &s3o_model::names::ObjectKey => |v| Value::Text(v.as_str().to_owned()),
    &s3o_model::names::BackendName => |v| Value::Text(v.as_str().to_owned()),
    &s3o_model::etag::ETag => |v| Value::Text(v.as_str().to_owned()),
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// Builds the parameters of a statement.
#[macro_export]
macro_rules! params {
    ($($value:expr),* $(,)?) => { vec![$($crate::unit::Value::from($value)),*] };
}

/// How many rows a statement must touch or return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guard {
    /// Exactly this many.
    pub rows: usize,
    /// What it means if not.
    pub verdict: Verdict,
}

/// One statement of a unit.
#[derive(Debug, Clone)]
pub struct Statement {
    /// The SQL, in the common dialect.
    pub sql: &'static str,
    /// Its parameters; trailing ones that the SQL does not mention are ignored.
    pub params: Vec<Value>,
    /// What must hold.
    pub guard: Option<Guard>,
    /// Whether it is there for its locks alone: a database with one writer at a time does without it.
    pub only_locks: bool,
}

impl Statement {
    /// A statement about which nothing must hold.
    #[must_use]
    pub fn new(sql: &'static str, params: Vec<Value>) -> Self {
        Self { sql, params, guard: None, only_locks: false }
    }
}

/// A whole transaction.
#[derive(Debug, Clone)]
pub struct Unit {
    /// Its name, for logs and traces.
    pub name: &'static str,
    /// Its statements, in order; each sees what the last did.
    pub statements: Vec<Statement>,
    /// Places of the statements whose answers name the contents that the unit condemned.
    pub(crate) condemning: Vec<usize>,
}

impl Unit {
    /// An empty unit.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        Self { name, statements: Vec::new(), condemning: Vec::new() }
    }

    /// Adds a statement; the answer's place in the list is returned.
    pub fn run(&mut self, sql: &'static str, params: Vec<Value>) -> usize {
        self.statements.push(Statement::new(sql, params));
        self.statements.len() - 1
    }

    /// Adds a statement that only locks rows, in order, for those behind it. Its answer may be empty.
    pub fn lock(&mut self, sql: &'static str, params: Vec<Value>) {
        self.statements.push(Statement { only_locks: true, ..Statement::new(sql, params) });
    }

    /// Adds a statement that must touch or return exactly one row.
    pub fn one(&mut self, sql: &'static str, params: Vec<Value>, verdict: Verdict) -> usize {
        self.exactly(1, sql, params, verdict)
    }

    /// Adds a statement that must touch or return exactly this many rows.
    pub fn exactly(&mut self, rows: usize, sql: &'static str, params: Vec<Value>, verdict: Verdict) -> usize {
        let guard = Some(Guard { rows, verdict });
        self.statements.push(Statement { guard, ..Statement::new(sql, params) });
        self.statements.len() - 1
    }
}

/// One row of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Row(pub Vec<Value>);

impl Row {
    fn value(&self, column: usize) -> Result<&Value, Error> {
        self.0.get(column).ok_or_else(|| Error::Internal(format!("no column {column}")))
    }

    /// A number.
    pub fn int(&self, column: usize) -> Result<i64, Error> {
        self.opt_int(column)?.ok_or_else(|| Error::Corrupt(format!("column {column} is null")))
    }

    /// A number that is not negative.
    pub fn size(&self, column: usize) -> Result<u64, Error> {
        u64::try_from(self.int(column)?).map_err(|_| Error::Corrupt(format!("column {column} is negative")))
    }

    /// A number or nothing.
    pub fn opt_int(&self, column: usize) -> Result<Option<i64>, Error> {
        match self.value(column)? {
            Value::Null => Ok(None),
            Value::Int(number) => Ok(Some(*number)),
            Value::Text(_) => Err(Error::Corrupt(format!("column {column} is text"))),
        }
    }

    /// Text.
    pub fn text(&self, column: usize) -> Result<&str, Error> {
        self.opt_text(column)?.ok_or_else(|| Error::Corrupt(format!("column {column} is null")))
    }

    /// Text or nothing.
    pub fn opt_text(&self, column: usize) -> Result<Option<&str>, Error> {
        match self.value(column)? {
            Value::Null => Ok(None),
            Value::Text(text) => Ok(Some(text)),
            Value::Int(_) => Err(Error::Corrupt(format!("column {column} is a number"))),
        }
    }

    /// Text that reads as a name, an identifier or a digest.
    pub fn parse<T: std::str::FromStr>(&self, column: usize) -> Result<T, Error> {
        let text = self.text(column)?;
        text.parse().map_err(|_| Error::Corrupt(format!("column {column} holds {text:?}")))
    }

    /// Text that holds JSON.
    pub fn json<T: serde::de::DeserializeOwned>(&self, column: usize) -> Result<T, Error> {
        serde_json::from_str(self.text(column)?).map_err(|error| Error::Corrupt(error.to_string()))
    }

    /// Text that holds JSON, or nothing.
    pub fn opt_json<T: serde::de::DeserializeOwned>(&self, column: usize) -> Result<Option<T>, Error> {
        let text = self.opt_text(column)?;
        text.map(serde_json::from_str).transpose().map_err(|error| Error::Corrupt(error.to_string()))
    }
}

/// What one statement did.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answer {
    /// The rows it returned.
    pub rows: Vec<Row>,
    /// How many rows it changed, if it returned none.
    pub changed: usize,
}

/// Anything as the JSON text that a column or a list parameter holds.
pub fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("records of the model always serialise")
}
