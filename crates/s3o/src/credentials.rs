//! The key pair and the admin token that are made on the first start, kept for the next ones.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use s3o_model::entropy::Entropy;
use serde::{Deserialize, Serialize};

use crate::cli::Failure;

/// Letters that are easy to copy and safe in every URL, shell and file.
const LETTERS: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";

/// What is needed to use the server.
#[derive(Clone, Serialize, Deserialize)]
pub struct Credentials {
    /// The public half of the key pair.
    pub access_key_id: String,
    /// The secret half of the key pair.
    pub secret_access_key: String,
    /// What opens the admin API.
    pub admin_token: String,
}

impl Credentials {
    /// Where they are kept.
    pub fn path(data: &Path) -> PathBuf {
        data.join("credentials.json")
    }

    /// Loads the kept credentials, or creates and keeps new ones; the flag is true if they are new.
    pub fn load_or_create(data: &Path, entropy: &dyn Entropy) -> Result<(Self, bool), Failure> {
        let path = Self::path(data);
        let failed = |why: &dyn std::fmt::Display| Failure::of(&path.display().to_string(), why);
        if let Some(credentials) = Self::load(data)? {
            return Ok((credentials, false));
        }
        let credentials = Self::fresh(entropy);
        credentials.keep(&path).map_err(|error| failed(&error))?;
        Ok((credentials, true))
    }

    /// Loads the credentials that are kept in the data folder; None if there are none.
    pub fn load(data: &Path) -> Result<Option<Self>, Failure> {
        let path = Self::path(data);
        let failed = |why: &dyn std::fmt::Display| Failure::of(&path.display().to_string(), why);
        match std::fs::read(&path) {
            Ok(bytes) => Self::decode(&bytes).map(Some).map_err(|error| failed(&error)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(&error)),
        }
    }

    /// The document that [`Credentials::decode`] reads.
    pub fn encode(&self) -> String {
        serde_json::to_string_pretty(self).expect("three strings always serialise")
    }

    /// Errors name the place and never quote the text.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let invalid = |error: serde_json::Error| {
            format!("line {}, column {}: not the JSON that s3o wrote", error.line(), error.column())
        };
        serde_json::from_slice(bytes).map_err(invalid)
    }

    /// New random credentials.
    pub fn fresh(entropy: &dyn Entropy) -> Self {
        let text = |length| (0..length).map(|_| letter(entropy)).collect::<String>();
        Self { access_key_id: format!("S3O{}", text(17)), secret_access_key: text(40), admin_token: text(32) }
    }

    /// Written aside and renamed: a crash leaves the whole file or none.
    fn keep(&self, path: &Path) -> std::io::Result<()> {
        let aside = path.with_extension("json.new");
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&aside)?;
        file.write_all(self.encode().as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&aside, path)
    }
}

fn letter(entropy: &dyn Entropy) -> char {
    let index = usize::try_from(entropy.next_u64() % LETTERS.len() as u64).expect("below 32");
    char::from(LETTERS[index])
}

#[cfg(test)]
mod tests {
    use super::Credentials;
    use s3o_model::entropy::SeededEntropy;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn they_are_made_once_and_only_their_owner_reads_them() {
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
    fn a_damaged_file_is_reported_without_its_text() {
        for damaged in ["hunter2", "{\"access_key_id\": \"hunter2\", \"admin_token\": 2", "{\"hunter2\": []}"] {
            let problem = Credentials::decode(damaged.as_bytes()).err().expect("damaged");
            assert!(problem.starts_with("line 1, column ") && !problem.contains("hunter2"), "{problem}");
        }
    }
}
