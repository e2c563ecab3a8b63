//! Where settings come from: the file, the command line, and what was made on the first start.

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

/// Fills in the key pair and the token that the configuration leaves out; says whether it did.
pub(super) fn complete_credentials(
    config: &mut Config,
    data: &Path,
    entropy: &dyn Entropy,
) -> Result<Option<Credentials>, Failure> {
    if !config.access_keys.is_empty() && config.admin.token.is_some() {
        return Ok(None);
    }
    std::fs::create_dir_all(data).map_err(|error| Failure::of(&data.display().to_string(), error))?;
    let made = Credentials::load_or_create(data, entropy)?;
    config.admin.token.get_or_insert_with(|| made.admin_token.clone());
    if config.access_keys.is_empty() {
        config.access_keys.push(AccessKey {
            access_key_id: made.access_key_id.clone(),
            secret: made.secret_access_key.clone(),
            buckets: Vec::new(),
            access: Access::Admin,
        });
    }
    Ok(Some(made))
}
