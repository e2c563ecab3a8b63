//! Tests of the month of a request, of ceilings and of background work.

use std::sync::Arc;
use std::time::Duration;

use s3o_model::clock::{ManualClock, Timestamp};
use s3o_model::usage::{Allotment, Permille, UsageKind, UsageLimits, UsagePolicy, UsagePurpose, UsageTotals};
use tokio::sync::Notify;

use super::{BackendUsage, CatalogTime, UsageContext};

/// A minute before 2026-12-01T00:00:00Z.
const NEARLY_DECEMBER: i64 = 1_796_083_140_000;
const MINUTE: Duration = Duration::from_mins(1);

struct Subject {
    clock: Arc<ManualClock>,
    demand: Arc<Notify>,
    usage: BackendUsage,
}

fn requests(requests: u64) -> UsageTotals {
    UsageTotals { requests, ..UsageTotals::default() }
}

fn subject(limits: UsageTotals) -> Subject {
    let clock = Arc::new(ManualClock::starting_at(Timestamp::from_millis(NEARLY_DECEMBER)));
    let demand = Arc::<Notify>::default();
    let time = Arc::new(CatalogTime::new(clock.clone()));
    let context = UsageContext { time, demand: demand.clone(), resume_delay: Duration::from_secs(7) };
    let policy = UsagePolicy { limits: UsageLimits::new(limits), threshold: Permille(800) };
    Subject { clock, demand, usage: BackendUsage::new("b".parse().expect("valid"), policy, context) }
}

impl Subject {
    fn allot(&self, ceilings: UsageTotals) {
        let counters = self.usage.counters();
        self.usage.allot(Allotment {
            month: counters.month(),
            since: counters.totals(),
            ceilings,
            ends: Duration::from_mins(10),
            others: 0,
        });
    }

    fn count(&self, requests: usize) {
        for _ in 0..requests {
            self.usage.count_request();
        }
    }

    fn is_demanded(&self) -> bool {
        let notified = std::pin::pin!(self.demand.notified());
        futures_util::FutureExt::now_or_never(notified).is_some()
    }
}

#[test]
fn a_request_counts_in_the_month_of_its_sending_with_all_of_its_bytes() {
    let subject = subject(UsageTotals::default());
    let before = subject.usage.count_request();
    before.add_sent(3);
    subject.clock.advance(MINUTE);
    let after = subject.usage.count_request();
    before.add_received(5);
    let counted: Vec<_> = subject.usage.all_counters().iter().map(|c| (c.month().to_string(), c.totals())).collect();
    let november = UsageTotals { requests: 1, egress_bytes: 5, ingress_bytes: 3 };
    assert_eq!(counted, [("2026-11".to_owned(), november), ("2026-12".to_owned(), requests(1))]);
    assert_eq!(after.totals(), requests(1));
}

#[test]
fn a_clock_that_is_set_back_counts_in_the_earlier_month() {
    let subject = subject(UsageTotals::default());
    subject.count(1);
    subject.clock.advance(MINUTE);
    subject.count(2);
    subject
        .usage
        .context
        .time
        .correct(Timestamp::from_millis(NEARLY_DECEMBER), subject.usage.context.time.since_boot());
    subject.count(4);
    let counted: Vec<_> = subject.usage.all_counters().iter().map(|c| c.totals().requests).collect();
    assert_eq!(counted, [5, 2]);
}

#[test]
fn a_limited_backend_permits_nothing_before_its_first_ceilings() {
    let subject = subject(requests(10));
    let reached = subject.usage.reached(UsagePurpose::Read).expect("reached");
    assert_eq!((reached.kind, reached.limit), (UsageKind::Requests, 10));
    assert!(subject.is_demanded());
    assert!(subject.usage.reached(UsagePurpose::Read).is_some() && !subject.is_demanded(), "requested once");
    subject.allot(requests(5));
    assert_eq!(subject.usage.reached(UsagePurpose::Read), None);
}

#[test]
fn new_ceilings_are_requested_at_half_of_a_share() {
    let subject = subject(requests(100));
    subject.allot(requests(10));
    subject.count(4);
    assert!(subject.usage.reached(UsagePurpose::Write).is_none() && !subject.is_demanded());
    subject.count(1);
    assert!(subject.usage.reached(UsagePurpose::Write).is_none() && subject.is_demanded());
    subject.count(5);
    assert!(subject.usage.reached(UsagePurpose::Write).is_some());
}

#[test]
fn of_a_limit_that_is_used_up_no_ceilings_are_requested() {
    let subject = subject(requests(10));
    subject.allot(requests(4));
    subject.count(4);
    let month = subject.usage.counters().month();
    subject.usage.set_others(month, requests(6));
    assert!(subject.usage.reached(UsagePurpose::Read).is_some() && !subject.is_demanded());
    subject.usage.set_others(month, requests(5));
    assert!(subject.usage.reached(UsagePurpose::Read).is_some() && subject.is_demanded());
}

#[test]
fn ceilings_expire_with_their_lease() {
    let subject = subject(requests(10));
    subject.allot(requests(5));
    subject.usage.extend_lease(Duration::from_secs(30));
    assert!(subject.usage.reached(UsagePurpose::Read).is_none());
    subject.clock.advance(Duration::from_secs(30));
    assert!(subject.usage.reached(UsagePurpose::Read).is_some());
}

#[test]
fn a_body_larger_than_the_share_is_refused_and_its_size_requested() {
    let subject = subject(UsageTotals { ingress_bytes: 100, ..UsageTotals::default() });
    subject.allot(UsageTotals { ingress_bytes: 50, ..UsageTotals::default() });
    assert_eq!(subject.usage.ingress_left_bytes(), Some(50));
    assert_eq!(subject.usage.refuse_ingress(60).kind, UsageKind::Ingress);
    assert!(subject.is_demanded());
    assert_eq!(subject.usage.wanted().ingress_bytes, 60);
}

#[test]
fn background_work_stops_at_the_threshold_and_resumes_after_a_delay() {
    let subject = subject(requests(10));
    subject.allot(requests(10));
    subject.count(2);
    assert!(subject.usage.permits_background());
    subject.usage.set_others(subject.usage.counters().month(), requests(6));
    assert!(!subject.usage.permits_background() && subject.usage.is_near_limit());
    subject.clock.advance(MINUTE);
    assert!(!subject.usage.permits_background(), "the month has begun, the delay has not ended");
    subject.clock.advance(Duration::from_secs(7));
    assert!(subject.usage.permits_background() && !subject.usage.is_near_limit());
}

#[test]
fn changed_limits_need_new_ceilings() {
    let subject = subject(requests(10));
    subject.allot(requests(5));
    subject.usage.set_policy(*subject.usage.policy());
    assert!(!subject.is_demanded());
    let limits = UsageLimits::new(requests(20));
    subject.usage.set_policy(UsagePolicy { limits, ..*subject.usage.policy() });
    assert!(subject.is_demanded() && subject.usage.reached(UsagePurpose::Read).is_some());
}
