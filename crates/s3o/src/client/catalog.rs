//! `s3o catalog`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::Client;
use super::connection::Connection;
use super::table::bytes;
use crate::cli::Failure;
use crate::config::{Config, DATA, Database, default_file};

/// The catalog.
#[derive(Debug, Args)]
pub struct CatalogCommand {
    #[command(flatten)]
    client: Client,
    #[command(subcommand)]
    action: CatalogAction,
}

/// What to do with the catalog.
#[derive(Debug, Subcommand)]
pub enum CatalogAction {
    /// Write a whole copy of a SQLite catalog while it is served; the server writes the file, on its machine
    Backup {
        /// The file to write; one that exists is kept
        file: PathBuf,
    },
    /// Put a copy in place of a SQLite catalog that no server uses; the one that was there is kept beside it
    Restore {
        /// The copy; the catalog's own file to accept an older one that lies there already
        file: PathBuf,
        /// The configuration that names the catalog [default: ./s3o.yaml, if it exists]
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Where the catalog is when nothing is configured
        #[arg(long, value_name = "DIR", default_value = DATA)]
        data: PathBuf,
    },
    /// Allow repairs although `s3o status` reports that rows of the catalog contradict each other
    Accept,
}

/// Copies, restores or accepts the catalog.
pub fn catalog(command: &CatalogCommand) -> Result<(), Failure> {
    match &command.action {
        CatalogAction::Backup { file } => backup(&command.client, file),
        CatalogAction::Restore { file, config, data } => restore(file, config.as_deref(), data),
        CatalogAction::Accept => accept(&command.client),
    }
}

fn backup(client: &Client, file: &Path) -> Result<(), Failure> {
    let path = std::path::absolute(file).map_err(|error| Failure::of(&file.display().to_string(), error))?;
    let name = path.to_str().ok_or_else(|| Failure::Usage("the name of the file is not valid UTF-8".to_owned()))?;
    let answer = Connection::open(client)?.post_where(&["catalog", "backup"], &[("path", name)])?;
    if client.json {
        println!("{answer}");
    } else {
        println!("wrote {name}: {}", bytes(&answer["size_bytes"]));
    }
    Ok(())
}

fn restore(file: &Path, config: Option<&Path>, data: &Path) -> Result<(), Failure> {
    let config = match config.map(Path::to_owned).or_else(default_file) {
        Some(path) => Config::load(&path, data)?,
        None => Config::embedded(data),
    };
    let Database::Sqlite(database) = &config.database else {
        return Err(Failure::Usage("a PostgreSQL catalog is restored with PostgreSQL's own tools".to_owned()));
    };
    let restored = s3o_catalog::restore_sqlite(file, database);
    let kept = restored.map_err(|error| Failure::of(&database.display().to_string(), error))?;
    println!("restored {} from {}", database.display(), file.display());
    if let Some(kept) = kept {
        println!("the catalog that was there is kept as {}", kept.display());
    }
    println!("backends whose mark is newer than this copy freeze at the next start: see `s3o status`");
    Ok(())
}

fn accept(client: &Client) -> Result<(), Failure> {
    let answer = Connection::open(client)?.post(&["catalog", "accept"])?;
    println!("{}", if client.json { answer.to_string() } else { "accepted".to_owned() });
    Ok(())
}
