//! Commands that ask a running server through its admin API.

mod backend;
mod connection;
mod status;
mod table;
mod workers;

use std::fmt;

use clap::{Args, Subcommand};

use crate::cli::Failure;
use connection::Connection;

/// What opens the admin API; it never shows.
#[derive(Clone)]
pub struct Token(String);

impl From<String> for Token {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Which server, and how to show its answer.
#[derive(Debug, Args)]
pub struct Client {
    /// The admin API
    #[arg(long, value_name = "URL", env = "S3O_ADMIN_URL", default_value = "http://127.0.0.1:9001", global = true)]
    pub admin: String,
    /// What opens it
    #[arg(long, value_name = "TOKEN", env = "S3O_ADMIN_TOKEN", hide_env_values = true, global = true)]
    pub token: Option<Token>,
    /// Print JSON instead of a table
    #[arg(long, global = true)]
    pub json: bool,
}

/// How the whole is.
#[derive(Debug, Args)]
pub struct StatusCommand {
    #[command(flatten)]
    client: Client,
}

/// The workers.
#[derive(Debug, Args)]
pub struct WorkersCommand {
    #[command(flatten)]
    client: Client,
    #[command(subcommand)]
    action: Option<WorkersAction>,
}

/// What to do with a worker.
#[derive(Debug, Subcommand)]
pub enum WorkersAction {
    /// Run a worker now
    Run {
        /// The worker
        name: String,
    },
    /// Keep a worker from running on its own
    Pause {
        /// The worker
        name: String,
    },
    /// Let a worker run on its own again
    Resume {
        /// The worker
        name: String,
    },
}

/// The backends.
#[derive(Debug, Args)]
pub struct BackendCommand {
    #[command(flatten)]
    client: Client,
    #[command(subcommand)]
    action: BackendAction,
}

/// What to do with a backend.
#[derive(Debug, Subcommand)]
pub enum BackendAction {
    /// Take a backend for what it says it is, and let it take writes again
    Accept {
        /// The backend
        name: String,
    },
}

/// Shows how the whole is.
pub fn status(command: &StatusCommand) -> Result<(), Failure> {
    let connection = Connection::open(&command.client)?;
    status::show(&connection, command.client.json)
}

/// Shows or steers the workers.
pub fn workers(command: &WorkersCommand) -> Result<(), Failure> {
    let connection = Connection::open(&command.client)?;
    let json = command.client.json;
    match &command.action {
        None => workers::list(&connection, json),
        Some(WorkersAction::Run { name }) => workers::run(&connection, name, json),
        Some(WorkersAction::Pause { name }) => workers::steer(&connection, name, "pause", json),
        Some(WorkersAction::Resume { name }) => workers::steer(&connection, name, "resume", json),
    }
}

/// Changes a backend.
pub fn backend(command: &BackendCommand) -> Result<(), Failure> {
    let connection = Connection::open(&command.client)?;
    match &command.action {
        BackendAction::Accept { name } => backend::accept(&connection, name, command.client.json),
    }
}
