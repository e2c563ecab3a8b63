//! Writes of several copies lock and reserve their backends in the order of their names, whichever they prefer: writers
//! that reserve in different orders deadlock.

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use s3o_catalog::unit::{Answer, Unit, Value};
use s3o_catalog::{Driver, DriverLayer, Error};
use s3o_tests::environment::{Environment, ProcessSettings};
use s3o_tests::harness::Harness;

/// The backends of the statements that lock or change their rows, in order.
type LockedBackends = Arc<Mutex<Vec<String>>>;

struct RecordedStages {
    inner: Arc<dyn Driver>,
    locked: LockedBackends,
}

#[async_trait]
impl DriverLayer for RecordedStages {
    fn inner(&self) -> &dyn Driver {
        self.inner.as_ref()
    }

    async fn on_write(&self, unit: Unit) -> Result<Vec<Answer>, Error> {
        if unit.name == "stage" {
            let locking = |sql: &str| sql.starts_with("UPDATE backend_quotas") || sql.contains("FROM backends");
            let statements = unit.statements.iter().filter(|statement| locking(statement.sql));
            let names = statements.filter_map(|statement| match statement.params.first() {
                Some(Value::Text(name)) => Some(name.clone()),
                Some(Value::Int(_) | Value::Null) | None => None,
            });
            self.locked.lock().extend(names);
        }
        self.inner.write(unit).await
    }
}

#[tokio::test]
async fn backends_are_reserved_in_the_order_of_their_names() {
    let locked = LockedBackends::default();
    let recorded = |inner: Arc<dyn Driver>| {
        let locked = Arc::clone(&locked);
        Arc::new(RecordedStages { inner, locked }) as Arc<dyn Driver>
    };
    // The backend that is preferred has the later name.
    let settings = ProcessSettings { copies: 2, ..ProcessSettings::default() };
    let environment =
        Environment::new(1 << 20).with_backend("another", 1 << 20, None).with_settings(settings).with_dedup(false);
    let harness = Harness::builder(&Arc::new(environment)).catalog_layer(recorded).start_with_bucket().await;
    harness.store("a", b"a body").await.expect("stored");
    assert_eq!(*locked.lock(), ["another", "memory", "another", "memory"], "locked, then reserved");
}
