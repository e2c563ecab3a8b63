//! Guards of the engine and the workers, disabled from outside. Each scenario runs twice: with its guard it leaves no
//! damage, without it exactly the damage that the table names. The guards in the catalog's SQL are tested by mutations
//! of its statements, in the catalog crate. The product has no switch for a guard: a guard is disabled by a backend
//! that answers wrongly, a driver that drops a unit, or a setting that no operator would choose.

mod context;
mod faulty_backend;
mod faulty_driver;
mod scenarios;

use std::collections::BTreeSet;

use futures_util::future::LocalBoxFuture;

use context::GuardContext;
use scenarios::{
    commit_answer_is_lost, crash_before_commit, delete_waits_while_key_is_rewritten, direct_upload_fails,
    direct_write_takes_effect_late, disk_is_swapped, outage, overwrite_fails, slow_upload_starts_after_fence,
    slow_write_fails_to_commit, slow_write_is_fenced, slow_write_loses_backend_answer, slow_write_loses_commit_answer,
    store_answers_wrong_404, write_takes_effect_late, write_was_abandoned, wrong_bytes_were_stored,
};

/// Whether a scenario runs with its guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GuardState {
    On,
    Off,
}

impl GuardState {
    pub(crate) fn is_off(self) -> bool {
        self == Self::Off
    }
}

const LEAKED: &str = "no row names bytes on the backend";
const LOST: &str = "the bytes of an object were deleted";
const FALSE_ANSWER: &str = "an abandoned write was acknowledged";
const DEAD_LETTER: &str = "an outage created a dead letter";
const WRONG_BYTES: &str = "an object has bytes that its client did not declare";

/// A scenario; returns the damage that it saw itself.
type RunScenario = fn(GuardState) -> LocalBoxFuture<'static, (GuardContext, Vec<&'static str>)>;

macro_rules! guards {
    ($($name:ident by $scenario:ident: $off:literal, [$($damage:ident),+];)+) => {
        /// Every guard, how it is disabled, and the damage without it.
        const GUARDS: &[(&str, &str, &[&str], RunScenario)] =
            &[$((stringify!($name), $off, &[$($damage),+], |guard| Box::pin($scenario(guard)))),+];

        $(#[tokio::test]
        async fn $name() {
            run(stringify!($name)).await;
        })+
    };
}

guards! {
    physical_key_is_never_reused by delete_waits_while_key_is_rewritten:
        "the backend stores under the logical key", [LOST];
    overwrite_keeps_old_bytes_until_commit by overwrite_fails:
        "the backend stores under the logical key", [LOST];
    intent_is_committed_before_bytes_are_sent by crash_before_commit:
        "direct mode", [LEAKED];
    unknown_answer_is_not_absence by store_answers_wrong_404:
        "the backend answers Absent where the answer is unknown", [LEAKED];
    absence_is_final_only_after_late_write_window by write_takes_effect_late:
        "late_write_window is zero", [LEAKED];
    fenced_writer_requeues_its_bytes by slow_write_is_fenced:
        "the driver drops the unit", [LEAKED];
    fenced_writer_requeues_after_lost_backend_answer by slow_write_loses_backend_answer:
        "the driver drops the unit", [LEAKED];
    fenced_writer_requeues_after_lost_commit_answer by slow_write_loses_commit_answer:
        "the driver drops the unit", [LEAKED];
    fenced_writer_requeues_after_failed_commit by slow_write_fails_to_commit:
        "the driver drops the unit", [LEAKED];
    fenced_writer_requeues_started_upload by slow_upload_starts_after_fence:
        "the driver drops the unit", [LEAKED];
    direct_mode_queues_failed_upload by direct_upload_fails:
        "the driver drops the unit", [LEAKED];
    direct_mode_queues_write_without_answer by direct_write_takes_effect_late:
        "the driver drops the unit", [LEAKED];
    identity_is_checked_before_deletes by disk_is_swapped:
        "identity checks never expire", [LEAKED];
    outage_uses_no_delete_attempt by outage:
        "the backend answers Refused while it is unreachable", [DEAD_LETTER];
    unknown_commit_keeps_bytes by commit_answer_is_lost:
        "the bytes are deleted after the failed commit", [LOST];
    expired_lease_fails_unknown_commit by write_was_abandoned:
        "the driver reports a longer lease", [FALSE_ANSWER];
    declared_digest_is_compared_before_promotion by wrong_bytes_were_stored:
        "the declared digest is removed from the intent", [WRONG_BYTES];
}

async fn run(name: &str) {
    let (_, off, damage, scenario) = GUARDS.iter().find(|(known, ..)| *known == name).expect("a guard of the table");
    for (guard, expected) in [(GuardState::On, &[] as &[&str]), (GuardState::Off, damage)] {
        let (context, seen) = scenario(guard).await;
        let found: BTreeSet<&str> = seen.into_iter().chain(context.damage().await).collect();
        assert_eq!(found, expected.iter().copied().collect(), "{name}: guard {guard:?} ({off})");
    }
}
