//! Commands that ask a running server through its admin API.

mod backend;
mod catalog;
mod connection;
mod findings;
mod lifecycle;
mod queues;
mod status;
mod table;
mod verify;
mod workers;

use std::fmt;

use clap::{ArgGroup, Args, Subcommand};

use crate::cli::Failure;
pub use catalog::{CatalogCommand, catalog};
use connection::Connection;

/// Admin token. `Debug` does not print it.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// How a request shows it.
    pub fn bearer(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

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

/// The cleanup queue.
#[derive(Debug, Args)]
pub struct CleanupCommand {
    #[command(flatten)]
    client: Client,
    #[command(subcommand)]
    action: CleanupAction,
}

/// What to do with the cleanup queue.
#[derive(Debug, Subcommand)]
pub enum CleanupAction {
    /// Show the bytes that wait to be deleted
    List(Listing),
}

/// The dead letters.
#[derive(Debug, Args)]
pub struct DlqCommand {
    #[command(flatten)]
    client: Client,
    #[command(subcommand)]
    action: DlqAction,
}

/// What to do with dead letters.
#[derive(Debug, Subcommand)]
pub enum DlqAction {
    /// Show the deletes that were refused too often
    List(Listing),
    /// Send dead letters back to the cleanup queue
    Retry(Which),
    /// Take dead letters off the books, if their bytes are gone
    Discard {
        #[command(flatten)]
        which: Which,
        /// Also if their bytes may be there; what is written off stays visible as such
        #[arg(long)]
        force: bool,
    },
}

/// Conditions that an operator must resolve.
#[derive(Debug, Args)]
pub struct FindingsCommand {
    #[command(flatten)]
    client: Client,
    #[command(subcommand)]
    action: FindingsAction,
}

/// What to do with findings.
#[derive(Debug, Subcommand)]
pub enum FindingsAction {
    /// List the findings
    List {
        /// Only those about this backend
        #[arg(long, value_name = "NAME")]
        backend: Option<String>,
        /// Only those of this kind, such as `written_off`
        #[arg(long, value_name = "KIND")]
        kind: Option<String>,
        /// How many to show, up to 1000
        #[arg(long, value_name = "N", default_value = "100")]
        limit: String,
        /// Those with higher numbers than this one
        #[arg(long, value_name = "ID")]
        after: Option<String>,
    },
}

/// Which page of which rows.
#[derive(Debug, Args)]
pub struct Listing {
    /// Only those of this backend
    #[arg(long, value_name = "NAME")]
    backend: Option<String>,
    /// Only those with this reason
    #[arg(long, value_name = "REASON")]
    reason: Option<String>,
    /// How many to show, up to 1000
    #[arg(long, value_name = "N", default_value = "100")]
    limit: String,
    /// Those behind this one
    #[arg(long, value_name = "ID")]
    after: Option<String>,
}

impl Listing {
    fn query(&self) -> Vec<(&str, &str)> {
        let mut query = selection(self.backend.as_deref(), self.reason.as_deref());
        query.push(("limit", self.limit.as_str()));
        query.extend(self.after.as_deref().map(|after| ("after", after)));
        query
    }
}

/// Which dead letters.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").required(true).multiple(true).args(["ids", "backend", "reason"]))]
pub struct Which {
    /// These
    #[arg(value_name = "ID", conflicts_with_all = ["backend", "reason"])]
    ids: Vec<String>,
    /// All of this backend
    #[arg(long, value_name = "NAME")]
    backend: Option<String>,
    /// All with this reason
    #[arg(long, value_name = "REASON")]
    reason: Option<String>,
}

impl Which {
    fn query(&self) -> Vec<(&str, &str)> {
        selection(self.backend.as_deref(), self.reason.as_deref())
    }
}

fn selection<'a>(backend: Option<&'a str>, reason: Option<&'a str>) -> Vec<(&'a str, &'a str)> {
    let given = [("backend", backend), ("reason", reason)];
    given.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
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
    /// Show what is found at a backend; with --found, accept exactly that and let it take writes again
    Accept {
        /// The backend
        name: String,
        /// The hash that was shown for what is to be accepted
        #[arg(long, value_name = "HASH")]
        found: Option<String>,
    },
    /// Ignore the mismatch that an instance recorded for a backend until the instance finds something else
    Dismiss {
        /// The backend
        name: String,
        /// The instance, as `accept` shows it
        #[arg(long, value_name = "HOST")]
        host: String,
    },
}

/// The lifecycle rules.
#[derive(Debug, Args)]
pub struct LifecycleCommand {
    #[command(flatten)]
    client: Client,
    /// Show what the rules in force would remove; `s3o workers run lifecycle` removes it
    #[arg(long, required = true)]
    dry_run: bool,
}

/// Whether the invariants hold.
#[derive(Debug, Args)]
pub struct VerifyCommand {
    #[command(flatten)]
    client: Client,
    /// List every backend and compare it with the catalog
    #[arg(long)]
    deep: bool,
    /// Let the database check its own tables and indexes; PostgreSQL needs the extension amcheck for it
    #[arg(long)]
    catalog: bool,
}

/// Shows what the lifecycle rules would remove.
pub fn lifecycle(command: &LifecycleCommand) -> Result<(), Failure> {
    let connection = Connection::open(&command.client)?;
    lifecycle::preview(&connection, command.client.json)
}

/// Checks the invariants.
pub fn verify(command: &VerifyCommand) -> Result<(), Failure> {
    let connection = Connection::open(&command.client)?;
    verify::run(&connection, command)
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

/// Shows the cleanup queue.
pub fn cleanup(command: &CleanupCommand) -> Result<(), Failure> {
    let connection = Connection::open(&command.client)?;
    match &command.action {
        CleanupAction::List(listing) => queues::cleanups(&connection, listing, command.client.json),
    }
}

/// Shows the findings.
pub fn findings(command: &FindingsCommand) -> Result<(), Failure> {
    let connection = Connection::open(&command.client)?;
    let FindingsAction::List { backend, kind, limit, after } = &command.action;
    let given = [("backend", backend.as_deref()), ("kind", kind.as_deref()), ("after", after.as_deref())];
    let mut query: Vec<(&str, &str)> = given.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    query.push(("limit", limit.as_str()));
    findings::list(&connection, &query, command.client.json)
}

/// Shows or disposes of dead letters.
pub fn dlq(command: &DlqCommand) -> Result<(), Failure> {
    let connection = Connection::open(&command.client)?;
    let json = command.client.json;
    match &command.action {
        DlqAction::List(listing) => queues::dead_letters(&connection, listing, json),
        DlqAction::Retry(which) => queues::retry(&connection, which, json),
        DlqAction::Discard { which, force } => queues::discard(&connection, which, *force, json),
    }
}

/// Changes a backend.
pub fn backend(command: &BackendCommand) -> Result<(), Failure> {
    let connection = Connection::open(&command.client)?;
    match &command.action {
        BackendAction::Accept { name, found } => {
            backend::accept(&connection, name, found.as_deref(), command.client.json)
        }
        BackendAction::Dismiss { name, host } => backend::dismiss(&connection, name, host, command.client.json),
    }
}
