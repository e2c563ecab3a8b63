//! What every catalog must do, as facts that can be stamped on any database.
//!
//! A fact is an async function of a [`Scene`](scene::Scene): a fresh catalog whose clock is moved
//! by hand. [`conformance!`](crate::conformance!) makes one named test of each, and checks the
//! [`books`] behind it.

pub mod ahead;
pub mod audits;
pub mod books;
pub mod buckets;
pub mod cleanups;
pub mod condemned;
pub mod contents;
pub mod copies;
pub mod credentials;
pub mod dead_letters;
pub mod expired;
pub mod expiries;
pub mod identities;
pub mod intents;
pub mod lifecycles;
pub mod listing;
pub mod objects;
pub mod overview;
pub mod pins;
pub mod quotas;
pub mod races;
pub mod recovery;
pub mod runs;
pub mod scene;
pub mod sharing;
pub mod stale_uploads;
pub mod stuck;
pub mod upload_races;
pub mod uploads;
pub mod verification;

use std::fmt::Debug;

use crate::{Error, Verdict};

/// Makes one test per fact. Takes the absolute path of an async function without arguments that
/// gives a fresh scene.
#[macro_export]
macro_rules! conformance {
    ($scene:path) => {
        $crate::conformance! { $scene;
            ahead: a_moment_within_its_setting_stays, a_cleanup_due_too_far_ahead_is_due_now,
                a_lease_too_far_ahead_has_ended, an_absence_is_never_believed_at_once,
                a_deletion_begun_ahead_is_begun_again, what_began_ahead_began_now;
            books: whatever_breaks_is_found, a_key_named_twice_is_found;
            buckets: a_bucket_is_created_once, buckets_come_by_name, a_number_is_never_reused, tags_are_replaced,
                an_empty_bucket_goes_once, a_bucket_with_an_object_stays, only_open_uploads_keep_a_bucket,
                a_write_finds_its_bucket_gone, an_upload_finds_its_bucket_gone;
            objects: a_put_reads_back_whole, what_is_not_there_is_not_found, copies_become_places_best_first,
                an_overwrite_condemns_what_it_displaced, a_delete_condemns_and_queues,
                a_conditional_delete_looks_first, a_copy_shares_bytes_until_the_last_goes,
                a_copy_onto_itself_keeps_the_count, a_copy_displaces_like_a_put,
                a_copy_of_condemned_content_resolves_again, if_absent_writes_only_where_nothing_is,
                if_match_writes_only_over_what_it_names, tags_are_those_of_a_version, a_thousand_rows_go_at_once,
                a_batch_judges_each_key, a_count_that_drifted_kills_no_bytes, later_changes_flag_writes_under_way;
            expired: nobody_sees_it, no_condition_meets_it, every_write_clears_it,
                a_time_to_live_counts_from_the_commit, a_write_replaces_the_expiry, nothing_appears_that_has_ceased,
                an_upload_lives_from_complete_on, a_left_write_expires_too, it_is_neither_counted_nor_tagged,
                it_keeps_no_bucket, its_bytes_go_because_it_expired;
            expiries: what_expired_is_claimed_once_and_goes, shared_bytes_go_with_the_last,
                a_batch_counts_what_it_shares, what_was_written_anew_survives, a_lost_claim_removes_nothing,
                an_expiry_supersedes_writes_under_way, one_bad_row_stops_no_other, what_waits_is_told,
                claims_of_expiries_never_overlap, removal_meets_an_overwrite, removal_meets_a_copy;
            lifecycles: rules_are_replaced_as_a_whole, rules_go_with_their_bucket, ruled_buckets_come_by_name,
                looks_and_commits_tell_which_rules_stand,
                what_is_due_is_what_the_model_says, due_objects_come_in_pages, a_prefix_is_its_bytes,
                what_has_expired_is_not_due, what_is_due_goes_with_its_bytes, shared_bytes_stay,
                a_thousand_due_objects_go_at_once, an_overwritten_object_stays, what_is_not_due_any_more_stays,
                an_object_with_other_tags_stays, nothing_goes_by_rules_that_were_replaced, a_rule_meets_an_overwrite,
                a_rule_meets_its_end, due_uploads_are_aborted, an_upload_that_is_not_due_goes_on;
            listing: keys_come_in_the_order_of_their_bytes, a_delimiter_groups, a_page_costs_the_same_at_any_size,
                open_uploads_come_by_key;
            uploads: an_upload_reads_back, parts_come_by_number, a_part_sent_again_displaces_the_first,
                a_part_may_refer_to_a_range, a_range_of_condemned_content_resolves_again,
                a_closed_upload_takes_no_part, a_fenced_part_changes_nothing, complete_lays_parts_end_to_end,
                a_completed_upload_keeps_its_answer, complete_with_a_replaced_part_runs_again,
                complete_keeps_its_condition, unlisted_parts_are_left_to_cleanup, an_upload_is_aborted_once,
                ten_thousand_parts_complete_in_one_unit;
            intents: an_intent_reserves_and_holds, a_closed_backend_takes_no_writes,
                a_backend_that_closes_lets_writes_end, only_renewed_intents_commit, only_open_intents_are_renewed,
                a_lease_holds_to_its_end, an_aborting_intent_has_lost_its_owner, copies_are_fenced_together,
                a_reap_is_bounded, a_write_is_dropped_once,
                what_is_known_of_an_upload_reaches_cleanup, a_requeued_write_is_booked_once,
                a_requeue_ends_the_claim, a_requeued_write_is_waited_for, a_committed_write_is_not_requeued,
                a_superseded_owner_still_commits, a_takeover_ends_leases_and_claims;
            cleanups: a_lane_knows_whether_it_has_work, a_row_that_waits_again_is_seen_at_once,
                a_stray_row_is_seen_in_the_end, what_waits_is_seen_in_time, a_claim_takes_what_is_due_once,
                a_claim_tells_its_moment,
                a_settlement_releases_what_the_row_charged, a_settlement_judges_each_row,
                a_stale_token_settles_nothing, stale_claims_are_freed_once,
                depths_count_what_waits, claims_never_overlap, a_cleanup_of_bytes_in_use_is_a_finding;
            dead_letters: the_last_refusal_moves_the_row, a_stale_token_buries_nothing, a_retry_starts_again,
                dead_letters_come_in_pages, findings_come_in_pages,
                the_queue_comes_in_pages, what_is_gone_is_written_off_silently,
                what_may_be_there_leaves_a_finding, a_discard_judges_each_row,
                a_requeued_write_finds_its_dead_letter,
                a_requeue_meets_whatever_becomes_of_its_cleanup, everybody_gets_a_dead_letter_once;
            condemned: what_was_condemned_is_told, what_stays_is_not_told, a_batch_is_told_at_once,
                pieces_are_told_when_they_go, a_unit_that_failed_tells_nothing;
            contents: readers_have_time_to_finish, joined_content_goes_in_bounded_steps,
                pieces_that_others_use_stay, a_count_that_drifted_kills_no_bytes,
                closed_uploads_let_go_in_bounded_steps, answers_are_kept_for_their_time,
                condemned_content_is_kept_for_its_time;
            recovery: a_left_write_is_finished, a_lost_claim_resolves_nothing, a_later_change_supersedes_a_left_write,
                a_left_write_keeps_its_condition, an_unclear_write_waits, bytes_that_were_finished_are_not_queued,
                promotion_meets_delete, unannounced_bytes_keep_the_limit;
            quotas: room_ends_at_the_byte, doomed_bytes_still_take_room, a_limit_can_change, no_books_no_room,
                a_limit_holds_against_many, a_limit_is_shared_anew;
            identities: a_cluster_keeps_its_first_name, a_new_backend_has_no_mark, an_unconfirmed_mark_is_kept,
                past_marks_are_kept, a_backend_is_frozen_and_thawed, a_mark_has_an_age,
                the_newest_locations_are_those_since_the_last_accept, what_changed_meanwhile_is_not_accepted,
                records_are_kept_by_host, a_live_record_stops_the_accept_of_anything_else;
            credentials: the_first_credentials_are_kept, concurrent_callers_share_one_document;
            runs: a_worker_is_entered_once, a_run_reads_back, a_recorded_run_changes_where_its_worker_stands,
                a_noted_run_leaves_no_row, a_skipped_run_changes_nothing_else, a_late_run_does_not_set_the_clock_back,
                a_pause_stands_until_it_ends, runs_come_newest_first_in_pages, old_runs_are_forgotten,
                each_worker_keeps_its_newest_runs;
            stale_uploads: an_upload_without_activity_is_stale, a_part_is_a_sign_of_life, a_lease_is_a_sign_of_life,
                the_oldest_come_first, a_closed_upload_is_never_stale, activity_after_the_look_saves_an_upload,
                abort_meets_a_part, abort_meets_complete;
            stuck: a_stuck_deletion_is_reset_once, a_young_deletion_goes_on, resets_are_bounded;
            audits: books_in_order_show_no_drift, a_drift_is_repaired_as_a_difference, a_drift_is_applied_once,
                what_happens_meanwhile_is_not_lost, counts_are_compared_page_by_page, a_wrong_count_is_put_right,
                a_recount_changes_nothing_that_is_right, condemned_content_does_not_come_back,
                what_nothing_refers_to_is_condemned, what_something_refers_to_is_not_condemned,
                a_recount_meets_copies_and_deletes, a_count_that_changed_is_left_alone, many_suspects_leave_a_finding;
            overview: nothing_due_has_not_waited, the_oldest_of_each_queue_is_told, objects_and_locations_are_counted,
                savings_are_counted_by_bucket;
            races: two_first_puts_leave_one_content, one_of_a_hundred_first_writers_wins,
                one_of_a_hundred_replacing_writers_wins, bucket_delete_meets_put, copy_meets_delete_of_its_source,
                reap_meets_commit, a_failing_unit_fails_alone, a_storm_leaves_the_books_in_order;
            sharing: equal_content_is_kept_once, other_content_is_kept_apart, nothing_is_kept_once,
                shared_bytes_go_with_the_last, an_overwrite_by_the_same_keeps_the_count,
                condemned_content_is_not_joined, a_good_copy_replaces_a_bad_one, a_good_copy_is_not_replaced,
                missing_copies_are_added, a_left_write_joins, unannounced_bytes_join, equal_parts_are_kept_once,
                first_writers_of_one_content_share_it, a_write_meets_the_last_delete,
                a_storm_of_equal_bodies_leaves_the_books_in_order;
            pins: a_pinned_write_moves_no_byte, a_pinned_overwrite_keeps_the_count, only_good_content_is_pinned,
                a_pin_given_up_was_the_last, a_left_pin_is_let_go, a_fenced_pin_commits_nothing,
                a_pin_on_bytes_that_went_bad_is_refused, a_pin_finds_its_bucket_gone,
                a_part_is_pinned_while_its_upload_is_open, a_pin_meets_the_last_delete, pins_are_let_go_one_by_one;
            copies: a_copy_becomes_suspect_once, only_the_copy_that_was_read_is_suspect,
                known_content_is_looked_at_once, a_bad_copy_is_replaced_by_the_next_write,
                a_bad_copy_is_found_by_the_commit, unclear_content_is_not_joined, one_good_copy_is_enough,
                a_suspicion_meets_a_write;
            upload_races: complete_meets_a_part_sent_again, complete_meets_abort, complete_meets_complete,
                expanding_twice_counts_once;
            verification: damage_is_found_by_its_number, a_storm_raises_no_alarm,
                rows_are_found_by_what_they_name, locations_come_by_key, the_pulse_tells_of_every_change;
        }
    };
    ($scene:path; $($topic:ident: $($fact:ident),+;)+) => {
        $(mod $topic {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $fact() {
                let scene = $scene().await;
                $crate::conformance::$topic::$fact(&scene).await;
                $crate::conformance::books::check(&scene).await;
            })+
        })+
    };
}

