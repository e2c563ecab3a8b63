//! Commands that call the admin API of a running server.

mod arguments;
mod backend;
mod catalog;
mod connection;
mod findings;
mod lifecycle;
mod queues;
mod rebalance;
mod reconcile;
mod status;
mod table;
mod verify;
mod workers;

use crate::cli::CommandFailure;
use arguments::{BackendAction, CleanupAction, DlqAction, FindingsAction, WorkersAction};
pub use arguments::{
    BackendCommand, CleanupCommand, DlqCommand, FindingsCommand, LifecycleCommand, RebalanceCommand, ReconcileCommand,
    ReplicateCommand, StatusCommand, VerifyCommand, WorkersCommand,
};
pub use catalog::{CatalogCommand, catalog};
use connection::AdminConnection;

/// Prints what the lifecycle rules in force would delete.
pub fn lifecycle(command: &LifecycleCommand) -> Result<(), CommandFailure> {
    let connection = AdminConnection::open(&command.client)?;
    lifecycle::preview(&connection, command.client.json)
}

/// Writes missing copies now.
pub fn replicate(command: &ReplicateCommand) -> Result<(), CommandFailure> {
    let connection = AdminConnection::open(&command.client)?;
    workers::run(&connection, "replicator", command.client.json)
}

/// Moves copies between backends now, or prints what would be moved.
pub fn rebalance(command: &RebalanceCommand) -> Result<(), CommandFailure> {
    let connection = AdminConnection::open(&command.client)?;
    if command.dry_run {
        return rebalance::plan(&connection, command.client.json);
    }
    workers::run(&connection, "rebalancer", command.client.json)
}

/// Compares backends with the catalog, or prints what would be found.
pub fn reconcile(command: &ReconcileCommand) -> Result<(), CommandFailure> {
    let connection = AdminConnection::open(&command.client)?;
    reconcile::run(&connection, command)
}

/// Checks the invariants and prints the violations.
pub fn verify(command: &VerifyCommand) -> Result<(), CommandFailure> {
    let connection = AdminConnection::open(&command.client)?;
    verify::run(&connection, command)
}

/// Prints backends, buckets, queues and workers.
pub fn status(command: &StatusCommand) -> Result<(), CommandFailure> {
    let connection = AdminConnection::open(&command.client)?;
    status::show(&connection, command.client.json)
}

/// Lists the workers, or runs, pauses or resumes one.
pub fn workers(command: &WorkersCommand) -> Result<(), CommandFailure> {
    let connection = AdminConnection::open(&command.client)?;
    let json = command.client.json;
    match &command.action {
        None => workers::list(&connection, json),
        Some(WorkersAction::Run { name }) => workers::run(&connection, name, json),
        Some(WorkersAction::Pause { name }) => workers::set_paused(&connection, name, "pause", json),
        Some(WorkersAction::Resume { name }) => workers::set_paused(&connection, name, "resume", json),
    }
}

/// Lists the cleanup queue.
pub fn cleanup(command: &CleanupCommand) -> Result<(), CommandFailure> {
    let connection = AdminConnection::open(&command.client)?;
    match &command.action {
        CleanupAction::List(options) => queues::cleanups(&connection, options, command.client.json),
    }
}

/// Lists the findings, approves or dismisses some.
pub fn findings(command: &FindingsCommand) -> Result<(), CommandFailure> {
    let connection = AdminConnection::open(&command.client)?;
    let json = command.client.json;
    match &command.action {
        FindingsAction::List { backend, kind, limit, after } => {
            let given = [("backend", backend.as_deref()), ("kind", kind.as_deref()), ("after", after.as_deref())];
            let given = given.into_iter().filter_map(|(name, value)| Some((name, value?)));
            let query: Vec<(&str, &str)> = given.chain([("limit", limit.as_str())]).collect();
            findings::list(&connection, &query, json)
        }
        FindingsAction::Approve { ids } => findings::decide(&connection, "approve", ids, json),
        FindingsAction::Dismiss { ids } => findings::decide(&connection, "dismiss", ids, json),
    }
}

/// Lists, retries or discards dead letters.
pub fn dlq(command: &DlqCommand) -> Result<(), CommandFailure> {
    let connection = AdminConnection::open(&command.client)?;
    let json = command.client.json;
    match &command.action {
        DlqAction::List(options) => queues::dead_letters(&connection, options, json),
        DlqAction::Retry(which) => queues::retry(&connection, which, json),
        DlqAction::Discard { which, force } => queues::discard(&connection, which, *force, json),
    }
}

/// Accepts, drains or removes a backend, or dismisses the record of an instance about it.
pub fn backend(command: &BackendCommand) -> Result<(), CommandFailure> {
    let connection = AdminConnection::open(&command.client)?;
    let json = command.client.json;
    match &command.action {
        BackendAction::Accept { name, found } => backend::accept(&connection, name, found.as_deref(), json),
        BackendAction::Dismiss { name, host } => backend::dismiss(&connection, name, host, json),
        BackendAction::Drain { name, show: false } => backend::drain(&connection, name, json),
        BackendAction::Drain { name, show: true } => backend::show_drain(&connection, name, json),
        BackendAction::Undrain { name } => backend::undrain(&connection, name, json),
        BackendAction::Remove { name, write_off } => backend::remove(&connection, name, write_off.as_deref(), json),
    }
}
