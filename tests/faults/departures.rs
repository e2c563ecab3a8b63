//! When objects go by themselves: told with every answer, and asked for by none.

use std::sync::Arc;

use s3o_catalog::Mode;
use s3o_model::lifecycle::{DepartsBy, Departure, Expiration, Filter, Form, Rule, Status};
use s3o_tests::house::{House, bucket, copy, get};
use s3o_tests::points::Blow;

async fn house() -> House {
    House::new(u64::MAX, Mode::Inline).await
}

async fn set_rule(house: &House, id: &str, days: u32) {
    let rule = Rule {
        id: id.to_owned(),
        status: Status::Enabled,
        filter: Filter { prefix: Some("tmp/".to_owned()), ..Filter::default() },
        form: Form::Plain,
        expiration: Some(Expiration::Days(days)),
        abort_after_days: None,
    };
    house.engine.set_lifecycle(&bucket(), Some(&[rule])).await.expect("set");
}

async fn put(house: &House) -> Option<Departure> {
    house.engine.put_object(house.put("tmp/a", b"body", &Arc::new(()))).await.expect("stored").departure
}

async fn head(house: &House) -> Option<Departure> {
    house.engine.head_object(&get("tmp/a")).await.expect("found").departure
}

async fn open(house: &House) -> Option<Departure> {
    house.engine.get_object(get("tmp/a")).await.expect("opened").found.departure
}

async fn copied(house: &House) -> Option<Departure> {
    house.engine.copy_object(copy("tmp/a", "tmp/b")).await.expect("copied").departure
}

/// What the requests tell, each with the number of calls that it took.
async fn asked(house: &House) -> Vec<(Option<String>, usize)> {
    let mut told = Vec::new();
    let mut before = house.points.passed();
    let mut note = |departure: Option<Departure>| {
        let rule = departure.map(|departure| match departure.by {
            DepartsBy::Rule(name) => name,
            DepartsBy::Expiry => panic!("it has no expiry"),
        });
        let passed = house.points.passed();
        told.push((rule, passed - std::mem::replace(&mut before, passed)));
    };
    note(put(house).await);
    note(head(house).await);
    note(open(house).await);
    note(copied(house).await);
    told
}

#[tokio::test]
async fn telling_when_an_object_goes_costs_no_question() {
    let house = house().await;
    put(&house).await;
    copied(&house).await;
    let without = asked(&house).await;
    assert!(without.iter().all(|(rule, _)| rule.is_none()), "{without:?}");
    for id in ["first", "second"] {
        set_rule(&house, id, 3).await;
        let changed = asked(&house).await;
        let expected: Vec<_> = without.iter().map(|(_, calls)| (Some(id.to_owned()), *calls)).collect();
        // The rules are read once, for whoever comes first after they changed.
        assert_eq!((changed[0].1, &changed[1..]), (expected[0].1 + 1, &expected[1..]));
        assert_eq!(asked(&house).await, expected);
    }
    house.engine.set_lifecycle(&bucket(), None).await.expect("removed");
    assert_eq!(asked(&house).await, without);
    println!("calls of PUT, HEAD, GET, COPY: {:?}", without.iter().map(|(_, calls)| calls).collect::<Vec<_>>());
}

#[tokio::test]
async fn an_object_is_answered_though_its_rules_cannot_be_read() {
    let house = house().await;
    put(&house).await;
    set_rule(&house, "rule", 3).await;
    house.points.strike_at(2, Blow::LoseAnswer);
    assert_eq!(head(&house).await, None);
    assert!(house.points.has_struck());
    assert!(head(&house).await.is_some(), "read again");
}

#[tokio::test]
async fn a_write_tells_when_its_object_goes_whatever_answer_was_lost() {
    let house = house().await;
    set_rule(&house, "rule", 3).await;
    let expected = put(&house).await;
    assert!(expected.is_some());
    let before = house.points.passed();
    put(&house).await;
    let calls = house.points.passed() - before;
    let (mut lost, mut stored) = (0, 0);
    for number in 1..=calls {
        house.points.strike_at(number, Blow::LoseAnswer);
        let units = house.catalog.effort().units;
        if let Ok(done) = house.engine.put_object(house.put("tmp/a", b"body", &Arc::new(()))).await {
            assert_eq!(done.departure, expected, "at call {number} of {calls}");
            stored += 1;
            // The unit that tells whether the commit happened.
            lost += usize::from(house.catalog.effort().units - units > 2);
        }
    }
    assert!(lost > 0 && stored > lost, "{lost} of {stored}");
}
