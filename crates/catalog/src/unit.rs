//! Units of work: lists of statements with guards, run atomically by a driver.
//!
//! No closure and no handle crosses an await, so no caller can wait for a backend inside a transaction. SQL is written
//! once, in a common dialect: `$1..$n` are parameters, `:now` is the catalog's clock, and `/*lock*/`, `/*share*/`,
//! `/*skip*/` become row locks on PostgreSQL. Expressions that are read have an `AS` alias.

mod row;

pub use row::{Columns, Row};

use crate::error::Verdict;

/// A parameter or a column of a result row.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// SQL NULL.
    Null,
    /// INTEGER in SQLite, BIGINT in PostgreSQL.
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

/// Converts its arguments to the parameter list of a statement.
#[macro_export]
macro_rules! params {
    ($($value:expr),* $(,)?) => { vec![$($crate::unit::Value::from($value)),*] };
}

/// Number of rows that a statement must change or return; otherwise the unit fails and changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guard {
    /// The exact number.
    pub rows: usize,
    /// Reported to the caller if the number differs.
    pub verdict: Verdict,
}

/// One statement of a unit.
#[derive(Debug, Clone)]
pub struct Statement {
    /// Text in the common dialect; drivers cache its translation by the text.
    pub sql: &'static str,
    /// Values of `$1..$n`. Trailing ones that the SQL does not mention are ignored.
    pub params: Vec<Value>,
    /// `None` allows any number of rows.
    pub guard: Option<Guard>,
    /// True if the statement only locks rows; SQLite, which has one writer at a time, skips it.
    pub only_locks: bool,
}

impl Statement {
    /// A statement that may change or return any number of rows.
    #[must_use]
    pub fn new(sql: &'static str, params: Vec<Value>) -> Self {
        Self { sql, params, guard: None, only_locks: false }
    }
}

/// The order in which every unit locks rows; rows of one rank are locked in one statement, by their key. Two units
/// that lock in different orders deadlock. Rows that one of these locks protects need no rank: parts (by their
/// upload), locations (by their content). Inserted content has none: no other unit sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LockRank {
    Bucket,
    Upload,
    Object,
    Intent,
    Backend,
    BackendKeys,
    Content,
    Cleanup,
    DeadLetter,
    Quota,
}

/// The statements of one transaction.
#[derive(Debug, Clone)]
pub struct Unit {
    /// Appears in logs and traces.
    pub name: &'static str,
    /// Run in this order; each sees the changes of the earlier ones.
    pub statements: Vec<Statement>,
    /// Indexes of the statements whose answers name the contents that the unit condemned.
    pub(crate) condemning: Vec<usize>,
    /// The highest rank that a statement has locked.
    locked: LockRank,
    /// True if the next statement was given a rank.
    ranked: bool,
}

impl Unit {
    /// A unit without statements.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        let (statements, condemning) = (Vec::new(), Vec::new());
        Self { name, statements, condemning, locked: LockRank::Bucket, ranked: false }
    }

    /// Gives the next statement its rank in the lock order. Debug builds panic if the ranks of a unit do not ascend,
    /// and if a statement that asks for row locks has no rank.
    pub(crate) fn at(&mut self, rank: LockRank) -> &mut Self {
        debug_assert!(self.locked <= rank, "{} locks {rank:?} after {:?}", self.name, self.locked);
        (self.locked, self.ranked) = (rank, true);
        self
    }

    fn push(&mut self, statement: Statement) -> usize {
        let locks = statement.sql.contains("/*lock*/") || statement.sql.contains("/*share*/");
        debug_assert!(!locks || self.ranked, "{} locks without a rank: {}", self.name, statement.sql);
        self.ranked = false;
        self.statements.push(statement);
        self.statements.len() - 1
    }

    /// Adds a statement and returns the index of its answer.
    pub fn run(&mut self, sql: &'static str, params: Vec<Value>) -> usize {
        self.push(Statement::new(sql, params))
    }

    /// Adds a statement that only locks rows for the later statements. Its answer may be empty.
    pub(crate) fn lock(&mut self, rank: LockRank, sql: &'static str, params: Vec<Value>) {
        self.at(rank).push(Statement { only_locks: true, ..Statement::new(sql, params) });
    }

    /// Adds a statement that must change or return exactly one row.
    pub fn one(&mut self, sql: &'static str, params: Vec<Value>, verdict: Verdict) -> usize {
        self.exactly(1, sql, params, verdict)
    }

    /// Adds a statement that must change or return exactly `rows` rows.
    pub fn exactly(&mut self, rows: usize, sql: &'static str, params: Vec<Value>, verdict: Verdict) -> usize {
        let guard = Some(Guard { rows, verdict });
        self.push(Statement { guard, ..Statement::new(sql, params) })
    }
}

/// Result of one statement.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answer {
    /// The rows that it returned.
    pub rows: Vec<Row>,
    /// Number of rows that it changed or returned.
    pub changed: usize,
}

/// Serialises to the JSON text that a column or a list parameter holds.
pub fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("records of the model always serialise")
}

#[cfg(test)]
mod tests {
    use super::{LockRank, Unit};

    const LOCK: &str = "SELECT id FROM contents WHERE id = $1 ORDER BY id /*lock*/";

    #[test]
    fn ascending_and_equal_lock_ranks_are_accepted() {
        let mut unit = Unit::new("ascending");
        for rank in [LockRank::Bucket, LockRank::Content, LockRank::Content, LockRank::Quota] {
            unit.lock(rank, LOCK, vec![]);
        }
        assert_eq!(unit.statements.len(), 4);
    }

    #[test]
    #[should_panic(expected = "descending locks Content after Quota")]
    fn descending_lock_ranks_panic() {
        let mut unit = Unit::new("descending");
        unit.lock(LockRank::Quota, LOCK, vec![]);
        unit.lock(LockRank::Content, LOCK, vec![]);
    }

    #[test]
    #[should_panic(expected = "unranked locks without a rank")]
    fn a_locking_statement_without_a_rank_panics() {
        Unit::new("unranked").run(LOCK, vec![]);
    }
}
