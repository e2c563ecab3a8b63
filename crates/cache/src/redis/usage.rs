//! Usage totals of all processes, shared through Redis between two records in the catalog.
//!
//! One hash for each month has a field for each process and backend. Redis may lose them at any time: the caller merges
//! what it reads with what it knows already.

use std::time::Duration;

use redis::Pipeline;
use s3o_model::usage::{Month, UsageRecord, UsageTotals};

use super::connection::RedisLink;
use super::{InvalidRedisUrl, TIMED_OUT, is_refusal, tls};
use crate::tier::TierError;

/// Timeout of one exchange, which is made every second.
const EXCHANGE_MAX: Duration = Duration::from_millis(500);
/// Time to live of a month without changes.
const TTL: Duration = Duration::from_hours(40 * 24);

/// Name and value of a field, which need not be text.
type Field = (Vec<u8>, Vec<u8>);

/// Writes the totals of this process and reads those of the others.
pub struct RedisUsage {
    link: RedisLink,
    prefix: String,
}

impl RedisUsage {
    /// Usage of a cluster. [`RedisUsage::stay_reachable`] connects it.
    pub fn new(url: &str, cluster: &str) -> Result<Self, InvalidRedisUrl> {
        Ok(Self { link: RedisLink::new(tls::client(url)?), prefix: format!("s3o:{cluster}:usage:") })
    }

    /// Keeps the connection open; it does not return.
    pub async fn stay_reachable(&self) {
        self.link.stay_connected().await;
    }

    /// Writes these totals and reads the totals of all processes in these months, in one round trip. Values that s3o
    /// did not write are ignored.
    pub async fn exchange(&self, own: &[UsageRecord], months: &[Month]) -> Result<Vec<UsageRecord>, TierError> {
        let mut connection = self.link.connection().ok_or(TierError::Skipped)?;
        let pipeline = self.pipeline(own, months);
        let query = pipeline.query_async::<Vec<Vec<Field>>>(&mut connection.writes);
        let why = match tokio::time::timeout(EXCHANGE_MAX, query).await {
            Ok(Ok(hashes)) => {
                let hashes = months.iter().zip(&hashes);
                return Ok(hashes.flat_map(|(month, fields)| records(*month, fields)).collect());
            }
            // A full Redis refuses writes, but it answers.
            Ok(Err(error)) if is_refusal(&error) => return Err(TierError::Away(error.to_string())),
            Ok(Err(error)) => error.to_string(),
            Err(_) => TIMED_OUT.to_owned(),
        };
        self.link.disconnect(&connection, &why);
        Err(TierError::Away(why))
    }

    fn pipeline(&self, own: &[UsageRecord], months: &[Month]) -> Pipeline {
        let mut pipeline = Pipeline::new();
        for record in own {
            let UsageRecord { backend, month, instance, totals } = record;
            let UsageTotals { requests, egress_bytes, ingress_bytes } = totals;
            let value = format!("{requests} {egress_bytes} {ingress_bytes}");
            pipeline.cmd("HSET").arg(self.key(*month)).arg(format!("{instance}:{backend}")).arg(value).ignore();
        }
        for month in months {
            pipeline.cmd("EXPIRE").arg(self.key(*month)).arg(TTL.as_secs()).ignore();
        }
        for month in months {
            pipeline.cmd("HGETALL").arg(self.key(*month));
        }
        pipeline
    }

    fn key(&self, month: Month) -> String {
        format!("{}{month}", self.prefix)
    }
}

fn records(month: Month, fields: &[Field]) -> impl Iterator<Item = UsageRecord> {
    fields
        .iter()
        .filter_map(move |(field, value)| record(month, str::from_utf8(field).ok()?, str::from_utf8(value).ok()?))
}

/// Parses a field of a hash.
fn record(month: Month, field: &str, value: &str) -> Option<UsageRecord> {
    let (instance, backend) = field.split_once(':')?;
    let mut numbers = value.split(' ').map(|number| number.parse::<i64>().ok().and_then(|n| u64::try_from(n).ok()));
    let (requests, egress_bytes, ingress_bytes) = (numbers.next()??, numbers.next()??, numbers.next()??);
    let totals = UsageTotals { requests, egress_bytes, ingress_bytes };
    Some(UsageRecord { backend: backend.parse().ok()?, month, instance: instance.parse().ok()?, totals })
}

#[cfg(test)]
mod tests;
