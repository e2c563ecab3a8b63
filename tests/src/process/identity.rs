//! The identity worker of a process.

use std::sync::Arc;

use s3o_backend::Fleet;
use s3o_catalog::{Catalog, Error};
use s3o_model::clock::Clock;
use s3o_model::ids::IdSource;
use s3o_workers::{IdentityParts, IdentitySettings, IdentityWorker};

use crate::environment::Environment;

pub(super) async fn identity<C: Clock + 'static>(
    environment: &Environment<C>,
    catalog: &Arc<Catalog>,
    fleet: &Arc<Fleet>,
    ids: &IdSource,
) -> Result<Arc<IdentityWorker>, Error> {
    let max_age = environment.settings.identity_age_max.into_iter();
    let max_age = max_age.flat_map(|age| environment.backends.iter().map(move |backend| (backend.name(), age)));
    Ok(Arc::new(IdentityWorker::new(IdentityParts {
        identities: catalog.clone(),
        records: catalog.clone(),
        fleet: fleet.clone(),
        ids: ids.clone(),
        clock: environment.clock.clone(),
        cluster: catalog.cluster_id("cluster").await?,
        host: "host:9000".to_owned(),
        alarm: Arc::new(()),
        settings: IdentitySettings { max_age: max_age.collect(), ..IdentitySettings::default() },
    })))
}
