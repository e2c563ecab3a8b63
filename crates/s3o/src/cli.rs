//! The command line.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use s3o_backend::s3::Secret;

use crate::bench::plan::Workload;
use crate::client::{
    BackendCommand, CatalogCommand, CleanupCommand, DlqCommand, FindingsCommand, LifecycleCommand, StatusCommand,
    Token, VerifyCommand, WorkersCommand,
};
use crate::config::units;
use crate::config::{DATA, Faults};
use crate::logging::Format;

/// One S3 endpoint over many stores.
#[derive(Debug, Parser)]
#[command(name = "s3o", version, about)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What s3o can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve S3; without a configuration, on SQLite and a folder below the data folder
    Serve(Serve),
    /// Write a commented configuration
    Init(Init),
    /// Check a configuration and show every fault with its path
    Validate(Validate),
    /// Create access keys
    Key(Key),
    /// Show backends, buckets, queues and workers of a running server
    Status(StatusCommand),
    /// Show the workers of a running server, or run, pause or resume one
    Workers(WorkersCommand),
    /// Show the cleanup queue of a running server
    Cleanup(CleanupCommand),
    /// Show, retry or discard the dead letters of a running server
    Dlq(DlqCommand),
    /// List the conditions of a running server that an operator must resolve
    Findings(FindingsCommand),
    /// Show what the lifecycle rules of a running server would remove
    Lifecycle(LifecycleCommand),
    /// Change a backend of a running server
    Backend(BackendCommand),
    /// Copy, restore or accept the catalog
    Catalog(CatalogCommand),
    /// Check the invariants of a running server; ends with 0 only when all of them hold
    Verify(VerifyCommand),
    /// Load an S3 endpoint and print a table
    Bench(Box<Bench>),
}

/// How to serve.
#[derive(Debug, Clone, Args)]
pub struct Serve {
    /// The configuration file [default: ./s3o.yaml, if it exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The data folder: catalog, folder backends, audit file and generated keys, unless the configuration places them
    #[arg(long, value_name = "DIR", default_value = DATA)]
    pub data: PathBuf,
    /// Where the S3 API listens
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<SocketAddr>,
    /// Where the admin API, metrics and health listen
    #[arg(long, value_name = "ADDR")]
    pub admin_listen: Option<SocketAddr>,
    /// What is logged: off, error, warn, info, debug, trace, or a list such as `info,s3o_engine=debug`
    #[arg(long, value_name = "LEVEL", env = "S3O_LOG")]
    pub log: Option<String>,
    /// What log lines look like
    #[arg(long, value_name = "FORMAT", env = "S3O_LOG_FORMAT", value_enum, default_value = "text")]
    pub log_format: Format,
}

/// Where to write a configuration.
#[derive(Debug, Args)]
pub struct Init {
    /// The file to write; one that exists is kept
    #[arg(long, value_name = "FILE", default_value = "s3o.yaml")]
    pub config: PathBuf,
}

/// Commands about access keys.
#[derive(Debug, Args)]
pub struct Key {
    /// What to do.
    #[command(subcommand)]
    pub action: KeyAction,
}

/// What can be done with access keys.
#[derive(Debug, Subcommand)]
pub enum KeyAction {
    /// Print a new key pair for `access_keys` of a configuration; nothing is stored
    New {
        /// Print JSON instead of YAML
        #[arg(long)]
        json: bool,
    },
}

/// What to check.
#[derive(Debug, Args)]
pub struct Validate {
    /// The configuration file
    #[arg(long, value_name = "FILE", default_value = "s3o.yaml")]
    pub config: PathBuf,
    /// Also try the database, Redis and every backend; nothing is changed there
    #[arg(long)]
    pub connect: bool,
}

