//! Writes of two copies that end between their bytes and their commit: the reaper, an exchanged disk, or a lease of the
//! first copy that ends before the one of a later copy.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use s3o_backend::layers::Fault;
use s3o_catalog::unit::{Answer, Unit};
use s3o_catalog::{Catalog, Driver, DriverLayer, Error as CatalogError};
use s3o_engine::{Declared, Error, PutObject};
use s3o_model::clock::ManualClock;
use s3o_model::etag;
use s3o_model::ids::ClaimToken;
use s3o_model::intent::DeclaredDigests;
use s3o_model::usage::{UsageLimits, UsagePolicy, UsageTotals};
use s3o_tests::environment::Environment;
use s3o_tests::harness::{Expected, Harness};
use s3o_tests::process::LEASE;
use sha2::{Digest as _, Sha256};

const BODY: &[u8] = b"a body on two of three backends";
/// The second backend is this much later than the first one.
const LATER: Duration = Duration::from_mins(1);

/// What happens to the commit of the write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CommitOutage {
    /// It fails, and so does everything that the writer does after it.
    CatalogAway,
    /// The lease of the first copy ends, the reaper abandons the write, and the answer of the commit is lost.
    Fenced,
}

/// A catalog whose next commit fails, and in which a further copy is staged later than the first one.
struct FailingCommit {
    inner: Arc<dyn Driver>,
    clock: Arc<ManualClock>,
    outage: CommitOutage,
    staged: Mutex<usize>,
}

#[async_trait]
impl DriverLayer for FailingCommit {
    fn inner(&self) -> &dyn Driver {
        self.inner.as_ref()
    }

    async fn on_write(&self, unit: Unit) -> Result<Vec<Answer>, CatalogError> {
        match (self.outage, unit.name) {
            (CommitOutage::CatalogAway, "commit_put" | "drop_write") => Err(CatalogError::Away("injected".to_owned())),
            (CommitOutage::Fenced, "commit_put") => {
                self.abandon_all().await;
                Err(CatalogError::Unknown("injected: not committed".to_owned()))
            }
            (CommitOutage::Fenced, "stage") => {
                let earlier = std::mem::replace(&mut *self.staged.lock(), 1);
                self.clock.advance(LATER * u32::try_from(earlier).expect("few"));
                self.inner.write(unit).await
            }
            _ => self.inner.write(unit).await,
        }
    }
}

impl FailingCommit {
    /// Lets the lease of the first copy end, but not that of a copy that was staged later, and abandons the write.
    async fn abandon_all(&self) {
        self.clock.advance(LEASE.saturating_sub(LATER / 2));
        let (catalog, token) = (Catalog::new(Arc::clone(&self.inner)), ClaimToken::new(uuid::Uuid::from_u128(9)));
        let claimed = catalog.claim_expired(token, 9, LEASE).await.expect("claimed");
        assert!(claimed.len() >= 2, "all copies of the write");
        assert!(catalog.abandon(token, claimed[0].write, LEASE).await.expect("abandoned"));
    }
}

fn environment() -> Environment {
    Environment::new(1 << 20).with_copies(2, 1 << 20)
}

/// A process whose commits fail, over an environment with three backends.
async fn failing(environment: &Arc<Environment>, outage: CommitOutage) -> Harness {
    let clock = environment.clock.clone();
    let layer = |inner: Arc<dyn Driver>| {
        Arc::new(FailingCommit { inner, clock, outage, staged: Mutex::new(0) }) as Arc<dyn Driver>
    };
    Harness::builder(environment).catalog_layer(layer).start_with_bucket().await
}

/// A PUT with a declared digest, so that the reaper can finish it.
async fn put(harness: &Harness) -> Result<(), Error> {
    let sha256 = Some(etag::Sha256(Sha256::digest(BODY).into()));
    let declared =
        Declared { digests: DeclaredDigests { sha256, ..DeclaredDigests::default() }, ..Declared::default() };
    let client = Arc::new(());
    harness.engine.put_object(PutObject { declared, ..harness.put("a", BODY, &client) }).await.map(drop)
}

