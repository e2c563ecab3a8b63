//! Generates and stores the key pair and the admin token that the configuration leaves out.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use s3o_catalog::Catalog;
use s3o_model::entropy::Entropy;
use s3o_server::s3::{ALL_BUCKETS, Access, AccessKey};
use serde::{Deserialize, Serialize};

use crate::blocking::blocking_with_timeout;
use crate::cli::CommandFailure;
use crate::config::{Config, Database};

/// Characters that are easy to copy and need no quoting in URLs, shells and YAML.
const CHARACTERS: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";

/// Generated credentials that are in use.
pub struct Generated {
    pub credentials: Credentials,
    /// True on the start that generated them.
    pub is_new: bool,
    /// True if the generated key pair is in use.
    pub has_keys: bool,
    /// True if the generated admin token is in use.
    pub has_token: bool,
    /// Where an operator finds them.
    pub stored_in: String,
}

/// The store of generated credentials; completes the configuration from it, see [`complete_credentials`].
pub async fn open(
    config: &mut Config,
    catalog: &Arc<Catalog>,
    data: &Path,
    entropy: &Arc<dyn Entropy>,
) -> Result<(CredentialStore, Option<Generated>), CommandFailure> {
    let store = CredentialStore::new(&config.database, catalog, data);
    let generated = complete_credentials(config, &store, entropy).await?;
    Ok((store, generated))
}

/// Fills in the key pair and the token that the configuration leaves out; None if it leaves out neither.
pub async fn complete_credentials(
    config: &mut Config,
    store: &CredentialStore,
    entropy: &Arc<dyn Entropy>,
) -> Result<Option<Generated>, CommandFailure> {
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
    Ok(Some(Generated { credentials, is_new, has_keys, has_token, stored_in: store.location() }))
}

/// Where generated credentials are stored.
pub enum CredentialStore {
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

    /// Loads the credentials, or generates and stores them; the flag is true if this call generated them.
    async fn load_or_create(&self, entropy: &Arc<dyn Entropy>) -> Result<(Credentials, bool), CommandFailure> {
        match self {
            Self::File { data } => {
                let (data, entropy) = (data.clone(), Arc::clone(entropy));
                let work = move || Credentials::load_or_create(&data, entropy.as_ref());
                blocking_with_timeout("generating keys", work).await?
            }
            Self::Catalog { catalog, data } => {
                // An earlier version stored them in a file, also beside a shared catalog.
                let offered = Credentials::load(data)?;
                let is_fresh = offered.is_none();
                let offered = offered.unwrap_or_else(|| Credentials::fresh(entropy.as_ref())).encode();
                let stored = catalog.shared_credentials(&offered).await;
                let stored = stored.map_err(|error| CommandFailure::of("catalog", error))?;
                let credentials = Credentials::decode(stored.as_bytes());
                let credentials =
                    credentials.map_err(|why| CommandFailure::of("generated credentials in the catalog", why))?;
                Ok((credentials, is_fresh && stored == offered))
            }
        }
    }

    fn location(&self) -> String {
        match self {
            Self::File { data } => Credentials::path(data).display().to_string(),
            Self::Catalog { .. } => "the catalog, table generated_credentials".to_owned(),
        }
    }
}

/// A key pair and an admin token.
#[derive(Clone, Serialize, Deserialize)]
pub struct Credentials {
    pub access_key_id: String,
    pub secret_access_key: String,
    pub admin_token: String,
}

impl Credentials {
    /// The file in the data folder.
    pub fn path(data: &Path) -> PathBuf {
        data.join("credentials.json")
    }

    /// Loads the credentials from the data folder, or generates and stores them; the flag is true if they are new.
    fn load_or_create(data: &Path, entropy: &dyn Entropy) -> Result<(Self, bool), CommandFailure> {
        let created = DirBuilder::new().recursive(true).mode(0o700).create(data);
        created.map_err(|error| CommandFailure::of(&data.display().to_string(), error))?;
        if let Some(credentials) = Self::load(data)? {
            return Ok((credentials, false));
        }
        let (path, credentials) = (Self::path(data), Self::fresh(entropy));
        credentials.store(&path).map_err(|error| CommandFailure::of(&path.display().to_string(), error))?;
        Ok((credentials, true))
    }

    /// Loads the credentials from the data folder; None if it has none.
    fn load(data: &Path) -> Result<Option<Self>, CommandFailure> {
        let path = Self::path(data);
        let failed = |why: &dyn std::fmt::Display| CommandFailure::of(&path.display().to_string(), why);
        match std::fs::read(&path) {
            Ok(bytes) => Self::decode(&bytes).map(Some).map_err(|error| failed(&error)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(&error)),
        }
    }

    fn encode(&self) -> String {
        serde_json::to_string_pretty(self).expect("three strings always serialise")
    }

    /// Errors name the line and column and never quote the text, which may hold a secret.
    fn decode(bytes: &[u8]) -> Result<Self, String> {
        let invalid = |error: serde_json::Error| {
            let (line, column) = (error.line(), error.column());
            format!(
                "line {line}, column {column}: not the JSON that s3o wrote; restore it, or delete it to get new keys"
            )
        };
        serde_json::from_slice(bytes).map_err(invalid)
    }

    /// New random credentials.
    pub fn fresh(entropy: &dyn Entropy) -> Self {
        let text = |length| (0..length).map(|_| character(entropy)).collect::<String>();
        Self { access_key_id: format!("S3O{}", text(17)), secret_access_key: text(40), admin_token: text(32) }
    }

    /// Writes a temporary file and renames it: a crash leaves the whole file or none.
    fn store(&self, path: &Path) -> std::io::Result<()> {
        let temporary = path.with_extension("json.new");
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&temporary)?;
        file.write_all(self.encode().as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)
    }
}

fn character(entropy: &dyn Entropy) -> char {
    let index = usize::try_from(entropy.next_u64() % CHARACTERS.len() as u64).expect("below 32");
    char::from(CHARACTERS[index])
}

#[cfg(test)]
mod tests {
    use super::Credentials;
    use s3o_model::entropy::SeededEntropy;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn credentials_are_generated_once_with_mode_0600() {
        let folder = tempfile::tempdir().expect("a folder");
        let (first, first_is_new) = Credentials::load_or_create(folder.path(), &SeededEntropy::new(1)).expect("made");
        let (again, again_is_new) = Credentials::load_or_create(folder.path(), &SeededEntropy::new(2)).expect("kept");
        assert!(first_is_new && !again_is_new);
        assert_eq!(first.secret_access_key, again.secret_access_key);
        assert_eq!(first.secret_access_key.len(), 40);
        let mode = std::fs::metadata(Credentials::path(folder.path())).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn damaged_file_is_reported_without_its_text() {
        for damaged in ["hunter2", "{\"access_key_id\": \"hunter2\", \"admin_token\": 2", "{\"hunter2\": []}"] {
            let problem = Credentials::decode(damaged.as_bytes()).err().expect("damaged");
            assert!(problem.starts_with("line 1, column ") && !problem.contains("hunter2"), "{problem}");
        }
    }
}
