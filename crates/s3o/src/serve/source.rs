//! Where settings come from: the file, the command line, and what was made on the first start.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::Arc;

use s3o_model::entropy::Entropy;
use s3o_server::s3::{Access, AccessKey};

use super::aside::aside;
use crate::cli::{Failure, Serve};
use crate::config::Config;
use crate::credentials::Credentials;

/// Reads the file, or what holds without one; the command line has the last word.
pub(super) fn load(arguments: &Serve) -> Result<Config, Failure> {
    let mut config = match &arguments.config {
        Some(path) => Config::load(path)?,
        None => Config::embedded(&arguments.data),
    };
    config.server.listen = arguments.listen.unwrap_or(config.server.listen);
    config.admin.listen = arguments.admin_listen.unwrap_or(config.admin.listen);
    Ok(config)
}

/// Everything that is set, as it stands now; on a thread that may wait for it.
pub(super) async fn read_again(arguments: &Serve, entropy: &Arc<dyn Entropy>) -> Result<Config, Failure> {
    let (arguments, entropy) = (arguments.clone(), Arc::clone(entropy));
    let read = move || {
        let mut config = load(&arguments)?;
        complete_credentials(&mut config, &arguments.data, entropy.as_ref())?;
        Ok(config)
    };
    aside("reading the settings", read).await?
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
pub(super) fn complete_credentials(
    config: &mut Config,
    data: &Path,
    entropy: &dyn Entropy,
) -> Result<Option<Generated>, Failure> {
    let (has_keys, has_token) = (config.access_keys.is_empty(), config.admin.token.is_none());
    if !has_keys && !has_token {
        return Ok(None);
    }
    let made = DirBuilder::new().recursive(true).mode(0o700).create(data);
    made.map_err(|error| Failure::of(&data.display().to_string(), error))?;
    let (credentials, is_new) = Credentials::load_or_create(data, entropy)?;
    config.admin.token.get_or_insert_with(|| credentials.admin_token.clone());
    if has_keys {
        config.access_keys.push(AccessKey {
            access_key_id: credentials.access_key_id.clone(),
            secret: credentials.secret_access_key.clone(),
            buckets: Vec::new(),
            access: Access::Admin,
        });
    }
    let kept_in = Credentials::path(data).display().to_string();
    Ok(Some(Generated { credentials, is_new, has_keys, has_token, kept_in }))
}
