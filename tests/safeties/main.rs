//! Safeties of the engine and the workers, switched off from outside: each scenario is played twice, and without its
//! safety it ends with exactly the damage that the table names. Those of the catalog's units are cut out beside them, in
//! `crates/catalog/src/sabotage.rs`. Nothing here is a switch of the product: what stands for a safety that is off is a
//! backend that lies, a driver that forgets, or a setting that no operator would choose.

mod bent;
mod house;
mod misled;
mod scenarios;

use std::collections::BTreeSet;

use futures_util::future::BoxFuture;

use house::House;
use scenarios::{
    a_crash_before_the_commit, a_delete_waits_while_its_key_is_written_again, a_disk_is_swapped, a_failed_overwrite,
    a_lost_answer_to_a_commit, a_slow_upload_begins, a_slow_write_asks_in_vain, a_slow_write_has_no_answer,
    a_slow_write_is_overtaken, a_slow_write_is_refused, a_store_that_says_nothing, a_write_lands_late,
    a_write_that_was_given_up, an_outage, an_unannounced_upload_breaks, an_unannounced_write_lands_late,
    the_wrong_bytes_arrived,
};

/// Whether the safety of a scenario is in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Safety {
    /// It is.
    On,
    /// It is not.
    Off,
}

impl Safety {
    /// Whether it is switched off.
    #[must_use]
    pub fn is_off(self) -> bool {
        self == Self::Off
    }
}

const LEAKED: &str = "bytes lie on the backend and no row names them";
const LOST: &str = "an object's bytes are gone";
const FALSE_ANSWER: &str = "a write that was given up was acknowledged";
const GIVEN_UP: &str = "an outage made a dead letter";
const WRONG_BYTES: &str = "an object has bytes that its sender did not declare";

/// A scenario: what it leaves behind, and what it saw happen.
type Play = fn(Safety) -> BoxFuture<'static, (House, Vec<&'static str>)>;

macro_rules! safeties {
    ($($name:ident by $play:ident: $off:literal, [$($damage:ident),+];)+) => {
        /// Every safety, what stands for its being off, and the damage that is done then.
        const SAFETIES: &[(&str, &str, &[&str], Play)] =
            &[$((stringify!($name), $off, &[$($damage),+], |safety| Box::pin($play(safety)))),+];

        $(#[tokio::test]
        async fn $name() {
            play(stringify!($name)).await;
        })+
    };
}

safeties! {
    a_physical_key_is_used_once by a_delete_waits_while_its_key_is_written_again:
        "the backend stores under the logical key", [LOST];
    an_overwrite_does_not_touch_old_bytes by a_failed_overwrite:
        "the backend stores under the logical key", [LOST];
    an_intent_comes_before_the_bytes by a_crash_before_the_commit:
        "direct mode", [LEAKED];
    unknown_is_not_absent by a_store_that_says_nothing:
        "the backend says Absent where it knows nothing", [LEAKED];
    absence_counts_only_after_the_window by a_write_lands_late:
        "a window of no length", [LEAKED];
    a_fenced_writer_queues_its_bytes_again by a_slow_write_is_overtaken:
        "the driver forgets the unit", [LEAKED];
    so_does_one_whose_answer_was_lost by a_slow_write_has_no_answer:
        "the driver forgets the unit", [LEAKED];
    so_does_one_that_cannot_ask by a_slow_write_asks_in_vain:
        "the driver forgets the unit", [LEAKED];
    so_does_one_that_is_refused_for_another_reason by a_slow_write_is_refused:
        "the driver forgets the unit", [LEAKED];
    so_does_one_that_began_an_upload by a_slow_upload_begins:
        "the driver forgets the unit", [LEAKED];
    an_unannounced_upload_is_queued by an_unannounced_upload_breaks:
        "the driver forgets the unit", [LEAKED];
    an_unannounced_write_is_looked_out_for by an_unannounced_write_lands_late:
        "the driver forgets the unit", [LEAKED];
    an_identity_is_compared_before_deletes by a_disk_is_swapped:
        "a comparison is good for ever", [LEAKED];
    an_outage_spends_no_attempt by an_outage:
        "the backend says Refused where it is away", [GIVEN_UP];
    nothing_compensates_for_an_unknown_commit by a_lost_answer_to_a_commit:
        "the bytes are deleted at once", [LOST];
    a_lease_tells_whose_an_intent_was by a_write_that_was_given_up:
        "the driver promises a longer lease", [FALSE_ANSWER];
    what_was_declared_is_compared_with_what_is_there by the_wrong_bytes_arrived:
        "nothing that was declared is kept", [WRONG_BYTES];
}

async fn play(name: &str) {
    let (_, off, damage, scenario) = SAFETIES.iter().find(|(known, ..)| *known == name).expect("in the table");
    for (safety, expected) in [(Safety::On, &[] as &[&str]), (Safety::Off, damage)] {
        let (house, told) = scenario(safety).await;
        let found: BTreeSet<&str> = told.into_iter().chain(house.damage().await).collect();
        assert_eq!(found, expected.iter().copied().collect(), "{name} is {safety:?} ({off})");
    }
}