/// The process after one that stored both copies and did not commit.
async fn after_an_uncommitted_write() -> Harness {
    let environment = Arc::new(environment());
    let harness = failing(&environment, CommitOutage::CatalogAway).await;
    put(&harness).await.expect_err("not committed");
    drop(harness);
    Harness::builder(&environment).start().await
}

async fn places(harness: &Harness) -> Vec<String> {
    harness.texts("SELECT backend_name FROM object_locations ORDER BY backend_name").await
}

fn stored() -> Expected {
    Expected::from([("a", vec![Some(BODY.to_vec())])])
}

#[tokio::test]
async fn one_copy_that_matches_is_promoted_while_the_backend_of_the_other_is_away() {
    let harness = after_an_uncommitted_write().await;
    let second = &harness.environment.backends[1].flaky;
    second.go_away();
    let report = harness.reap_after(LEASE).await;
    assert_eq!(report.items.get("promoted"), Some(&1), "{:?}", report.items);
    assert_eq!(places(&harness).await, ["memory"]);
    assert_eq!(harness.texts("SELECT backend_name FROM cleanup_queue").await, ["second"]);
    assert_eq!(harness.read("a").await.as_deref(), Some(BODY));
    second.come_back();
    harness.check(&stored()).await;
}

#[tokio::test]
async fn reaper_waits_while_a_usage_limit_forbids_to_read_the_copies() {
    let harness = after_an_uncommitted_write().await;
    let limit = |requests| {
        for usage in harness.process.fleet.usages() {
            let limits = UsageLimits::new(UsageTotals { requests, ..UsageTotals::default() });
            usage.set_policy(UsagePolicy { limits, ..UsagePolicy::default() });
        }
    };
    limit(1);
    harness.process.usage.start().await.expect("ceilings");
    let report = harness.reap_after(LEASE).await;
    assert_eq!(report.items.get("ambiguous"), Some(&1), "{:?}", report.items);
    assert!(places(&harness).await.is_empty());
    limit(0);
    harness.check(&stored()).await;
    assert_eq!(places(&harness).await.len(), 2, "both copies were found");
}

/// The disk of the first copy is exchanged while the second copy is written.
#[tokio::test(start_paused = true)]
async fn copy_on_a_backend_that_was_frozen_during_the_write_is_not_committed() {
    let harness = Harness::builder(&Arc::new(environment())).start_with_bucket().await;
    let second = &harness.environment.backends[1].flaky;
    second.fail_call(second.calls() + 1, Fault::Delay(Duration::from_secs(2)));
    let first = harness.environment.backends[0].name();
    let freeze = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(harness.bytes_stored() > 0, "the first copy is stored");
        harness.process.fleet.set_frozen(&first, Some("another disk".to_owned()));
    };
    let (written, ()) = tokio::join!(put(&harness), freeze);
    written.expect("stored on the other backends");
    assert!(!places(&harness).await.contains(&"memory".to_owned()));
    assert_eq!(harness.texts("SELECT backend_name FROM cleanup_queue").await, ["memory"]);
    harness.process.fleet.set_frozen(&first, None);
    harness.check(&stored()).await;
}

/// The second copy is staged later than the first one: its lease ends later.
#[tokio::test]
async fn unknown_commit_is_judged_by_the_lease_that_ends_first() {
    let harness = failing(&Arc::new(environment()), CommitOutage::Fenced).await;
    let second = &harness.environment.backends[1].flaky;
    second.fail_call(second.calls() + 1, Fault::Before);
    put(&harness).await.expect_err("the write was abandoned");
    assert!(places(&harness).await.is_empty());
    harness.check(&Expected::from([("a", vec![None])])).await;
}
