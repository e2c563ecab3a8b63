//! Turns the counts and latencies of a cell into the numbers of a row.

use std::time::Duration;

use serde::Serialize;

use super::plan::Cell;
use super::usage::Usage;

/// Counts of one cell or connection.
#[derive(Debug, Default)]
pub struct LoadStats {
    /// Latency of each successful request.
    pub latencies: Vec<Duration>,
    /// Body bytes, sent and received.
    pub body_bytes: u64,
    pub errors: u64,
    /// Error of the first failed request.
    pub first_error: Option<String>,
}

impl LoadStats {
    /// Counts a successful request.
    pub fn succeeded(&mut self, latency: Duration, body_bytes: u64) {
        self.latencies.push(latency);
        self.body_bytes += body_bytes;
    }

    /// Counts a failed request.
    pub fn failed(&mut self, why: String) {
        self.errors += 1;
        self.first_error.get_or_insert(why);
    }

    /// Adds the counts of another connection.
    pub fn merge(&mut self, other: Self) {
        let Self { latencies, body_bytes, errors, first_error } = other;
        self.latencies.extend(latencies);
        self.body_bytes += body_bytes;
        self.errors += errors;
        self.first_error = self.first_error.take().or(first_error);
    }
}

/// Resource usage of a process before and after a cell.
#[derive(Debug, Clone, Copy)]
pub struct UsageInterval {
    pub before: Usage,
    pub after: Usage,
}

/// What the catalog did during a cell.
#[derive(Debug, Clone, Copy)]
pub struct CatalogWork {
    pub units: u64,
    pub commits: u64,
}

/// Time and resources that a cell took.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    /// Wall-clock time.
    pub elapsed: Duration,
    /// Usage of this process.
    pub client: Option<UsageInterval>,
    /// Usage of the server, if its process is known.
    pub server: Option<UsageInterval>,
    /// Units and transactions of the catalog, if the server has metrics.
    pub work: Option<CatalogWork>,
}

/// The numbers of a row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    #[serde(flatten)]
    pub cell: Cell,
    pub operations: u64,
    pub errors: u64,
    /// Error of the first failed request.
    pub first_error: Option<String>,
    pub seconds: f64,
    /// Successful requests per second.
    pub ops_per_second: f64,
    /// Millions of body bytes per second, for workloads with bodies.
    pub megabytes_per_second: Option<f64>,
    /// Median latency of successful requests.
    pub p50_ms: f64,
    /// 99th percentile of their latency.
    pub p99_ms: f64,
    /// CPU time of the server for each successful request.
    pub server_cpu_us_per_op: Option<f64>,
    /// CPU time of the client for each successful request.
    pub client_cpu_us_per_op: Option<f64>,
    /// Peak memory of the server since its start.
    pub server_peak_bytes: Option<u64>,
    /// Units of the catalog for each successful request, including those of workers.
    pub units_per_op: Option<f64>,
    /// Catalog transactions for each successful request, including those of workers.
    pub commits_per_op: Option<f64>,
}

impl Figures {
    /// Computes the numbers of a cell.
    pub fn new(cell: Cell, mut stats: LoadStats, cost: &Cost) -> Self {
        stats.latencies.sort_unstable();
        let operations = stats.latencies.len() as u64;
        let seconds = cost.elapsed.as_secs_f64();
        let milliseconds = |rank| percentile(&stats.latencies, rank).as_secs_f64() * 1e3;
        let each = |used: Option<UsageInterval>| {
            let cpu = used.map(|used| used.after.cpu.saturating_sub(used.before.cpu))?;
            (operations > 0).then(|| cpu.as_secs_f64() * 1e6 / float(operations))
        };
        Self {
            cell,
            operations,
            errors: stats.errors,
            seconds,
            ops_per_second: per(float(operations), seconds),
            megabytes_per_second: cell.workload.moves_bodies().then(|| per(float(stats.body_bytes) / 1e6, seconds)),
            p50_ms: milliseconds(50),
            p99_ms: milliseconds(99),
            server_cpu_us_per_op: each(cost.server),
            client_cpu_us_per_op: each(cost.client),
            server_peak_bytes: cost.server.map(|used| used.after.peak_bytes),
            units_per_op: cost.work.map(|work| per(float(work.units), float(operations))),
            commits_per_op: cost.work.map(|work| per(float(work.commits), float(operations))),
            first_error: stats.first_error,
        }
    }
}

/// Figures of the first endpoint divided by those of the second.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ratios {
    #[serde(flatten)]
    pub cell: Cell,
    /// Above one is better.
    pub ops_per_second: f64,
    /// Below one is better.
    pub p50: f64,
    /// Below one is better.
    pub p99: f64,
    /// Below one is better; `None` unless both processes are known.
    pub server_cpu: Option<f64>,
}

