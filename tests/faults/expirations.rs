//! The expiration in the answers to requests: present in every answer, without further calls.

use std::sync::Arc;

use s3o_catalog::Mode;
use s3o_model::lifecycle::{DeletionCause, Expiration, Filter, Form, Rule, ScheduledDeletion, Status};
use s3o_tests::call_points::CallFault;
use s3o_tests::harness::{Harness, bucket, copy, get};

async fn harness() -> Harness {
    Harness::new(u64::MAX, Mode::Inline).await
}

async fn set_rule(harness: &Harness, id: &str, days: u32) {
    let rule = Rule {
        id: id.to_owned(),
        status: Status::Enabled,
        filter: Filter { prefix: Some("tmp/".to_owned()), ..Filter::default() },
        form: Form::Plain,
        expiration: Some(Expiration::Days(days)),
        abort_after_days: None,
    };
    harness.engine.set_lifecycle(&bucket(), Some(&[rule])).await.expect("set");
}

async fn put(harness: &Harness) -> Option<ScheduledDeletion> {
    harness.engine.put_object(harness.put("tmp/a", b"body", &Arc::new(()))).await.expect("stored").expiration
}

async fn head(harness: &Harness) -> Option<ScheduledDeletion> {
    harness.engine.head_object(&get("tmp/a")).await.expect("found").expiration
}

async fn open(harness: &Harness) -> Option<ScheduledDeletion> {
    harness.engine.get_object(get("tmp/a")).await.expect("opened").found.expiration
}

async fn copied(harness: &Harness) -> Option<ScheduledDeletion> {
    harness.engine.copy_object(copy("tmp/a", "tmp/b")).await.expect("copied").expiration
}

/// For PUT, HEAD, GET and COPY: the rule in the answer, and the number of calls.
async fn rules_and_calls(harness: &Harness) -> Vec<(Option<String>, usize)> {
    let mut answers = Vec::new();
    let mut before = harness.points.passed();
    let mut record = |expiration: Option<ScheduledDeletion>| {
        let rule = expiration.map(|expiration| match expiration.by {
            DeletionCause::Rule(name) => name,
            DeletionCause::Expiry => panic!("the object has no expiry of its own"),
        });
        let passed = harness.points.passed();
        answers.push((rule, passed - std::mem::replace(&mut before, passed)));
    };
    record(put(harness).await);
    record(head(harness).await);
    record(open(harness).await);
    record(copied(harness).await);
    answers
}

#[tokio::test]
async fn expiration_in_answers_costs_no_extra_call() {
    let harness = harness().await;
    put(&harness).await;
    copied(&harness).await;
    let without = rules_and_calls(&harness).await;
    assert!(without.iter().all(|(rule, _)| rule.is_none()), "{without:?}");
    for id in ["first", "second"] {
        set_rule(&harness, id, 3).await;
        let changed = rules_and_calls(&harness).await;
        let expected: Vec<_> = without.iter().map(|(_, calls)| (Some(id.to_owned()), *calls)).collect();
        // The first request after a change reads the rules once.
        assert_eq!((changed[0].1, &changed[1..]), (expected[0].1 + 1, &expected[1..]));
        assert_eq!(rules_and_calls(&harness).await, expected);
    }
    harness.engine.set_lifecycle(&bucket(), None).await.expect("removed");
    assert_eq!(rules_and_calls(&harness).await, without);
    println!("calls of PUT, HEAD, GET, COPY: {:?}", without.iter().map(|(_, calls)| calls).collect::<Vec<_>>());
}

#[tokio::test]
async fn object_is_served_without_expiration_while_rules_are_unreadable() {
    let harness = harness().await;
    put(&harness).await;
    set_rule(&harness, "rule", 3).await;
    harness.points.inject_at(2, CallFault::LoseAnswer);
    assert_eq!(head(&harness).await, None);
    assert!(harness.points.has_injected());
    assert!(head(&harness).await.is_some(), "read again");
}

#[tokio::test]
async fn write_answer_has_expiration_whichever_answer_is_lost() {
    let harness = harness().await;
    set_rule(&harness, "rule", 3).await;
    let expected = put(&harness).await;
    assert!(expected.is_some());
    let before = harness.points.passed();
    put(&harness).await;
    let calls = harness.points.passed() - before;
    let (mut lost, mut stored) = (0, 0);
    for number in 1..=calls {
        harness.points.inject_at(number, CallFault::LoseAnswer);
        let units = harness.catalog.effort().units;
        if let Ok(done) = harness.engine.put_object(harness.put("tmp/a", b"body", &Arc::new(()))).await {
            assert_eq!(done.expiration, expected, "at call {number} of {calls}");
            stored += 1;
            // A third unit queries the outcome of the commit.
            lost += usize::from(harness.catalog.effort().units - units > 2);
        }
    }
    assert!(lost > 0 && stored > lost, "{lost} of {stored}");
}
