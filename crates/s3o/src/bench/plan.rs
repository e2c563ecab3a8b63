//! What is measured: the cells of the table, in the order in which they run.

use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

use crate::cli::{Bench, Failure};
use crate::config::units::shown;

/// Bodies that are on their way at one time are held in memory; together they stay below this.
const BODIES_BYTES_MAX: u64 = 2 << 30;
/// More connections than this measure the client.
const CONCURRENCY_MAX: usize = 1024;

/// A kind of load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// New objects
    Put,
    /// Whole objects
    Get,
    /// Metadata of objects
    Head,
    /// Pages of a listing, 1000 keys each
    List,
    /// Single objects
    Delete,
    /// 45 % GET, 30 % HEAD, 15 % PUT, 10 % DELETE
    Mixed,
}

/// One request of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Write a new object.
    Put,
    /// Read a whole object.
    Get,
    /// Ask for an object's metadata.
    Head,
    /// List one page.
    List,
    /// Delete an object.
    Delete,
}

impl Workload {
    /// How the table calls it.
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

    /// What the request with this number does.
    pub fn operation(self, number: u64) -> Operation {
        use Operation::{Delete, Get, Head, List, Put};
        const MIXED: [Operation; 20] = [
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

    /// Whether it moves bodies, so that the size of objects matters.
    pub fn moves_bodies(self) -> bool {
        match self {
            Self::Put | Self::Get | Self::Mixed => true,
            Self::Head | Self::List | Self::Delete => false,
        }
    }

    /// Whether it reads objects that must be there beforehand.
    pub fn reads_objects(self) -> bool {
        match self {
            Self::Get | Self::Head | Self::Mixed => true,
            Self::Put | Self::List | Self::Delete => false,
        }
    }
}

/// One cell: a load of one size from so many connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// The kind of load.
    pub workload: Workload,
    /// How large its objects are.
    pub size_bytes: u64,
    /// How many requests are under way at one time.
    pub concurrency: usize,
}

impl Cell {
    /// The size of its objects as the table shows it; a listing has none.
    pub fn size_label(&self) -> String {
        match self.workload {
            Workload::List => "-".to_owned(),
            Workload::Put | Workload::Get | Workload::Head | Workload::Delete | Workload::Mixed => {
                shown(self.size_bytes)
            }
        }
    }
}

/// All that is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The cells, in order.
    pub cells: Vec<Cell>,
    /// How long each one runs.
    pub duration: Duration,
    /// How many requests each one makes at most.
    pub operations_max: u64,
}

impl Plan {
    /// The plan that the command line asks for.
    pub fn new(arguments: &Bench) -> Result<Self, Failure> {
        let refused = |why: String| Err(Failure::Failed(why));
        let Some(smallest) = arguments.sizes.first().copied() else { return refused("no sizes".to_owned()) };
        for &concurrency in &arguments.concurrency {
            if !(1..=CONCURRENCY_MAX).contains(&concurrency) {
                return refused(format!("a concurrency of {concurrency} is not in 1..={CONCURRENCY_MAX}"));
            }
            for &size_bytes in &arguments.sizes {
                if size_bytes.saturating_mul(concurrency as u64) > BODIES_BYTES_MAX {
                    let (size, most) = (shown(size_bytes), shown(BODIES_BYTES_MAX));
                    return refused(format!("{concurrency} bodies of {size} at one time are more than {most}"));
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
    use super::{Operation, Plan, Workload};
    use crate::cli::{Bench, Cli, Command};
    use clap::Parser as _;

    fn bench(arguments: &[&str]) -> Bench {
        let keys = ["s3o", "bench", "--access-key", "a", "--secret-key", "b"];
        let cli = Cli::try_parse_from(keys.iter().chain(arguments)).expect("valid");
        let Command::Bench(bench) = cli.command else { panic!("another command") };
        *bench
    }

    #[test]
    fn only_loads_that_move_bodies_run_at_every_size() {
        let arguments = ["--workloads", "put,head", "--sizes", "4KiB,1MiB", "--concurrency", "1,16"];
        let plan = Plan::new(&bench(&arguments)).expect("a plan");
        let cells: Vec<_> =
            plan.cells.iter().map(|cell| (cell.workload.label(), cell.size_label(), cell.concurrency)).collect();
        let expected = [("PUT", "4KiB", 1), ("PUT", "4KiB", 16), ("PUT", "1MiB", 1), ("PUT", "1MiB", 16)];
        let expected = expected.into_iter().chain([("HEAD", "4KiB", 1), ("HEAD", "4KiB", 16)]);
        assert_eq!(cells, expected.map(|(load, size, n)| (load, size.to_owned(), n)).collect::<Vec<_>>());
    }

    #[test]
    fn bodies_that_do_not_fit_in_memory_are_refused() {
        assert!(Plan::new(&bench(&["--sizes", "1GiB", "--concurrency", "64"])).is_err());
        assert!(Plan::new(&bench(&["--concurrency", "0"])).is_err());
    }

    #[test]
    fn a_mixed_load_keeps_its_shares() {
        let count = |wanted| (0..100).filter(|n| Workload::Mixed.operation(*n) == wanted).count();
        let shares = [Operation::Get, Operation::Head, Operation::Put, Operation::Delete].map(count);
        assert_eq!(shares, [45, 30, 15, 10]);
    }
}
