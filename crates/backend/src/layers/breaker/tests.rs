//! Tests of the circuit breaker over a backend that fails on purpose.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use s3o_model::circuit::{CircuitSettings, CircuitState};
use s3o_model::clock::{ManualClock, Timestamp};
use s3o_model::entropy::SeededEntropy;
use s3o_model::shared::Shared;

use super::Breaker;
use crate::fleet::{BreakerContext, CallKind, Circuits};
use crate::identity::IDENTITY_KEY;
use crate::layers::{Fault, Flaky};
use crate::{Backend, BodyError, ByteStream, DeleteAnswer, DeleteKey, Error, Memory, PartOf, Probe, Span, body};

const SETTINGS: CircuitSettings = CircuitSettings {
    failure_threshold: 2,
    open_timeout: Duration::from_secs(30),
    probe_timeout: Duration::from_mins(2),
};

struct Subject {
    flaky: Arc<Flaky>,
    circuits: Arc<Circuits>,
    clock: Arc<ManualClock>,
    backend: Breaker,
}

impl Subject {
    fn new() -> Self {
        let memory = Memory::new("memory".parse().expect("valid"));
        let flaky = Arc::new(Flaky::new(Arc::new(memory)));
        let clock = Arc::new(ManualClock::starting_at(Timestamp::from_millis(1_000_000)));
        let entropy = Arc::new(SeededEntropy::new(1));
        let context = BreakerContext { settings: Shared::new(SETTINGS), clock: clock.clone(), entropy };
        let circuits = Arc::new(Circuits::new("memory".parse().expect("valid"), context, Arc::default()));
        let backend = Breaker::new(flaky.clone(), Arc::clone(&circuits));
        Self { flaky, circuits, clock, backend }
    }

    /// Makes the next call fail with this fault.
    fn fail_next(&self, fault: Fault) {
        self.flaky.fail_call(self.flaky.calls() + 1, fault);
    }

    async fn put(&self, key: &str) -> Result<(), Error> {
        self.backend.put(key, 1, body::whole(Bytes::from("x"))).await.map(drop)
    }

    async fn read(&self, key: &str, span: Option<Span>) -> Result<usize, Error> {
        let mut bytes = 0;
        let mut body = self.backend.get(key.into(), span).await?;
        while let Some(chunk) = body.next().await {
            bytes += chunk?.len();
        }
        Ok(bytes)
    }

    fn states(&self) -> (CircuitState, CircuitState) {
        (self.circuits.state(CallKind::Read), self.circuits.state(CallKind::Write))
    }

    async fn open_writes(&self) {
        for key in ["first", "second"] {
            self.fail_next(Fault::Before);
            assert!(self.put(key).await.is_err());
        }
        assert_eq!(self.states(), (CircuitState::Closed, CircuitState::Open));
    }
}

#[tokio::test]
async fn an_open_circuit_makes_no_call() {
    let subject = Subject::new();
    subject.open_writes().await;
    let calls = subject.flaky.calls();
    assert!(matches!(subject.put("k").await, Err(Error::NotSent(_))));
    assert!(matches!(subject.backend.start_upload("k").await, Err(Error::NotSent(_))));
    let doomed = [DeleteKey { key: "k".to_owned(), version_id: None }];
    assert!(matches!(subject.backend.delete_batch(&doomed).await[..], [DeleteAnswer::Away(_)]));
    assert!(matches!(subject.backend.abort_upload("k", "u").await, DeleteAnswer::Away(_)));
    assert_eq!(subject.flaky.calls(), calls);
}

#[tokio::test]
async fn reads_do_not_close_writes_and_writes_do_not_close_reads() {
    let subject = Subject::new();
    subject.put("k").await.expect("put");
    subject.fail_next(Fault::Before);
    assert!(subject.put("a").await.is_err());
    assert_eq!(subject.read("k", None).await.expect("read"), 1);
    subject.fail_next(Fault::Before);
    assert!(subject.put("b").await.is_err());
    assert_eq!(subject.states(), (CircuitState::Closed, CircuitState::Open), "the read was no success of writes");
    assert_eq!(subject.read("k", None).await.expect("read"), 1);
}

