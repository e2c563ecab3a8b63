//! The cells of the table, in the order in which they run.

use std::time::Duration;

use clap::ValueEnum;
use s3o_model::size::format_exact;
use serde::Serialize;

use crate::{BenchArguments, Error};

/// Limit for the memory of all concurrent bodies together.
const BODIES_BYTES_MAX: u64 = 2 << 30;
/// With more connections, the client would be the bottleneck.
const CONCURRENCY_MAX: usize = 1024;

/// A kind of load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Write new objects
    Put,
    /// Read whole objects
    Get,
    /// Read the metadata of objects
    Head,
    /// List objects in pages of 1000 keys
    List,
    /// Delete single objects
    Delete,
    /// 45 % GET, 30 % HEAD, 15 % PUT, 10 % DELETE
    Mixed,
}

/// One request of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadOperation {
    Put,
    Get,
    Head,
    List,
    Delete,
}

impl Workload {
    /// The name in the table.
    pub fn label(self) -> &'static str {
        match self {
            Self::Put => "PUT",
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::List => "LIST",
            Self::Delete => "DELETE",
            Self::Mixed => "mixed",
        }
    }

    /// The operation of the request with this number.
    pub fn operation(self, number: u64) -> LoadOperation {
        use LoadOperation::{Delete, Get, Head, List, Put};
        const MIXED: [LoadOperation; 20] = [
            Get, Head, Put, Get, Head, Get, Delete, Get, Head, Get, Put, Get, Head, Get, Head, Put, Get, Delete, Head,
            Get,
        ];
        match self {
            Self::Put => Put,
            Self::Get => Get,
            Self::Head => Head,
            Self::List => List,
            Self::Delete => Delete,
            Self::Mixed => MIXED[usize::try_from(number % 20).unwrap_or(0)],
        }
    }

    /// True if it transfers bodies, so that the object size matters.
    pub fn moves_bodies(self) -> bool {
        match self {
            Self::Put | Self::Get | Self::Mixed => true,
            Self::Head | Self::List | Self::Delete => false,
        }
    }

    /// True if it reads objects that must be written before.
    pub fn reads_objects(self) -> bool {
        match self {
            Self::Get | Self::Head | Self::Mixed => true,
            Self::Put | Self::List | Self::Delete => false,
        }
    }
}

/// One cell: a workload with one object size and one number of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Cell {
    pub workload: Workload,
    pub size_bytes: u64,
    /// Number of concurrent requests.
    pub concurrency: usize,
}

impl Cell {
    /// The object size in the table; `-` for listings.
    pub fn size_label(&self) -> String {
        match self.workload {
            Workload::List => "-".to_owned(),
            Workload::Put | Workload::Get | Workload::Head | Workload::Delete | Workload::Mixed => {
                format_exact(self.size_bytes)
            }
        }
    }
}

/// The cells and the limits of each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BenchPlan {
    pub cells: Vec<Cell>,
    /// Duration of each cell.
    pub duration: Duration,
    /// Maximum number of requests of each cell.
    pub operations_max: u64,
}

impl BenchPlan {
    /// Validates the options.
    pub fn new(arguments: &BenchArguments) -> Result<Self, Error> {
        let refused = |why: String| Err(Error::Failed(why));
        let Some(smallest) = arguments.sizes.first().copied() else {
            return refused("--sizes: no size given".to_owned());
        };
        for &concurrency in &arguments.concurrency {
            if !(1..=CONCURRENCY_MAX).contains(&concurrency) {
                return refused(format!("--concurrency: {concurrency} is not allowed, use 1 to {CONCURRENCY_MAX}"));
            }
            for &size_bytes in &arguments.sizes {
                if size_bytes.saturating_mul(concurrency as u64) > BODIES_BYTES_MAX {
                    let (size, most) = (format_exact(size_bytes), format_exact(BODIES_BYTES_MAX));
                    return refused(format!("{concurrency} bodies of {size} need over {most} of memory, use fewer"));
                }
            }
        }
        let mut cells = Vec::new();
        for &workload in &arguments.workloads {
            let sizes = if workload.moves_bodies() { arguments.sizes.as_slice() } else { &[smallest] };
            for &size_bytes in sizes {
                cells.extend(arguments.concurrency.iter().map(|&concurrency| Cell {
                    workload,
                    size_bytes,
                    concurrency,
                }));
            }
        }
        Ok(Self { cells, duration: arguments.duration, operations_max: arguments.max_ops })
    }
}

#[cfg(test)]
mod tests {
    use super::{BenchPlan, LoadOperation, Workload};
    use crate::BenchArguments;
    use clap::Parser;

    #[derive(Parser)]
    struct BenchCli {
        #[command(flatten)]
        bench: BenchArguments,
    }

    fn bench(arguments: &[&str]) -> BenchArguments {
        let keys = ["bench", "--access-key", "a", "--secret-key", "b"];
        BenchCli::try_parse_from(keys.iter().chain(arguments)).expect("valid").bench
    }

    #[test]
    fn only_workloads_with_bodies_run_at_every_size() {
        let arguments = ["--workloads", "put,head", "--sizes", "4KiB,1MiB", "--concurrency", "1,16"];
        let plan = BenchPlan::new(&bench(&arguments)).expect("a plan");
        let cells: Vec<_> =
            plan.cells.iter().map(|cell| (cell.workload.label(), cell.size_label(), cell.concurrency)).collect();
        let expected = [("PUT", "4KiB", 1), ("PUT", "4KiB", 16), ("PUT", "1MiB", 1), ("PUT", "1MiB", 16)];
        let expected = expected.into_iter().chain([("HEAD", "4KiB", 1), ("HEAD", "4KiB", 16)]);
        assert_eq!(cells, expected.map(|(load, size, n)| (load, size.to_owned(), n)).collect::<Vec<_>>());
    }

    #[test]
    fn plan_that_exceeds_limits_is_refused() {
        assert!(BenchPlan::new(&bench(&["--sizes", "1GiB", "--concurrency", "64"])).is_err());
        assert!(BenchPlan::new(&bench(&["--concurrency", "0"])).is_err());
    }

    #[test]
    fn mixed_workload_has_its_shares() {
        let count = |wanted| (0..100).filter(|n| Workload::Mixed.operation(*n) == wanted).count();
        let shares = [LoadOperation::Get, LoadOperation::Head, LoadOperation::Put, LoadOperation::Delete].map(count);
        assert_eq!(shares, [45, 30, 15, 10]);
    }
}