/// Fails unless this guard did.
#[track_caller]
fn refused<T: Debug>(outcome: Result<T, Error>, verdict: Verdict) {
    match outcome {
        Err(Error::Guard(found)) if found == verdict => {}
        other => panic!("expected {verdict:?}, got {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    const TOPICS: [(&str, &str); 29] = [
        ("ahead", include_str!("ahead.rs")),
        ("credentials", include_str!("credentials.rs")),
        ("books", include_str!("books.rs")),
        ("buckets", include_str!("buckets.rs")),
        ("objects", include_str!("objects.rs")),
        ("expired", include_str!("expired.rs")),
        ("expiries", include_str!("expiries.rs")),
        ("lifecycles", include_str!("lifecycles.rs")),
        ("listing", include_str!("listing.rs")),
        ("uploads", include_str!("uploads.rs")),
        ("intents", include_str!("intents.rs")),
        ("cleanups", include_str!("cleanups.rs")),
        ("condemned", include_str!("condemned.rs")),
        ("contents", include_str!("contents.rs")),
        ("dead_letters", include_str!("dead_letters.rs")),
        ("quotas", include_str!("quotas.rs")),
        ("identities", include_str!("identities.rs")),
        ("runs", include_str!("runs.rs")),
        ("stale_uploads", include_str!("stale_uploads.rs")),
        ("stuck", include_str!("stuck.rs")),
        ("audits", include_str!("audits.rs")),
        ("overview", include_str!("overview.rs")),
        ("races", include_str!("races.rs")),
        ("recovery", include_str!("recovery.rs")),
        ("sharing", include_str!("sharing.rs")),
        ("pins", include_str!("pins.rs")),
        ("copies", include_str!("copies.rs")),
        ("upload_races", include_str!("upload_races.rs")),
        ("verification", include_str!("verification.rs")),
    ];

    /// What is stamped of a topic.
    fn stamps(topic: &str) -> &'static str {
        let all = include_str!("mod.rs");
        let (_, rest) =
            all.split_once(&format!("\n            {topic}: ")).unwrap_or_else(|| panic!("{topic}: no stamps"));
        rest.split_once(';').expect("an end").0
    }

    #[test]
    fn every_fact_is_stamped() {
        for (topic, text) in TOPICS {
            let stamped: Vec<&str> = stamps(topic).split(',').map(str::trim).collect();
            let facts = text.lines().filter_map(|line| {
                let name = line.strip_prefix("pub async fn ")?.strip_suffix("(scene: &Scene) {")?;
                (!["check", "nothing_is_broken"].contains(&name)).then_some(name)
            });
            for fact in facts {
                assert!(stamped.contains(&fact), "{topic}: {fact}");
            }
        }
        let topics = include_str!("mod.rs").lines().filter(|line| line.starts_with("pub mod ")).count();
        assert_eq!(TOPICS.len() + 1, topics, "all but the scene");
    }
}
