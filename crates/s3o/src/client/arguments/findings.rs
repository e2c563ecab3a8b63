//! Arguments of `s3o reconcile` and `s3o findings`.

use clap::{Args, Subcommand};

use super::AdminOptions;

/// `s3o reconcile`.
#[derive(Debug, Args)]
pub struct ReconcileCommand {
    #[command(flatten)]
    pub(in crate::client) client: AdminOptions,
    /// Only this backend
    #[arg(long, value_name = "NAME")]
    pub(in crate::client) backend: Option<String>,
    /// Show what would be found now and store nothing
    #[arg(long)]
    pub(in crate::client) dry_run: bool,
}

#[derive(Debug, Args)]
pub struct FindingsCommand {
    #[command(flatten)]
    pub(in crate::client) client: AdminOptions,
    #[command(subcommand)]
    pub(in crate::client) action: FindingsAction,
}

#[derive(Debug, Subcommand)]
pub enum FindingsAction {
    /// List the findings in the order of their IDs
    List {
        /// Only findings about this backend
        #[arg(long, value_name = "NAME")]
        backend: Option<String>,
        /// Only findings of this kind, such as `written_off`
        #[arg(long, value_name = "KIND")]
        kind: Option<String>,
        /// Number of findings to list, at most 1000
        #[arg(long, value_name = "N", default_value = "100")]
        limit: String,
        /// Start after this ID
        #[arg(long, value_name = "ID")]
        after: Option<String>,
    },
    /// Act on a finding of reconcile now: delete its bytes, or replace its copy
    Approve {
        /// IDs, as printed by `s3o findings list`
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
    },
    /// Leave the bytes of a finding of reconcile as they are, until they change
    Dismiss {
        /// IDs, as printed by `s3o findings list`
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
    },
}