/// What to load, and how.
#[derive(Debug, Args)]
pub struct Bench {
    /// The endpoint; where several instances serve one store, all of them: requests go to each in turn
    #[arg(long, value_name = "URLS", value_delimiter = ',', default_value = "http://127.0.0.1:9000")]
    pub endpoint: Vec<String>,
    /// Who signs
    #[arg(long, value_name = "ID", env = "AWS_ACCESS_KEY_ID", hide_env_values = true)]
    pub access_key: String,
    /// What it signs with
    #[arg(long, value_name = "SECRET", env = "AWS_SECRET_ACCESS_KEY", hide_env_values = true)]
    pub secret_key: Secret,
    /// The region that is signed for
    #[arg(long, value_name = "NAME", default_value = "us-east-1")]
    pub region: String,
    /// The bucket; made if it is missing, and at the end rid of what was written to it here
    #[arg(long, value_name = "NAME", default_value = "s3o-bench")]
    pub bucket: String,
    /// What to do, one after another
    #[arg(
        long,
        value_name = "LIST",
        value_enum,
        value_delimiter = ',',
        default_value = "put,get,head,list,delete,mixed"
    )]
    pub workloads: Vec<Workload>,
    /// How large objects are; HEAD and DELETE use the first size only
    #[arg(long, value_name = "LIST", value_parser = units::size, value_delimiter = ',', default_value = "4KiB,1MiB")]
    pub sizes: Vec<u64>,
    /// How many requests are under way at one time
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,16,64")]
    pub concurrency: Vec<usize>,
    /// How long each line of the table is measured
    #[arg(long, value_name = "TIME", value_parser = units::duration, default_value = "5s")]
    pub duration: Duration,
    /// How many requests each line of the table makes at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), default_value_t = 100_000)]
    pub max_ops: u64,
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
    /// The processes that serve the endpoint on this machine: shows their processor time and memory
    #[arg(long, value_name = "PIDS", value_delimiter = ',')]
    pub pid: Vec<u32>,
    /// The metrics pages of the endpoint, if it is s3o: shows how many catalog transactions a request takes
    #[arg(long, value_name = "URLS", value_delimiter = ',')]
    pub metrics: Vec<String>,
    /// What the endpoints are called in the table
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "A,B")]
    pub names: Vec<String>,
    /// Print the table once more at the end, as Markdown
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,
    /// Instead of the table: delete so many objects to their last byte, singly and in batches
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "drain")]
    pub deletes: Option<u64>,
    /// Instead of the table: let s3o empty its cleanup queue, and watch
    #[arg(long, requires_all = ["metrics", "pid", "token"])]
    pub drain: bool,
    /// What opens the admin API beside the first metrics page
    #[arg(long, value_name = "TOKEN", env = "S3O_ADMIN_TOKEN", hide_env_values = true)]
    pub token: Option<Token>,
    /// A second endpoint, measured in turns with the first; ratios are printed at the end
    #[arg(long, value_name = "URLS", value_delimiter = ',')]
    pub compare: Vec<String>,
    /// Who signs for the second endpoint; the same as for the first unless it is given
    #[arg(long, value_name = "ID", requires = "compare")]
    pub compare_access_key: Option<String>,
    /// What is signed with for the second endpoint
    #[arg(long, value_name = "SECRET", requires = "compare")]
    pub compare_secret_key: Option<Secret>,
    /// The processes that serve the second endpoint
    #[arg(long, value_name = "PIDS", value_delimiter = ',', requires = "compare")]
    pub compare_pid: Vec<u32>,
    /// The metrics pages of the second endpoint
    #[arg(long, value_name = "URLS", value_delimiter = ',', requires = "compare")]
    pub compare_metrics: Vec<String>,
}

/// Why a command did not do what was asked.
#[derive(Debug)]
pub enum Failure {
    /// The configuration is faulty.
    Configuration(Faults),
    /// The command was given something that it cannot use.
    Usage(String),
    /// Something did not work.
    Failed(String),
}

impl Failure {
    /// Something that did not work, and what it was.
    pub fn of(what: &str, why: impl fmt::Display) -> Self {
        Self::Failed(format!("{what}: {why}"))
    }

    /// The exit code that tells scripts whose fault it was.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Configuration(_) | Self::Usage(_) => ExitCode::from(2),
            Self::Failed(_) => ExitCode::FAILURE,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configuration(faults) => write!(f, "the configuration is not valid:\n{faults}"),
            Self::Usage(why) | Self::Failed(why) => f.write_str(why),
        }
    }
}

impl From<Faults> for Failure {
    fn from(faults: Faults) -> Self {
        Self::Configuration(faults)
    }
}
