//! `s3o validate --connect`: connects to the database, Redis and every backend of a configuration, and changes nothing.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use s3o_backend::fs::{Fs, FsOptions};
use s3o_backend::identity::{IDENTITY_KEY, Identity};
use s3o_backend::s3::{S3, S3Options};
use s3o_backend::{Backend, SharedBackend};
use s3o_catalog::{Postgres, PostgresOptions, check_sqlite};
use s3o_model::clock::SystemClock;
use s3o_model::entropy::SystemEntropy;

use crate::cli::CommandFailure;
use crate::config::{BackendConfig, BackendKind, Config, Database, RedisUrl};

/// Printed for a bucket that the first start will create.
const BUCKET_MISSING: &str = "answers; the bucket does not exist, the first start creates it";

/// How long each of them may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Connects to all of them; prints a line for each that answers and fails with a line for each that does not.
pub fn all(config: &Config) -> Result<(), CommandFailure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|error| CommandFailure::of("cannot start", error))?.block_on(check_all(config))
}

async fn check_all(config: &Config) -> Result<(), CommandFailure> {
    let mut answers = vec![("database".to_owned(), with_timeout(database(&config.database)).await)];
    if let Some(RedisUrl(url)) = &config.cache.redis {
        let ping = async { s3o_cache::ping(url).await.map(|()| "answers".to_owned()) };
        answers.push(("redis".to_owned(), with_timeout(ping).await));
    }
    for config in &config.backends {
        answers.push((format!("backend {}", config.name), with_timeout(backend(config)).await));
    }
    let mut failed = Vec::new();
    for (what, answer) in answers {
        match answer {
            Ok(answer) => println!("{what}: {answer}"),
            Err(why) => failed.push(format!("{what}: {why}")),
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(CommandFailure::Failed(failed.join("\n"))) }
}

async fn with_timeout(attempt: impl Future<Output = Result<String, String>>) -> Result<String, String> {
    let timed_out = |_| Err(format!("no answer within {} s", ANSWER_MAX.as_secs()));
    tokio::time::timeout(ANSWER_MAX, attempt).await.unwrap_or_else(timed_out)
}

async fn database(database: &Database) -> Result<String, String> {
    match database {
        Database::Sqlite(path) if !path.exists() => Ok(format!("{} will be created", path.display())),
        Database::Sqlite(path) => {
            let checked = check_sqlite(path).map_err(|error| format!("{}: {error}", path.display()));
            checked.map(|()| format!("{} is a SQLite database", path.display()))
        }
        Database::Postgres { url, .. } => {
            let wait_max = ANSWER_MAX / 2;
            let options = PostgresOptions { url: url.clone(), connections: 1, wait_max, schema: None, clock: None };
            let tried = Postgres::try_connection(&options).await;
            tried.map(|()| "PostgreSQL answers".to_owned()).map_err(|error| error.to_string())
        }
    }
}

async fn backend(config: &BackendConfig) -> Result<String, String> {
    let opened: SharedBackend = match &config.kind {
        BackendKind::Fs { root } if !root.exists() => return Ok(will_be_created(root)),
        BackendKind::Fs { root } => {
            let options = FsOptions { create: false, ..FsOptions::default() };
            Arc::new(Fs::open(config.name.clone(), root.clone(), options))
        }
        BackendKind::S3(options) => {
            let (clock, entropy) = (Arc::new(SystemClock), Arc::new(SystemEntropy));
            let options = S3Options { create_bucket: false, ..options.as_ref().clone() };
            let store = S3::connect(config.name.clone(), &options, clock, entropy);
            Arc::new(store.map_err(|error| error.to_string())?)
        }
    };
    let answer = identity(opened.as_ref()).await;
    answer.or_else(|why| if creates_bucket(config, &why) { Ok(BUCKET_MISSING.to_owned()) } else { Err(why) })
}

/// True if the only fault is a missing bucket that the first start will create.
fn creates_bucket(config: &BackendConfig, why: &str) -> bool {
    matches!(&config.kind, BackendKind::S3(options) if options.create_bucket)
        && why.contains("does not exist; create it")
}

fn will_be_created(root: &Path) -> String {
    format!("{} does not exist; a start creates it, unless the catalog already knows this backend", root.display())
}

async fn identity(backend: &dyn Backend) -> Result<String, String> {
    let found = backend.read_own(IDENTITY_KEY).await.map_err(|error| error.to_string())?;
    let Some(bytes) = found else { return Ok("answers, not in use yet".to_owned()) };
    match Identity::decode(&bytes) {
        Ok(identity) if identity.backend == *backend.name() => {
            Ok(format!("answers, in use by cluster {}", identity.cluster))
        }
        Ok(identity) => Err(format!("in use by cluster {} as backend {}", identity.cluster, identity.backend)),
        Err(error) => Err(error.to_string()),
    }
}
