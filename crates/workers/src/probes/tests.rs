//! Tests of the prober in virtual time.

use std::sync::Arc;
use std::time::Duration;

use s3o_backend::fleet::Health;
use s3o_backend::layers::{Fault, Flaky};
use s3o_backend::{Backend as _, Fleet, Memory};
use s3o_catalog::{Catalog, Mode, Sqlite, SqliteOptions};
use s3o_model::clock::{Clock as _, ManualClock, Timestamp};
use s3o_model::entropy::SeededEntropy;
use s3o_model::ids::IdSource;
use s3o_model::shared::Shared;

use super::{ProbeIntervals, Prober};
use crate::{IdentityParts, IdentitySettings, IdentityWorker};

struct ProberFixture {
    flaky: Arc<Flaky>,
    prober: Arc<Prober>,
    clock: Arc<ManualClock>,
    _folder: tempfile::TempDir,
}

impl ProberFixture {
    async fn new(interval: Duration) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let clock = Arc::new(ManualClock::starting_at(Timestamp::from_millis(1)));
        let path = folder.path().join("catalog.db");
        let options = SqliteOptions { path, mode: Mode::Inline, clock: clock.clone() };
        let catalog = Arc::new(Catalog::new(Arc::new(Sqlite::open(&options).expect("a catalog"))));
        let flaky = Arc::new(Flaky::new(Arc::new(Memory::new("disk".parse().expect("valid")))));
        let fleet = Arc::new(Fleet::new(vec![flaky.clone()]).expect("a fleet"));
        let identity = Arc::new(IdentityWorker::new(IdentityParts {
            identities: catalog.clone(),
            records: catalog,
            fleet: fleet.clone(),
            ids: IdSource::new(clock.clone(), Arc::new(SeededEntropy::new(1))),
            clock: clock.clone(),
            cluster: "ours".to_owned(),
            host: "here".to_owned(),
            alarm: Arc::new(()),
            settings: IdentitySettings::default(),
        }));
        assert!(identity.attach().await);
        let intervals = Shared::new(ProbeIntervals::from([(flaky.name().clone(), interval)]));
        let prober = Arc::new(Prober { fleet, identity, clock: clock.clone(), intervals });
        Self { flaky, prober, clock, _folder: folder }
    }

    fn health(&self) -> Health {
        self.prober.fleet.health(self.clock.now())[0].1.clone()
    }

    fn probes(&self) -> usize {
        self.flaky.log().iter().filter(|call| call.operation == "read_own").count()
    }

    /// Runs the prober for `time`; returns the number of its probes.
    async fn run_for(&self, time: Duration) -> usize {
        let before = self.probes();
        tokio::time::timeout(time, self.prober.serve()).await.expect_err("serve does not return");
        self.probes() - before
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn idle_backend_is_probed_at_its_interval() {
    let fixture = ProberFixture::new(10 * SECOND).await;
    assert_eq!(fixture.run_for(35 * SECOND).await, 4);
    assert_eq!(fixture.health(), Health::Ok);
}

#[tokio::test(start_paused = true)]
async fn interval_of_zero_means_no_probes() {
    let fixture = ProberFixture::new(Duration::ZERO).await;
    fixture.flaky.go_away();
    fixture.prober.fleet.suspect(fixture.flaky.name());
    assert_eq!(fixture.run_for(100 * SECOND).await, 0);
    assert_eq!(fixture.health(), Health::Ok);
}

#[tokio::test(start_paused = true)]
async fn failed_probes_back_off_and_make_away_until_one_succeeds() {
    let fixture = ProberFixture::new(15 * 60 * SECOND).await;
    fixture.flaky.go_away();
    // At 0, 1, 3, 7, 15, 31, 63 s, then every minute.
    assert_eq!(fixture.run_for(64 * SECOND).await, 7);
    assert!(matches!(fixture.health(), Health::Away(outage) if outage.error.contains("never arrived")));
    fixture.flaky.come_back();
    assert_eq!(fixture.run_for(SECOND).await, 1);
    assert_eq!(fixture.health(), Health::Ok);
}

#[tokio::test(start_paused = true)]
async fn failed_request_brings_the_next_probe_forward() {
    let fixture = ProberFixture::new(15 * 60 * SECOND).await;
    assert_eq!(fixture.run_for(10 * SECOND).await, 1);
    fixture.flaky.go_away();
    fixture.prober.fleet.suspect(fixture.flaky.name());
    // The loop starts with a probe; the suspicion and the failures trigger the others.
    assert!(fixture.run_for(5 * SECOND).await >= 2);
    assert!(matches!(fixture.health(), Health::Away(_)));
}

#[tokio::test(start_paused = true)]
async fn probe_that_hangs_fails_after_five_seconds_and_is_the_only_one() {
    let fixture = ProberFixture::new(10 * SECOND).await;
    for number in 1..=2 {
        fixture.flaky.fail_call(fixture.flaky.calls() + number, Fault::Hang(100 * SECOND));
    }
    // One from 0 to 5 s, one from 6 to 11 s; the third would begin at 13 s.
    assert_eq!(fixture.run_for(12 * SECOND).await, 2);
    assert!(matches!(fixture.health(), Health::Away(outage) if outage.error == "no answer within 5 s"));
}
