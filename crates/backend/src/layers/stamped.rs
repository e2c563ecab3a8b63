//! The conformance suite on a backend behind all layers: none of them changes a contract.

use std::future::{Ready, ready};
use std::sync::Arc;
use std::time::Duration;

use s3o_model::entropy::SystemEntropy;
use s3o_model::names::BackendName;

use super::{Flaky, IdleTimeout, Meter, Metered, Retry, RetryOptions};
use crate::{Memory, SharedBackend};

struct Unread;

impl Meter for Unread {
    fn observe(&self, _: &BackendName, _: &'static str, _: &'static str, _: Duration) {}
    fn bytes_in(&self, _: &BackendName, _: u64) {}
    fn bytes_out(&self, _: &BackendName, _: u64) {}
}

fn layered_subject() -> Ready<(SharedBackend, ())> {
    let memory = Arc::new(Memory::new("memory".parse().expect("valid")));
    let flaky = Arc::new(Flaky::new(memory));
    let timed = Arc::new(IdleTimeout::new(flaky, Duration::from_secs(30)));
    let retried = Arc::new(Retry::new(timed, RetryOptions::default(), Arc::new(SystemEntropy)));
    ready((Arc::new(Metered::new(retried, Arc::new(Unread))), ()))
}

crate::conformance!(crate::layers::stamped::layered_subject);
