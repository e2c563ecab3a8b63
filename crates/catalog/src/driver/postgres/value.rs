//! Conversion of values to and from PostgreSQL, by the types of the prepared statement.

use std::error::Error as StdError;

use bytes::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use crate::unit::Value;

impl ToSql for Value {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Text(text) => text.as_str().to_sql(kind, out),
            Self::Int(number) => match *kind {
                Type::INT4 => i32::try_from(*number)?.to_sql(kind, out),
                Type::INT2 => i16::try_from(*number)?.to_sql(kind, out),
                _ => number.to_sql(kind, out),
            },
        }
    }

    fn accepts(kind: &Type) -> bool {
        matches!(*kind, Type::INT8 | Type::INT4 | Type::INT2 | Type::TEXT | Type::VARCHAR | Type::UNKNOWN)
    }

    to_sql_checked!();
}

/// The values of a row. Every column that the catalog's statements select is a number or text.
pub(super) fn values(row: &tokio_postgres::Row) -> Result<Vec<Value>, tokio_postgres::Error> {
    (0..row.len()).map(|column| value(row, column)).collect()
}

fn value(row: &tokio_postgres::Row, column: usize) -> Result<Value, tokio_postgres::Error> {
    match *row.columns()[column].type_() {
        Type::INT8 => row.try_get::<_, Option<i64>>(column).map(Value::from),
        Type::INT4 => row.try_get::<_, Option<i32>>(column).map(Value::from),
        _ => row.try_get::<_, Option<String>>(column).map(Value::from),
    }
}
