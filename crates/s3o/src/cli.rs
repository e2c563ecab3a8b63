//! Commands and options of the command line.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use s3o_bench::BenchArguments;

use crate::client::{
    BackendCommand, CatalogCommand, CleanupCommand, DlqCommand, FindingsCommand, LifecycleCommand, RebalanceCommand,
    ReconcileCommand, ReplicateCommand, StatusCommand, VerifyCommand, WorkersCommand,
};
use crate::config::{DATA, Faults};
use crate::logging::Format;

/// One S3 endpoint over many stores.
#[derive(Debug, Parser)]
#[command(name = "s3o", version, about)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve S3; without a configuration file, use SQLite and a folder backend in the data folder
    Serve(Serve),
    /// Write a commented configuration file
    Init(Init),
    /// Check a configuration and report every error with its path
    Validate(Validate),
    /// Create access keys
    Key(KeyCommand),
    /// Show backends, buckets, queues and workers of a running server
    Status(StatusCommand),
    /// Show the workers of a running server, or run, pause or resume one
    Workers(WorkersCommand),
    /// List the cleanup queue of a running server
    Cleanup(CleanupCommand),
    /// List, retry or discard the dead letters of a running server
    Dlq(DlqCommand),
    /// List the conditions of a running server that an operator must resolve, approve or dismiss some
    Findings(FindingsCommand),
    /// Show what the lifecycle rules of a running server would delete
    Lifecycle(LifecycleCommand),
    /// Write the copies that objects of a running server lack, and show the result
    Replicate(ReplicateCommand),
    /// Move copies between the backends of a running server, or show what would be moved
    Rebalance(RebalanceCommand),
    /// Compare the backends of a running server with its catalog: find bytes that no row names, and missing bytes
    Reconcile(ReconcileCommand),
    /// Accept, drain or remove a backend of a running server, or dismiss a recorded mismatch
    Backend(BackendCommand),
    /// Back up, restore or accept the catalog
    Catalog(CatalogCommand),
    /// Check the invariants of a running server; exits with 0 only if all were checked and hold
    Verify(VerifyCommand),
    /// Measure the throughput and latency of an S3 endpoint
    Bench(Box<BenchArguments>),
}

#[derive(Debug, Clone, Args)]
pub struct Serve {
    /// Configuration file [default: ./s3o.yaml, if it exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Data folder: catalog, folder backends, audit file and generated keys, unless their paths are configured
    #[arg(long, value_name = "DIR", default_value = DATA)]
    pub data: PathBuf,
    /// Listen address of the S3 API
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<SocketAddr>,
    /// Listen address of the admin API, metrics and health
    #[arg(long, value_name = "ADDR")]
    pub admin_listen: Option<SocketAddr>,
    /// Log level: off, error, warn, info, debug, trace, or a list such as `info,s3o_engine=debug`
    #[arg(long, value_name = "LEVEL", env = "S3O_LOG")]
    pub log: Option<String>,
    /// Format of log lines
    #[arg(long, value_name = "FORMAT", env = "S3O_LOG_FORMAT", value_enum, default_value = "text")]
    pub log_format: Format,
}

#[derive(Debug, Args)]
pub struct Init {
    /// File to write; an existing file is not overwritten
    #[arg(long, value_name = "FILE", default_value = "s3o.yaml")]
    pub config: PathBuf,
}

#[derive(Debug, Args)]
pub struct KeyCommand {
    #[command(subcommand)]
    pub action: KeyAction,
}

#[derive(Debug, Subcommand)]
pub enum KeyAction {
    /// Print a new key pair for `access_keys` in a configuration; nothing is stored
    New {
        /// Print JSON instead of YAML
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub struct Validate {
    /// Configuration file
    #[arg(long, value_name = "FILE", default_value = "s3o.yaml")]
    pub config: PathBuf,
    /// Also connect to the database, Redis and every backend, without changing anything there
    #[arg(long)]
    pub connect: bool,
}

/// Why a command failed.
#[derive(Debug)]
pub enum CommandFailure {
    /// The configuration has errors.
    Configuration(Faults),
    /// An argument or environment variable is missing or invalid.
    Usage(String),
    /// The command failed while it ran.
    Failed(String),
}

impl CommandFailure {
    /// `Failed` with the message `what: why`.
    pub fn of(what: &str, why: impl fmt::Display) -> Self {
        Self::Failed(format!("{what}: {why}"))
    }

    /// 2 for wrong usage or configuration, 1 for any other failure.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Configuration(_) | Self::Usage(_) => ExitCode::from(2),
            Self::Failed(_) => ExitCode::FAILURE,
        }
    }
}

impl fmt::Display for CommandFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configuration(faults) => write!(f, "the configuration is not valid:\n{faults}"),
            Self::Usage(why) | Self::Failed(why) => f.write_str(why),
        }
    }
}

impl From<s3o_bench::Error> for CommandFailure {
    fn from(error: s3o_bench::Error) -> Self {
        match error {
            s3o_bench::Error::Usage(why) => Self::Usage(why),
            s3o_bench::Error::Failed(why) => Self::Failed(why),
        }
    }
}

impl From<Faults> for CommandFailure {
    fn from(faults: Faults) -> Self {
        Self::Configuration(faults)
    }
}
