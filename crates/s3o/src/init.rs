//! `s3o init` and `s3o validate`.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::access_table;
use crate::cli::{CommandFailure, Init, Validate};
use crate::config::{Config, DATA};
use crate::connect;

const TEMPLATE: &str = include_str!("template.yaml");

/// Writes the template with mode 0600; fails if the file exists.
pub fn init(arguments: &Init) -> Result<(), CommandFailure> {
    let path = arguments.config.display().to_string();
    let mut file = OpenOptions::new()
        .create_new(true)
        .write(true)
        // Operators add secrets to it.
        .mode(0o600)
        .open(&arguments.config)
        .map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => {
                CommandFailure::Failed(format!("{path} exists and was kept, name another file with --config"))
            }
            _ => CommandFailure::of(&path, error),
        })?;
    file.write_all(TEMPLATE.as_bytes()).map_err(|error| CommandFailure::of(&path, error))?;
    println!("wrote {path}; check it with: s3o validate --config {path}; start with: s3o serve --config {path}");
    Ok(())
}

/// Checks a configuration and prints its warnings and access keys.
pub fn validate(arguments: &Validate) -> Result<(), CommandFailure> {
    let config = Config::load(&arguments.config, Path::new(DATA))?.overridden()?;
    let (keys, buckets, backends) = (config.access_keys.len(), config.buckets.names().count(), config.backends.len());
    let path = arguments.config.display();
    for warning in config.warnings() {
        eprintln!("warning: {warning}");
    }
    println!("{path} is valid; backends: {backends}, buckets: {buckets}, access keys: {keys}");
    print!("{}", access_table::of(&config.access_keys));
    if arguments.connect { connect::all(&config) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn template_is_a_valid_configuration() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s3o.yaml");
        std::fs::write(&path, super::TEMPLATE).expect("written");
        let config = Config::load(&path, folder.path()).expect("valid");
        assert_eq!(config.backends.len(), 1);
    }
}