#[tokio::test]
async fn writes_resume_with_one_real_write_after_a_good_probe() {
    let subject = Subject::new();
    subject.open_writes().await;
    subject.circuits.record_probe(true);
    assert_eq!(subject.states().1, CircuitState::Open, "its time has not ended");
    subject.clock.advance(SETTINGS.open_timeout);
    subject.circuits.record_probe(true);
    assert_eq!(subject.states().1, CircuitState::HalfOpen);
    subject.fail_next(Fault::Before);
    assert!(subject.put("third").await.is_err());
    assert_eq!(subject.states().1, CircuitState::Open);
    subject.clock.advance(SETTINGS.open_timeout * 2);
    subject.circuits.record_probe(true);
    subject.put("fourth").await.expect("put");
    assert_eq!(subject.states().1, CircuitState::Closed);
}

#[tokio::test]
async fn a_probe_closes_reads_and_a_failed_one_prolongs() {
    let subject = Subject::new();
    for _ in 0..2 {
        subject.fail_next(Fault::Unknown);
        assert!(subject.backend.list("", None, 1).await.is_err());
    }
    assert_eq!(subject.states(), (CircuitState::Open, CircuitState::Closed));
    assert_eq!(subject.backend.probe("k".into()).await, Probe::Unknown("its circuit breaker is open".to_owned()));
    subject.clock.advance(SETTINGS.open_timeout);
    subject.circuits.record_probe(false);
    let wait = subject.circuits.next_deadline().expect("open");
    assert!(wait > SETTINGS.open_timeout / 2 && wait <= SETTINGS.open_timeout * 2, "{wait:?}");
    subject.clock.advance(wait + Duration::from_millis(1));
    subject.circuits.record_probe(true);
    assert_eq!(subject.states(), (CircuitState::Closed, CircuitState::Closed));
}

#[tokio::test]
async fn bodies_that_the_store_cuts_off_are_failures() {
    let subject = Subject::new();
    for key in ["k", "l"] {
        subject.backend.put(key, 4, body::whole(Bytes::from("abcd"))).await.expect("put");
    }
    for key in ["k", "l"] {
        subject.fail_next(Fault::Cut(2));
        assert!(subject.read(key, None).await.is_err());
    }
    assert_eq!(subject.states().0, CircuitState::Open);
}

#[tokio::test]
async fn one_unreadable_key_does_not_open_the_circuit() {
    let subject = Subject::new();
    subject.put("bad").await.expect("put");
    for _ in 0..5 {
        subject.fail_next(Fault::Before);
        assert!(subject.read("bad", None).await.is_err());
    }
    assert_eq!(subject.states().0, CircuitState::Closed);
    subject.circuits.record_probe(false);
    assert_eq!(subject.states().0, CircuitState::Open, "the identity object is another key");
}

#[tokio::test]
async fn small_answers_do_not_hide_failing_bodies() {
    let subject = Subject::new();
    subject.put("k").await.expect("put");
    for key in ["a", "b"] {
        let upload = subject.backend.start_upload(key).await.expect("started");
        subject.fail_next(Fault::Before);
        let part = PartOf { key, upload: &upload, number: 1 };
        assert!(subject.backend.put_part(part, 1, body::whole(Bytes::from("x"))).await.is_err());
        assert!(matches!(subject.backend.probe("k".into()).await, Probe::Present(_)));
        subject.fail_next(Fault::Before);
        assert!(subject.read(key, None).await.is_err());
    }
    assert_eq!(subject.states(), (CircuitState::Open, CircuitState::Open));
}

#[tokio::test]
async fn slow_reads_put_a_backend_last_until_one_is_quick_or_the_open_timeout_ends() {
    let subject = Subject::new();
    subject.circuits.record_first_byte(None);
    assert!(!subject.circuits.is_slow());
    subject.circuits.record_first_byte(None);
    assert!(subject.circuits.is_slow());
    assert_eq!(subject.states().0, CircuitState::Closed, "it is still called");
    subject.clock.advance(SETTINGS.open_timeout);
    assert!(!subject.circuits.is_slow(), "the next read shows whether it still is");
    subject.circuits.record_first_byte(None);
    assert!(subject.circuits.is_slow());
    subject.circuits.record_first_byte(Some(Duration::ZERO));
    assert!(!subject.circuits.is_slow());
}

#[tokio::test]
async fn a_reader_that_takes_every_byte_of_its_span_is_a_success() {
    let subject = Subject::new();
    subject.put("k").await.expect("put");
    for _ in 0..3 {
        subject.fail_next(Fault::Cut(0));
        assert!(subject.read("k", None).await.is_err());
        let span = Some(Span { offset: 0, length: 1 });
        let mut body = subject.backend.get("k".into(), span).await.expect("get");
        body.next().await.expect("a chunk").expect("bytes");
    }
    assert_eq!(subject.states().0, CircuitState::Closed);
}

