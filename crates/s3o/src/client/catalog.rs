//! `s3o catalog`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::arguments::AdminOptions;
use super::connection::AdminConnection;
use super::table::bytes;
use crate::cli::CommandFailure;
use crate::config::{Config, DATA, Database, default_file};

#[derive(Debug, Args)]
pub struct CatalogCommand {
    #[command(flatten)]
    client: AdminOptions,
    #[command(subcommand)]
    action: CatalogAction,
}

#[derive(Debug, Subcommand)]
pub enum CatalogAction {
    /// Write a complete copy of a SQLite catalog while the server runs; the file is on the server's machine
    Backup {
        /// File to write; an existing file is not overwritten
        file: PathBuf,
    },
    /// Replace a SQLite catalog with a backup while no server uses it; the old catalog is kept beside it
    Restore {
        /// The backup; to accept an older catalog that is already in place, the path of that catalog
        file: PathBuf,
        /// Configuration file with the path of the catalog [default: ./s3o.yaml, if it exists]
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Data folder of a catalog whose path is not configured
        #[arg(long, value_name = "DIR", default_value = DATA)]
        data: PathBuf,
    },
    /// Allow repairs of a catalog that `s3o status` reports as doubtful
    Accept,
}

/// Copies, restores or accepts the catalog.
pub fn catalog(command: &CatalogCommand) -> Result<(), CommandFailure> {
    match &command.action {
        CatalogAction::Backup { file } => backup(&command.client, file),
        CatalogAction::Restore { file, config, data } => restore(file, config.as_deref(), data),
        CatalogAction::Accept => accept(&command.client),
    }
}

fn backup(client: &AdminOptions, file: &Path) -> Result<(), CommandFailure> {
    let path = std::path::absolute(file).map_err(|error| CommandFailure::of(&file.display().to_string(), error))?;
    let invalid = || CommandFailure::Usage(format!("{}: the path is not valid UTF-8", path.display()));
    let name = path.to_str().ok_or_else(invalid)?;
    let answer = AdminConnection::open(client)?.post_where(&["catalog", "backup"], &[("path", name)])?;
    if client.json {
        println!("{answer}");
    } else {
        println!("wrote {name}: {}", bytes(&answer["size_bytes"]));
    }
    Ok(())
}

fn restore(file: &Path, config: Option<&Path>, data: &Path) -> Result<(), CommandFailure> {
    let config = match config.map(Path::to_owned).or_else(default_file) {
        Some(path) => Config::load(&path, data)?,
        None => Config::embedded(data),
    };
    let Database::Sqlite(database) = &config.database else {
        return Err(CommandFailure::Usage("the catalog is in PostgreSQL, restore it with pg_restore".to_owned()));
    };
    let restored = s3o_catalog::restore_sqlite(file, database);
    let kept = restored.map_err(|error| {
        CommandFailure::of(&format!("cannot restore, {} was not changed", database.display()), error)
    })?;
    println!("restored {} from {}", database.display(), file.display());
    if let Some(kept) = kept {
        println!("kept the old catalog as {}", kept.display());
    }
    println!("the next start freezes backends whose mark is newer than this copy; check with: s3o status");
    Ok(())
}

fn accept(client: &AdminOptions) -> Result<(), CommandFailure> {
    let answer = AdminConnection::open(client)?.post(&["catalog", "accept"])?;
    println!(
        "{}",
        if client.json {
            answer.to_string()
        } else {
            "catalog accepted, quota_audit repairs the counts that it confirms".to_owned()
        }
    );
    Ok(())
}
