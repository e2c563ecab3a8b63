//! Numbers of statements that a request sends to the catalog. While no copies are configured, further backends add
//! none; copies add statements to the units of a PUT, but no unit.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use s3o_catalog::unit::{Answer, Row, Statement, Unit};
use s3o_catalog::{Driver, DriverLayer, Error};

use s3o_tests::environment::Environment;
use s3o_tests::harness::Harness;

/// Requests to the catalog, in order: the name of a unit or `read`, with the number of statements.
type StatementJournal = Arc<Mutex<Vec<(&'static str, usize)>>>;

struct CountedStatements {
    inner: Arc<dyn Driver>,
    journal: StatementJournal,
}

#[async_trait]
impl DriverLayer for CountedStatements {
    fn inner(&self) -> &dyn Driver {
        self.inner.as_ref()
    }

    async fn on_write(&self, unit: Unit) -> Result<Vec<Answer>, Error> {
        self.journal.lock().push((unit.name, unit.statements.len()));
        self.inner.write(unit).await
    }

    async fn on_read(&self, query: Statement) -> Result<Vec<Row>, Error> {
        self.journal.lock().push(("read", 1));
        self.inner.read(query).await
    }
}

/// What a new object, a GET, an overwrite and a DELETE send to the catalog.
#[derive(Debug, PartialEq, Eq)]
struct Sent {
    put: Vec<(&'static str, usize)>,
    get: Vec<(&'static str, usize)>,
    overwrite: Vec<(&'static str, usize)>,
    delete: Vec<(&'static str, usize)>,
}

/// A process that counts its statements.
async fn counted(environment: Environment) -> (Harness, StatementJournal) {
    let journal = StatementJournal::default();
    let counted =
        |inner: Arc<dyn Driver>| Arc::new(CountedStatements { inner, journal: journal.clone() }) as Arc<dyn Driver>;
    let harness = Harness::builder(&Arc::new(environment)).catalog_layer(counted).start_with_bucket().await;
    (harness, journal)
}

async fn sent(environment: Environment) -> Sent {
    let (harness, journal) = counted(environment).await;
    // With several backends, the first PUT within a second reads the counters of all backends.
    harness.store("earlier", b"body").await.expect("stored");
    let taken = || std::mem::take(&mut *journal.lock());
    taken();
    harness.store("a", b"first").await.expect("stored");
    let put = taken();
    assert_eq!(harness.read("a").await.as_deref(), Some(b"first".as_slice()));
    let get = taken();
    harness.store("a", b"second").await.expect("stored");
    let overwrite = taken();
    harness.delete("a").await;
    Sent { put, get, overwrite, delete: taken() }
}

fn one_backend() -> Environment {
    Environment::new(u64::MAX)
}

fn without_copies() -> Sent {
    Sent {
        put: vec![("read", 1), ("stage", 4), ("commit_put", 9)],
        get: vec![("read", 1)],
        overwrite: vec![("read", 1), ("stage", 4), ("commit_put", 16)],
        delete: vec![("read", 1), ("delete_object", 11)],
    }
}

#[tokio::test]
async fn requests_send_a_fixed_number_of_statements() {
    assert_eq!(sent(one_backend()).await, without_copies());
}

#[tokio::test]
async fn further_backends_add_no_statement() {
    let several = one_backend().with_backend("second", u64::MAX, None).with_backend("third", u64::MAX, Some(1 << 20));
    assert_eq!(sent(several).await, without_copies());
}

#[tokio::test]
async fn write_of_two_copies_is_two_units() {
    let two = sent(one_backend().with_copies(2, u64::MAX)).await;
    let units = |sent: &[(&'static str, usize)]| sent.iter().map(|(name, _)| *name).collect::<Vec<_>>();
    assert_eq!(units(&two.put), units(&without_copies().put));
    assert_eq!((two.get, units(&two.delete)), (without_copies().get, units(&without_copies().delete)));
}

#[tokio::test]
async fn scrubber_without_work_sends_one_statement() {
    let (harness, journal) = counted(one_backend()).await;
    harness.store("a", b"body").await.expect("stored");
    let scrubber = harness.process.worker("scrubber");
    harness.tick_after(scrubber, Duration::from_hours(6)).await;
    journal.lock().clear();
    harness.tick_after(scrubber, Duration::from_hours(5)).await;
    assert_eq!(*journal.lock(), [("read", 1)], "the pass has ended");
    harness.catalog.stop_scrub("a reader changes bytes").await.expect("stopped");
    journal.lock().clear();
    harness.tick_after(scrubber, Duration::from_hours(5)).await;
    assert_eq!(*journal.lock(), [("read", 1)], "the scrubber is stopped");
}
