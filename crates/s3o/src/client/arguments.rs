//! Arguments of the commands that use the admin API.

mod findings;

use std::fmt;

use clap::{ArgGroup, Args, Subcommand};

pub use findings::{FindingsAction, FindingsCommand, ReconcileCommand};

/// Admin token. `Debug` does not print it.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// Value of the `Authorization` header.
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

/// Options of every command that uses the admin API.
#[derive(Debug, Args)]
pub struct AdminOptions {
    /// URL of the admin API
    #[arg(long, value_name = "URL", env = "S3O_ADMIN_URL", default_value = "http://127.0.0.1:9001", global = true)]
    pub admin: String,
    /// Admin token: `admin.token` of the configuration, or the one that the first start printed
    #[arg(long, value_name = "TOKEN", env = "S3O_ADMIN_TOKEN", hide_env_values = true, global = true)]
    pub token: Option<Token>,
    /// Print JSON instead of a table
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct StatusCommand {
    #[command(flatten)]
    pub(super) client: AdminOptions,
}

/// `s3o replicate`.
#[derive(Debug, Args)]
pub struct ReplicateCommand {
    #[command(flatten)]
    pub(super) client: AdminOptions,
}

/// `s3o rebalance`.
#[derive(Debug, Args)]
pub struct RebalanceCommand {
    #[command(flatten)]
    pub(super) client: AdminOptions,
    /// Show what would be moved now and move nothing
    #[arg(long)]
    pub(super) dry_run: bool,
}

/// `s3o workers`; without an action it lists the workers.
#[derive(Debug, Args)]
pub struct WorkersCommand {
    #[command(flatten)]
    pub(super) client: AdminOptions,
    #[command(subcommand)]
    pub(super) action: Option<WorkersAction>,
}

#[derive(Debug, Subcommand)]
pub enum WorkersAction {
    /// Run a worker now, also while it is paused
    Run {
        /// Name of the worker
        name: String,
    },
    /// Stop the scheduled runs of a worker on all instances
    Pause {
        /// Name of the worker
        name: String,
    },
    /// Continue the scheduled runs of a worker
    Resume {
        /// Name of the worker
        name: String,
    },
}

#[derive(Debug, Args)]
pub struct CleanupCommand {
    #[command(flatten)]
    pub(super) client: AdminOptions,
    #[command(subcommand)]
    pub(super) action: CleanupAction,
}

#[derive(Debug, Subcommand)]
pub enum CleanupAction {
    /// List the bytes that wait for deletion
    List(ListOptions),
}

#[derive(Debug, Args)]
pub struct DlqCommand {
    #[command(flatten)]
    pub(super) client: AdminOptions,
    #[command(subcommand)]
    pub(super) action: DlqAction,
}

#[derive(Debug, Subcommand)]
pub enum DlqAction {
    /// List the deletes that their backend refused too often
    List(ListOptions),
    /// Return dead letters to the cleanup queue
    Retry(DeadLetterFilter),
    /// Delete dead letters whose bytes are gone from the backend
    Discard {
        #[command(flatten)]
        which: DeadLetterFilter,
        /// Also discard them if their bytes may still exist; a finding keeps record of these bytes
        #[arg(long)]
        force: bool,
    },
}

/// One page of a list.
#[derive(Debug, Args)]
pub struct ListOptions {
    /// Only rows of this backend
    #[arg(long, value_name = "NAME")]
    backend: Option<String>,
    /// Only rows with this reason
    #[arg(long, value_name = "REASON")]
    reason: Option<String>,
    /// Number of rows to list, at most 1000
    #[arg(long, value_name = "N", default_value = "100")]
    limit: String,
    /// Start after this ID
    #[arg(long, value_name = "ID")]
    after: Option<String>,
}

impl ListOptions {
    pub(super) fn query(&self) -> Vec<(&str, &str)> {
        let mut query = selection(self.backend.as_deref(), self.reason.as_deref());
        query.push(("limit", self.limit.as_str()));
        query.extend(self.after.as_deref().map(|after| ("after", after)));
        query
    }
}

/// Dead letters by ID, or by backend and reason.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").required(true).multiple(true).args(["ids", "backend", "reason"]))]
pub struct DeadLetterFilter {
    /// IDs of dead letters, as printed by `s3o dlq list`
    #[arg(value_name = "ID", conflicts_with_all = ["backend", "reason"])]
    pub(super) ids: Vec<String>,
    /// Select all dead letters of this backend; with --reason, only those that match both
    #[arg(long, value_name = "NAME")]
    backend: Option<String>,
    /// Select all dead letters with this reason, such as `delete`
    #[arg(long, value_name = "REASON")]
    reason: Option<String>,
}

impl DeadLetterFilter {
    pub(super) fn query(&self) -> Vec<(&str, &str)> {
        selection(self.backend.as_deref(), self.reason.as_deref())
    }
}

fn selection<'a>(backend: Option<&'a str>, reason: Option<&'a str>) -> Vec<(&'a str, &'a str)> {
    let given = [("backend", backend), ("reason", reason)];
    given.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

#[derive(Debug, Args)]
pub struct BackendCommand {
    #[command(flatten)]
    pub(super) client: AdminOptions,
    #[command(subcommand)]
    pub(super) action: BackendAction,
}

#[derive(Debug, Subcommand)]
pub enum BackendAction {
    /// Show the identity found on a backend; with --found, accept exactly that identity and allow writes again
    Accept {
        /// Name of the backend
        name: String,
        /// Hash that this command printed without --found
        #[arg(long, value_name = "HASH")]
        found: Option<String>,
    },
    /// Empty a backend: stop writes there, move its copies to other backends, and show the progress
    Drain {
        /// Name of the backend
        name: String,
        /// Show the progress of a drain and change nothing
        #[arg(long)]
        show: bool,
    },
    /// Stop a drain: the backend takes writes again
    Undrain {
        /// Name of the backend
        name: String,
    },
    /// Remove a backend that holds nothing; afterwards delete it from the configuration and restart
    Remove {
        /// Name of the backend
        name: String,
        /// Write off a lost backend; repeat NAME to confirm
        #[arg(long, value_name = "NAME")]
        write_off: Option<String>,
    },
    /// Ignore the mismatch that an instance recorded for a backend until that instance finds another identity
    Dismiss {
        /// Name of the backend
        name: String,
        /// Instance, as printed by `accept`
        #[arg(long, value_name = "HOST")]
        host: String,
    },
}

#[derive(Debug, Args)]
pub struct LifecycleCommand {
    #[command(flatten)]
    pub(super) client: AdminOptions,
    /// Show what the rules in force would delete now; `s3o workers run lifecycle` deletes it
    #[arg(long, required = true)]
    dry_run: bool,
}

#[derive(Debug, Args)]
pub struct VerifyCommand {
    #[command(flatten)]
    pub(super) client: AdminOptions,
    /// Also list every backend and compare it with the catalog
    #[arg(long)]
    pub(super) deep: bool,
    /// Also let the database check its own tables and indexes; PostgreSQL needs the extension amcheck
    #[arg(long)]
    pub(super) catalog: bool,
}
