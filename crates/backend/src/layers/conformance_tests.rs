//! Runs the conformance suite on a backend behind all layers.

use std::future::{Ready, ready};
use std::sync::Arc;
use std::time::Duration;

use s3o_model::clock::SystemClock;
use s3o_model::entropy::SystemEntropy;
use s3o_model::names::BackendName;
use s3o_model::shared::Shared;
use s3o_model::usage::UsagePolicy;

use super::{Breaker, CountedCalls, Flaky, IdleTimeout, Meter, Metered, Retry, RetryOptions};
use crate::fleet::{BreakerContext, Circuits};
use crate::usage::{BackendUsage, CatalogTime, UsageContext};
use crate::{Memory, SharedBackend};

struct IgnoredMeter;

impl Meter for IgnoredMeter {
    fn observe(&self, _: &BackendName, _: &'static str, _: &'static str, _: Duration) {}
    fn bytes_in(&self, _: &BackendName, _: u64) {}
    fn bytes_out(&self, _: &BackendName, _: u64) {}
}

fn layered_subject() -> Ready<(SharedBackend, ())> {
    let memory = Arc::new(Memory::new("memory".parse().expect("valid")));
    let time = Arc::new(CatalogTime::new(Arc::new(SystemClock)));
    let counting = UsageContext { time, demand: Arc::default(), resume_delay: Duration::ZERO };
    let usage = BackendUsage::new("memory".parse().expect("valid"), UsagePolicy::default(), counting);
    let counted = Arc::new(CountedCalls::new(memory, Arc::new(usage)));
    let flaky = Arc::new(Flaky::new(counted));
    let timed = Arc::new(IdleTimeout::new(flaky, Duration::from_secs(30)));
    let retried = Arc::new(Retry::new(timed, RetryOptions::default(), Arc::new(SystemEntropy)));
    let metered = Arc::new(Metered::new(retried, Arc::new(IgnoredMeter)));
    let context =
        BreakerContext { settings: Shared::default(), clock: Arc::new(SystemClock), entropy: Arc::new(SystemEntropy) };
    let circuits = Arc::new(Circuits::new("memory".parse().expect("valid"), context, Arc::default()));
    ready((Arc::new(Breaker::new(metered, circuits)), ()))
}

crate::conformance!(crate::layers::conformance_tests::layered_subject);
