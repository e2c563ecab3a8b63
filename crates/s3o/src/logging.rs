//! Log lines: to standard error, so that standard output stays for people; level by `S3O_LOG`.

use tracing_subscriber::EnvFilter;

/// Starts logging.
pub fn start() {
    let filter = EnvFilter::try_from_env("S3O_LOG").unwrap_or_else(|_| EnvFilter::new("info,s3s=off"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).init();
}