#[tokio::test]
async fn absent_keys_broken_bodies_and_full_stores_are_no_failures() {
    let subject = Subject::new();
    for _ in 0..3 {
        assert!(matches!(subject.read("missing", None).await, Err(Error::NotFound)));
        assert_eq!(subject.backend.probe("missing".into()).await, Probe::Absent);
        let broken: ByteStream = Box::pin(stream::iter([Err(BodyError::Broken("client".to_owned()))]));
        assert!(matches!(subject.backend.put("k", 1, broken).await, Err(Error::Body(_))));
        subject.fail_next(Fault::NoSpace(0));
        assert!(matches!(subject.put("k").await, Err(Error::NoSpace(_))));
        drop(subject.backend.get("missing".into(), None));
    }
    assert_eq!(subject.states(), (CircuitState::Closed, CircuitState::Closed));
}

#[tokio::test]
async fn refusal_of_one_key_is_no_failure_unless_the_identity_is_refused_too() {
    let subject = Subject::new();
    subject.backend.write_own(IDENTITY_KEY, Bytes::from("{}")).await.expect("written");
    for _ in 0..3 {
        subject.fail_next(Fault::Refused);
        assert!(matches!(subject.put("k").await, Err(Error::Refused(_))));
    }
    assert_eq!(subject.states().1, CircuitState::Closed);
    for _ in 0..2 {
        let next = subject.flaky.calls() + 1;
        subject.flaky.fail_call(next, Fault::Refused);
        subject.flaky.fail_call(next + 1, Fault::Refused);
        assert!(matches!(subject.put("k").await, Err(Error::Away(_))), "another backend may take the write");
    }
    assert_eq!(subject.states().1, CircuitState::Open);
}

#[tokio::test(start_paused = true)]
async fn a_slow_client_does_not_keep_the_trial() {
    let subject = Subject::new();
    subject.open_writes().await;
    subject.clock.advance(SETTINGS.open_timeout);
    subject.circuits.record_probe(true);
    let stalled: ByteStream = Box::pin(stream::once(async {
        tokio::time::sleep(Duration::from_mins(1)).await;
        Ok(Bytes::from("x"))
    }));
    let slow = subject.backend.put("slow", 1, stalled);
    let other = async {
        assert!(matches!(subject.put("early").await, Err(Error::NotSent(_))), "the slow write is the trial");
        tokio::time::sleep(Duration::from_secs(2)).await;
        subject.put("other").await.expect("it is the trial now");
        assert_eq!(subject.states().1, CircuitState::Closed);
    };
    let (slow, ()) = tokio::join!(slow, other);
    slow.expect("stored");
}

#[tokio::test]
async fn a_trial_that_never_ends_expires() {
    let subject = Subject::new();
    subject.open_writes().await;
    subject.clock.advance(SETTINGS.open_timeout);
    subject.circuits.record_probe(true);
    assert!(subject.circuits.admit(CallKind::Write).is_some());
    assert!(subject.circuits.admit(CallKind::Write).is_none());
    assert_eq!(subject.states().1, CircuitState::HalfOpen);
    subject.clock.advance(SETTINGS.probe_timeout);
    assert_eq!(subject.states().1, CircuitState::Open);
}

#[tokio::test]
async fn refused_deletes_are_the_fault_of_the_store_if_it_refuses_its_identity_too() {
    let subject = Subject::new();
    let doomed = [DeleteKey { key: "k".to_owned(), version_id: None }];
    subject.fail_next(Fault::Refused);
    assert!(matches!(subject.backend.delete_batch(&doomed).await[..], [DeleteAnswer::Refused(_)]));
    for _ in 0..2 {
        let next = subject.flaky.calls() + 1;
        subject.flaky.fail_call(next, Fault::Refused);
        subject.flaky.fail_call(next + 1, Fault::Refused);
        assert!(matches!(subject.backend.delete_batch(&doomed).await[..], [DeleteAnswer::Away(_)]));
    }
    assert_eq!(subject.states(), (CircuitState::Open, CircuitState::Closed));
}

#[tokio::test]
async fn writes_without_an_answer_open_the_circuit_and_fail_a_trial() {
    let subject = Subject::new();
    (0..SETTINGS.failure_threshold).for_each(|_| subject.circuits.record_unanswered_write());
    assert_eq!(subject.states().1, CircuitState::Open);
    subject.clock.advance(SETTINGS.open_timeout);
    subject.circuits.record_probe(true);
    subject.circuits.record_unanswered_write();
    assert_eq!(subject.states(), (CircuitState::Closed, CircuitState::Open));
}
