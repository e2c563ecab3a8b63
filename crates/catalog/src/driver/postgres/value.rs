//! Values on their way to and from PostgreSQL, by the type that the statement gives them.

use std::error::Error as StdError;

use bytes::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use crate::unit::{Row, Value};

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

/// A row as the catalog reads it. Columns are numbers or text; the schema and the statements see
/// to that.
pub(super) fn row(row: &tokio_postgres::Row) -> Result<Row, tokio_postgres::Error> {
    (0..row.len()).map(|column| value(row, column)).collect::<Result<_, _>>().map(Row)
}

fn value(row: &tokio_postgres::Row, column: usize) -> Result<Value, tokio_postgres::Error> {
    match *row.columns()[column].type_() {
        Type::INT8 => row.try_get::<_, Option<i64>>(column).map(Value::from),
        Type::INT4 => row.try_get::<_, Option<i32>>(column).map(Value::from),
        _ => row.try_get::<_, Option<String>>(column).map(Value::from),
    }
}
