//! Where settings come from: the file, the command line, and what was made on the first start.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use s3o_catalog::{Catalog, SharedCredentials as _};
use s3o_model::entropy::Entropy;
use s3o_server::s3::{ALL_BUCKETS, Access, AccessKey};

use super::aside::aside;
use crate::cli::{Failure, Serve};
use crate::config::{Config, Database, default_file};
use crate::credentials::Credentials;

/// The arguments with the configuration file that this process uses until it ends.
pub(super) fn with_file(arguments: &Serve) -> Serve {
    let mut arguments = arguments.clone();
    if arguments.config.is_none() {
        arguments.config = default_file();
    }
    arguments
}

/// Reads the file, or what holds without one; the command line has the last word.
pub(super) fn load(arguments: &Serve) -> Result<Config, Failure> {
    let mut config = match &arguments.config {
        Some(path) => Config::load(path, &arguments.data)?,
        None => Config::embedded(&arguments.data),
    };
    config.server.listen = arguments.listen.unwrap_or(config.server.listen);
    config.admin.listen = arguments.admin_listen.unwrap_or(config.admin.listen);
    Ok(config)
}

/// Everything that is set, as it stands now; on a thread that may wait for it.
pub(super) async fn read_again(arguments: &Serve) -> Result<Config, Failure> {
    let arguments = arguments.clone();
    aside("reading the settings", move || load(&arguments)).await?
}

/// Logs what is allowed and dangerous.
pub(super) fn warn(config: &Config) {
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
}

/// Where generated credentials are kept.
pub(super) enum CredentialStore {
    /// In the data folder, for the one process that owns a SQLite catalog.
    File { data: PathBuf },
    /// In the catalog, for all instances that share it.
    Catalog { catalog: Arc<Catalog>, data: PathBuf },
}

impl CredentialStore {
    pub fn new(database: &Database, catalog: &Arc<Catalog>, data: &Path) -> Self {
        let data = data.to_owned();
        match database {
            Database::Sqlite(_) => Self::File { data },
            Database::Postgres { .. } => Self::Catalog { catalog: Arc::clone(catalog), data },
        }
    }

    /// Loads the credentials, or generates them; the flag is true if this call generated them.
    async fn load_or_create(&self, entropy: &Arc<dyn Entropy>) -> Result<(Credentials, bool), Failure> {
        match self {
            Self::File { data } => {
                let (data, entropy) = (data.clone(), Arc::clone(entropy));
                aside("generating keys", move || create_in(&data, entropy.as_ref())).await?
            }
            Self::Catalog { catalog, data } => {
                // An earlier version kept them in a file, also beside a shared catalog.
                let offered = Credentials::load(data)?;
                let is_fresh = offered.is_none();
                let offered = offered.unwrap_or_else(|| Credentials::fresh(entropy.as_ref())).encode();
                let stored = catalog.shared_credentials(&offered).await;
                let stored = stored.map_err(|error| Failure::of("catalog", error))?;
                let credentials = Credentials::decode(stored.as_bytes());
                let credentials =
                    credentials.map_err(|why| Failure::of("generated credentials in the catalog", why))?;
                Ok((credentials, is_fresh && stored == offered))
            }
        }
    }

    /// Where people find them.
    fn place(&self) -> String {
        match self {
            Self::File { data } => Credentials::path(data).display().to_string(),
            Self::Catalog { .. } => "the catalog, table generated_credentials".to_owned(),
        }
    }
}

fn create_in(data: &Path, entropy: &dyn Entropy) -> Result<(Credentials, bool), Failure> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(data);
    made.map_err(|error| Failure::of(&data.display().to_string(), error))?;
    Credentials::load_or_create(data, entropy)
}

/// Credentials that s3o generated because the configuration leaves them out.
pub(super) struct Generated {
    pub credentials: Credentials,
    /// True on the start that generated them.
    pub is_new: bool,
    /// True if the generated key pair is in use.
    pub has_keys: bool,
    /// True if the generated admin token is in use.
    pub has_token: bool,
    /// Where later starts find them, for people.
    pub kept_in: String,
}

/// Fills in the key pair and the token that the configuration leaves out; None if it leaves out neither.
pub(super) async fn complete_credentials(
    config: &mut Config,
    store: &CredentialStore,
    entropy: &Arc<dyn Entropy>,
) -> Result<Option<Generated>, Failure> {
    let (has_keys, has_token) = (config.access_keys.is_empty(), config.admin.token.is_none());
    if !has_keys && !has_token {
        return Ok(None);
    }
    let (credentials, is_new) = store.load_or_create(entropy).await?;
    config.admin.token.get_or_insert_with(|| credentials.admin_token.clone());
    if has_keys {
        config.access_keys.push(AccessKey {
            access_key_id: credentials.access_key_id.clone(),
            secret: credentials.secret_access_key.clone(),
            buckets: vec![ALL_BUCKETS.to_owned()],
            access: Access::Admin,
        });
    }
    Ok(Some(Generated { credentials, is_new, has_keys, has_token, kept_in: store.place() }))
}
