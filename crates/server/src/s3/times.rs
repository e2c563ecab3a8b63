//! Converts timestamps between the model and the protocol library.

use s3o_model::clock::Timestamp;
use s3s::dto::{Timestamp as S3Timestamp, TimestampFormat};
use time::OffsetDateTime;

pub fn to_s3(moment: Timestamp) -> S3Timestamp {
    let nanos = i128::from(moment.millis()) * 1_000_000;
    OffsetDateTime::from_unix_timestamp_nanos(nanos).unwrap_or(OffsetDateTime::UNIX_EPOCH).into()
}

pub fn from_s3(moment: S3Timestamp) -> Timestamp {
    let moment = OffsetDateTime::from(moment);
    Timestamp::from_millis(i64::try_from(moment.unix_timestamp_nanos() / 1_000_000).unwrap_or(i64::MAX))
}

/// The timestamp in the format of HTTP headers, in whole seconds.
pub fn http_date(moment: Timestamp) -> String {
    let mut text = Vec::new();
    match to_s3(moment).format(TimestampFormat::HttpDate, &mut text) {
        Ok(()) => String::from_utf8(text).unwrap_or_default(),
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::{from_s3, http_date, to_s3};
    use s3o_model::clock::Timestamp;

    #[test]
    fn timestamps_round_trip() {
        let moment = Timestamp::from_millis(1_700_000_000_123);
        assert_eq!(from_s3(to_s3(moment)), moment);
    }

    #[test]
    fn http_dates_have_whole_seconds() {
        assert_eq!(http_date(Timestamp::from_millis(1_500)), "Thu, 01 Jan 1970 00:00:01 GMT");
    }
}
