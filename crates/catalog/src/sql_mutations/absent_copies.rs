//! Guards of copies that an accepted store lacks: none is given up whose bytes may still be there.

use std::time::Duration;

use s3o_model::clock::{Timestamp, millis_of};
use s3o_model::ids::ContentId;

use super::Cut::Words;
use super::{Damage, damage_if, guards};
use crate::IdentityRecord;
use crate::conformance::fixture::{Fixture, backend};

const GIVEN_UP: &str = "a copy was given up whose bytes may be there";

guards! { [sqlite]
    a_copy_is_given_up_only_after_an_accept in no_operator_accepted_the_store: "lose_absent_copy",
        [Words("coalesce(l.verified_at, 0) < t.trust_from AND t.trust_from <= $4", "coalesce(t.trust_from, 0) <= $4")],
        [GIVEN_UP];
    a_copy_found_after_the_accept_is_kept in copy_was_found_on_the_accepted_store: "lose_absent_copy",
        [Words("coalesce(l.verified_at, 0) < t.trust_from AND", "1 = 1 AND")], [GIVEN_UP];
    only_a_probe_of_the_accepted_store_counts in store_is_accepted_after_the_probe: "lose_absent_copy",
        [Words(" AND t.trust_from <= $4", " AND $4 > 0")], [GIVEN_UP];
    a_copy_that_was_confirmed_is_kept in copy_is_confirmed_meanwhile: "lose_absent_copy",
        [Words(" AND l.state = 'suspect' AND coalesce", " AND coalesce"), Words(" AND state = 'suspect'", "")],
        [GIVEN_UP];
    a_copy_on_a_disputed_store_is_kept in another_instance_finds_another_store: "lose_absent_copy",
        [Words("identity_records.backend_name = l.backend_name", "identity_records.backend_name = ''")], [GIVEN_UP];
    a_copy_on_a_frozen_store_is_kept in store_is_frozen: "lose_absent_copy",
        [Words(" AND k.frozen_reason IS NULL", "")], [GIVEN_UP];
}

/// A suspect copy on `disk`, and another copy on `east`.
async fn suspect_copy(fixture: &Fixture) -> ContentId {
    let bucket = fixture.bucket_with_factor(2).await;
    let content = fixture.put_copies(bucket, &["disk", "east"], 2).await;
    let copy = fixture.copy_on(content, "disk").await;
    assert!(fixture.catalog.suspect(content, &copy).await.expect("marked"));
    fixture.clock.advance(Duration::from_mins(1));
    content
}

async fn accept(fixture: &Fixture) {
    let accepted = crate::params![fixture.now().millis()];
    fixture.change("UPDATE backends SET trust_from = $1 WHERE name = 'disk'", accepted).await;
}

fn earlier(fixture: &Fixture, by: Duration) -> Timestamp {
    Timestamp::from_millis(fixture.now().millis() - millis_of(by))
}

/// The copy was probed `before` now.
async fn given_up(fixture: &Fixture, content: ContentId, before: Duration) -> Damage {
    let copy = fixture.copy_on(content, "disk").await;
    let since = earlier(fixture, before);
    fixture.catalog.lose_absent_copy(content, &copy, since).await.unwrap_or_default();
    damage_if(!fixture.places_of(content).await.contains(&"disk".to_owned()), GIVEN_UP)
}

async fn no_operator_accepted_the_store(fixture: &Fixture) -> Damage {
    let content = suspect_copy(fixture).await;
    given_up(fixture, content, Duration::ZERO).await
}

async fn copy_was_found_on_the_accepted_store(fixture: &Fixture) -> Damage {
    let content = suspect_copy(fixture).await;
    accept(fixture).await;
    let copy = fixture.copy_on(content, "disk").await;
    fixture.catalog.confirm_copy(content, &copy, fixture.now()).await.expect("confirmed");
    assert!(fixture.catalog.suspect(content, &copy).await.expect("marked"));
    given_up(fixture, content, Duration::ZERO).await
}

async fn store_is_accepted_after_the_probe(fixture: &Fixture) -> Damage {
    let content = suspect_copy(fixture).await;
    accept(fixture).await;
    given_up(fixture, content, Duration::from_secs(1)).await
}

/// Another instance has read the copy before the accept and records that after it.
async fn copy_is_confirmed_meanwhile(fixture: &Fixture) -> Damage {
    let content = suspect_copy(fixture).await;
    let since = earlier(fixture, Duration::from_secs(1));
    accept(fixture).await;
    let copy = fixture.copy_on(content, "disk").await;
    fixture.catalog.confirm_copy(content, &copy, since).await.expect("confirmed");
    given_up(fixture, content, Duration::ZERO).await
}

async fn another_instance_finds_another_store(fixture: &Fixture) -> Damage {
    let content = suspect_copy(fixture).await;
    accept(fixture).await;
    let record = IdentityRecord {
        host: "other".to_owned(),
        found: "null".to_owned(),
        hash: "h".to_owned(),
        reason: Some("another cluster".to_owned()),
        dismissed: false,
        age: Duration::ZERO,
    };
    fixture.catalog.record(&backend("disk"), &record, Duration::from_hours(1)).await.expect("recorded");
    given_up(fixture, content, Duration::ZERO).await
}

async fn store_is_frozen(fixture: &Fixture) -> Damage {
    let content = suspect_copy(fixture).await;
    accept(fixture).await;
    fixture.change("UPDATE backends SET frozen_reason = 'wrong disk' WHERE name = 'disk'", vec![]).await;
    given_up(fixture, content, Duration::ZERO).await
}
