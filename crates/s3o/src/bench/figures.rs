//! What a cell showed: counts and latencies become the numbers of a row.

use std::time::Duration;

use serde::Serialize;

use super::plan::Cell;

use super::usage::Usage;

/// What was counted while a cell ran.
#[derive(Debug, Default)]
pub struct Tally {
    /// How long each request that succeeded took.
    pub latencies: Vec<Duration>,
    /// Bytes of bodies, sent and received.
    pub body_bytes: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Why the first one failed.
    pub first_error: Option<String>,
}

impl Tally {
    /// Notes a request that succeeded.
    pub fn succeeded(&mut self, latency: Duration, body_bytes: u64) {
        self.latencies.push(latency);
        self.body_bytes += body_bytes;
    }

    /// Notes a request that failed.
    pub fn failed(&mut self, why: String) {
        self.errors += 1;
        self.first_error.get_or_insert(why);
    }

    /// Adds what another connection counted.
    pub fn merge(&mut self, other: Self) {
        let Self { latencies, body_bytes, errors, first_error } = other;
        self.latencies.extend(latencies);
        self.body_bytes += body_bytes;
        self.errors += errors;
        self.first_error = self.first_error.take().or(first_error);
    }
}

/// What a process used before and after.
#[derive(Debug, Clone, Copy)]
pub struct Used {
    /// Before the cell ran.
    pub before: Usage,
    /// After it.
    pub after: Usage,
}

/// What a cell cost, on both sides.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    /// By the clock.
    pub elapsed: Duration,
    /// By the client.
    pub client: Option<Used>,
    /// By the server, where its process is known.
    pub server: Option<Used>,
    /// How many transactions the catalog committed, where the server tells.
    pub commits: Option<u64>,
}

/// The numbers of a row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// What was measured.
    #[serde(flatten)]
    pub cell: Cell,
    /// Requests that succeeded.
    pub operations: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Why the first of them failed.
    pub first_error: Option<String>,
    /// How long it took.
    pub seconds: f64,
    /// Successes a second.
    pub ops_per_second: f64,
    /// Millions of bytes of bodies a second, where bodies move.
    pub megabytes_per_second: Option<f64>,
    /// Half of the successes were at least as fast.
    pub p50_ms: f64,
    /// All but a hundredth of them were at least as fast.
    pub p99_ms: f64,
    /// Processor time of the server for each success.
    pub server_cpu_us_per_op: Option<f64>,
    /// Processor time of the client for each success.
    pub client_cpu_us_per_op: Option<f64>,
    /// The most memory the server held since it began.
    pub server_peak_bytes: Option<u64>,
    /// Catalog transactions for each success, those of workers included.
    pub commits_per_op: Option<f64>,
}

impl Figures {
    /// The numbers that follow from what was counted.
    pub fn new(cell: Cell, mut tally: Tally, cost: &Cost) -> Self {
        tally.latencies.sort_unstable();
        let operations = tally.latencies.len() as u64;
        let seconds = cost.elapsed.as_secs_f64();
        let milliseconds = |rank| percentile(&tally.latencies, rank).as_secs_f64() * 1e3;
        let each = |used: Option<Used>| {
            let cpu = used.map(|used| used.after.cpu.saturating_sub(used.before.cpu))?;
            (operations > 0).then(|| cpu.as_secs_f64() * 1e6 / float(operations))
        };
        Self {
            cell,
            operations,
            errors: tally.errors,
            seconds,
            ops_per_second: per(float(operations), seconds),
            megabytes_per_second: cell.workload.moves_bodies().then(|| per(float(tally.body_bytes) / 1e6, seconds)),
            p50_ms: milliseconds(50),
            p99_ms: milliseconds(99),
            server_cpu_us_per_op: each(cost.server),
            client_cpu_us_per_op: each(cost.client),
            server_peak_bytes: cost.server.map(|used| used.after.peak_bytes),
            commits_per_op: cost.commits.map(|commits| per(float(commits), float(operations))),
            first_error: tally.first_error,
        }
    }
}

/// How one endpoint did beside the other: the first divided by the second.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ratios {
    /// What was measured.
    #[serde(flatten)]
    pub cell: Cell,
    /// Above one is better.
    pub ops_per_second: f64,
    /// Below one is better.
    pub p50: f64,
    /// Below one is better.
    pub p99: f64,
    /// Below one is better; known where both processes are.
    pub server_cpu: Option<f64>,
}

impl Ratios {
    /// The first beside the second.
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

/// A quotient; nothing measured is nothing shown.
pub fn per(amount: f64, of: f64) -> f64 {
    if of > 0.0 { amount / of } else { 0.0 }
}

/// The smallest latency that so many per cent do not exceed.
fn percentile(sorted: &[Duration], per_cent: usize) -> Duration {
    let rank = (sorted.len() * per_cent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

/// A count as a number that can be divided.
pub fn float(count: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "what is counted here stays far below 2^53")]
    let number = count as f64;
    number
}

#[cfg(test)]
mod tests {
    use super::{Cost, Figures, Ratios, Tally, Used, percentile};
    use crate::bench::plan::{Cell, Workload};
    use crate::bench::usage::Usage;
    use std::time::Duration;

    fn figures(workload: Workload, latencies_ms: &[u64]) -> Figures {
        let mut tally = Tally::default();
        for latency_ms in latencies_ms {
            tally.succeeded(Duration::from_millis(*latency_ms), 1_000_000);
        }
        let usage = |cpu_ms| Usage { cpu: Duration::from_millis(cpu_ms), peak_bytes: 7, own_bytes: 5 };
        let server = Some(Used { before: usage(10), after: usage(30) });
        let cost = Cost { elapsed: Duration::from_secs(2), client: None, server, commits: Some(3) };
        Figures::new(Cell { workload, size_bytes: 1_000_000, concurrency: 1 }, tally, &cost)
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
    fn the_first_error_is_kept_when_tallies_merge() {
        let (mut sum, mut other) = (Tally::default(), Tally::default());
        sum.failed("one".to_owned());
        other.failed("two".to_owned());
        other.succeeded(Duration::from_millis(1), 3);
        sum.merge(other);
        assert_eq!((sum.errors, sum.first_error.as_deref(), sum.body_bytes), (2, Some("one"), 3));
        assert_eq!(sum.latencies.len(), 1);
    }
}
