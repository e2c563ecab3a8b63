//! The command line.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::config::Faults;

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
    /// Serve S3; without a configuration, on SQLite and a folder below ./s3o-data
    Serve(Serve),
    /// Write a commented configuration
    Init(Init),
    /// Check a configuration and show every fault with its path
    Validate(Validate),
}

/// How to serve.
#[derive(Debug, Args)]
pub struct Serve {
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where keys made on the first start are kept, and everything else where nothing is configured
    #[arg(long, value_name = "DIR", default_value = "./s3o-data")]
    pub data: PathBuf,
    /// Where the S3 API listens
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<SocketAddr>,
    /// Where the admin API, metrics and health listen
    #[arg(long, value_name = "ADDR")]
    pub admin_listen: Option<SocketAddr>,
}

/// Where to write a configuration.
#[derive(Debug, Args)]
pub struct Init {
    /// The file to write; one that exists is kept
    #[arg(long, value_name = "FILE", default_value = "s3o.yaml")]
    pub config: PathBuf,
}

/// What to check.
#[derive(Debug, Args)]
pub struct Validate {
    /// The configuration file
    #[arg(long, value_name = "FILE", default_value = "s3o.yaml")]
    pub config: PathBuf,
}

/// Why a command did not do what was asked.
#[derive(Debug)]
pub enum Failure {
    /// The configuration is faulty.
    Configuration(Faults),
    /// Something did not work.
    Failed(String),
}

impl Failure {
    /// Something that did not work, and what it was.
    pub fn of(what: &str, why: impl fmt::Display) -> Self {
        Self::Failed(format!("{what}: {why}"))
    }

    /// The exit code that tells scripts which of the two it was.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Configuration(_) => ExitCode::from(2),
            Self::Failed(_) => ExitCode::FAILURE,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configuration(faults) => write!(f, "the configuration is not valid:\n{faults}"),
            Self::Failed(why) => f.write_str(why),
        }
    }
}

impl From<Faults> for Failure {
    fn from(faults: Faults) -> Self {
        Self::Configuration(faults)
    }
}