impl Ratios {
    /// Divides the figures of the first endpoint by those of the second.
    pub fn new(first: &Figures, second: &Figures) -> Self {
        Self {
            cell: first.cell,
            ops_per_second: per(first.ops_per_second, second.ops_per_second),
            p50: per(first.p50_ms, second.p50_ms),
            p99: per(first.p99_ms, second.p99_ms),
            server_cpu: first.server_cpu_us_per_op.zip(second.server_cpu_us_per_op).map(|(a, b)| per(a, b)),
        }
    }
}

/// The quotient; 0 if the divisor is 0.
pub fn per(amount: f64, of: f64) -> f64 {
    if of > 0.0 { amount / of } else { 0.0 }
}

/// The smallest latency that `per_cent` of the requests do not exceed.
fn percentile(sorted: &[Duration], per_cent: usize) -> Duration {
    let rank = (sorted.len() * per_cent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

/// Converts a count; exact below 2^53.
pub fn float(count: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "what is counted here stays far below 2^53")]
    let number = count as f64;
    number
}

#[cfg(test)]
mod tests {
    use super::{CatalogWork, Cost, Figures, LoadStats, Ratios, UsageInterval, percentile};
    use crate::plan::{Cell, Workload};
    use crate::usage::Usage;
    use std::time::Duration;

    fn figures(workload: Workload, latencies_ms: &[u64]) -> Figures {
        let mut stats = LoadStats::default();
        for latency_ms in latencies_ms {
            stats.succeeded(Duration::from_millis(*latency_ms), 1_000_000);
        }
        let usage = |cpu_ms| Usage { cpu: Duration::from_millis(cpu_ms), peak_bytes: 7, own_bytes: 5 };
        let server = Some(UsageInterval { before: usage(10), after: usage(30) });
        let work = Some(CatalogWork { units: 8, commits: 3 });
        let cost = Cost { elapsed: Duration::from_secs(2), client: None, server, work };
        Figures::new(Cell { workload, size_bytes: 1_000_000, concurrency: 1 }, stats, &cost)
    }

    #[test]
    fn percentiles_are_measured_values() {
        let sorted: Vec<_> = (1..=200).map(Duration::from_millis).collect();
        assert_eq!(percentile(&sorted, 50), Duration::from_millis(100));
        assert_eq!(percentile(&sorted, 99), Duration::from_millis(198));
        assert_eq!(percentile(&sorted[..1], 99), Duration::from_millis(1));
        assert_eq!(percentile(&sorted[..1], 50), Duration::from_millis(1));
        assert_eq!(percentile(&[], 50), Duration::ZERO);
    }

    #[test]
    fn rates_are_per_second_and_costs_per_operation() {
        let figures = figures(Workload::Put, &[4, 1, 3, 2]);
        assert_eq!(figures.operations, 4);
        assert!((figures.ops_per_second - 2.0).abs() < 1e-9);
        assert!(figures.megabytes_per_second.is_some_and(|rate| (rate - 2.0).abs() < 1e-9));
        assert!((figures.p50_ms - 2.0).abs() < 1e-9);
        assert!(figures.units_per_op.is_some_and(|units| (units - 2.0).abs() < 1e-9));
        assert!(figures.commits_per_op.is_some_and(|commits| (commits - 0.75).abs() < 1e-9));
        assert!(figures.server_cpu_us_per_op.is_some_and(|cpu| (cpu - 5_000.0).abs() < 1e-9));
        assert_eq!((figures.client_cpu_us_per_op, figures.server_peak_bytes), (None, Some(7)));
    }

    #[test]
    fn a_cell_without_a_success_divides_by_nothing() {
        let figures = figures(Workload::Head, &[]);
        assert!(figures.ops_per_second.abs() < 1e-9);
        assert_eq!((figures.server_cpu_us_per_op, figures.megabytes_per_second), (None, None));
    }

    #[test]
    fn a_ratio_is_the_first_beside_the_second() {
        let ratios = Ratios::new(&figures(Workload::Get, &[2, 2, 2, 2]), &figures(Workload::Get, &[4, 4]));
        assert!((ratios.ops_per_second - 2.0).abs() < 1e-9 && (ratios.p50 - 0.5).abs() < 1e-9);
        assert!(ratios.server_cpu.is_some_and(|cpu| (cpu - 0.5).abs() < 1e-9));
    }

    #[test]
    fn merged_stats_keep_the_first_error() {
        let (mut sum, mut other) = (LoadStats::default(), LoadStats::default());
        sum.failed("one".to_owned());
        other.failed("two".to_owned());
        other.succeeded(Duration::from_millis(1), 3);
        sum.merge(other);
        assert_eq!((sum.errors, sum.first_error.as_deref(), sum.body_bytes), (2, Some("one"), 3));
        assert_eq!(sum.latencies.len(), 1);
    }
}
