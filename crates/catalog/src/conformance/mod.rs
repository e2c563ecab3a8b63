//! Tests that run on every database.
//!
//! A test is an async function of a [`Fixture`](fixture::Fixture): an empty catalog with a clock that the test
//! advances. [`conformance!`](crate::conformance!) creates a `#[tokio::test]` for each of them and checks the
//! invariants of [`quota_usage`] afterwards.

pub mod audits;
pub mod backend_usage;
pub mod backend_views;
pub mod buckets;
pub mod cleanups;
pub mod condemned;
pub mod contents;
pub mod copied_objects;
pub mod copies;
pub mod copy_numbers;
pub mod credentials;
pub mod damaged_copies;
pub mod dead_letters;
pub mod expired_objects;
pub mod expiry_removal;
pub mod fixture;
pub mod future_timestamps;
pub mod identities;
pub mod intents;
pub mod lifecycle_deletes;
pub mod lifecycles;
pub mod listing;
pub mod moves;
pub mod objects;
pub mod overview;
pub mod pins;
pub mod quota_usage;
pub mod quotas;
pub mod races;
pub mod reconcile;
pub mod reconcile_decisions;
pub mod recovery;
pub mod replicas;
pub mod runs;
pub mod sharing;
pub mod stale_uploads;
pub mod stuck_deletions;
pub mod targets;
pub mod unnamed;
pub mod upload_races;
pub mod uploads;
pub mod verification;
pub mod write_offs;

use std::fmt::Debug;

use crate::{Error, Verdict};

/// Creates the tests of the suite for one driver. `$fixture` is the absolute path of an async function without
/// arguments that returns a fixture with an empty catalog.
#[macro_export]
macro_rules! conformance {
    ($fixture:path) => {
        $crate::conformance! { $fixture;
            future_timestamps: timestamps_within_their_setting_are_kept,
                cleanups_due_or_claimed_too_far_ahead_are_claimable, lease_too_far_ahead_is_ended,
                absent_ok_after_is_cut_to_its_setting, deletion_started_in_the_future_is_reset,
                future_start_times_are_set_to_now;
            quota_usage: every_broken_invariant_is_found, key_named_by_two_rows_is_found;
            backend_usage: totals_are_merged_by_the_larger_number, empty_month_returns_the_clock,
                ceilings_are_stored_for_the_newest_reading_only, lease_on_ceilings_ends,
                ended_process_returns_its_share, old_months_are_folded_and_deleted,
                concurrent_allotments_stay_within_the_limit;
            buckets: bucket_is_created_once, buckets_are_listed_by_name, bucket_ids_are_never_reused,
                bucket_tags_are_replaced_as_a_whole, empty_bucket_is_deleted_once,
                bucket_with_an_object_is_not_deleted, only_open_uploads_prevent_bucket_deletion,
                writes_to_deleted_bucket_are_refused, upload_to_deleted_bucket_is_refused;
            objects: put_reads_back_all_attributes, missing_bucket_and_missing_key_are_distinguished,
                locations_are_returned_best_first, overwrite_condemns_the_displaced_content,
                delete_condemns_content_and_queues_its_bytes, conditional_delete_requires_the_etag,
                if_absent_refuses_existing_object, if_match_requires_the_etag, tags_for_an_older_version_are_refused,
                thousand_rows_are_deleted_in_one_unit, batch_checks_the_condition_of_each_key,
                low_count_deletes_no_referenced_bytes, later_changes_flag_open_intents;
            copied_objects: copies_share_bytes_until_the_last_is_deleted, copy_onto_itself_keeps_the_reference_count,
                copy_condemns_the_displaced_content, copy_of_condemned_content_is_refused;
            expired_objects: expired_object_is_not_visible, conditions_treat_expired_object_as_absent,
                every_write_clears_expiration_columns, time_to_live_counts_from_the_commit,
                writes_replace_the_expiration, write_with_past_expiration_is_refused,
                time_to_live_of_upload_counts_from_complete, promoted_write_keeps_its_expiration,
                expired_object_is_neither_counted_nor_tagged, expired_objects_do_not_prevent_bucket_deletion,
                bytes_of_expired_object_are_queued_as_expiry;
            expiry_removal: expired_objects_are_claimed_once_and_deleted,
                shared_bytes_are_queued_with_the_last_expired_object, batch_releases_shared_content_once_per_object,
                object_rewritten_after_its_claim_is_kept, lost_claim_deletes_nothing,
                deleting_expired_object_supersedes_open_intents, one_bad_row_stops_no_other,
                oldest_due_reports_expired_objects, concurrent_expiry_claims_never_overlap,
                object_written_during_removal_is_kept, copy_during_removal_keeps_bytes_or_fails;
            lifecycles: rules_are_replaced_as_a_whole, rules_are_deleted_with_their_bucket,
                buckets_with_rules_are_listed_by_name, resolve_and_commits_return_the_rules_revision,
                due_objects_match_the_model, due_objects_are_listed_in_pages, prefix_is_matched_by_bytes,
                expired_object_is_not_due;
            lifecycle_deletes: due_objects_are_deleted_with_their_bytes, shared_bytes_are_kept,
                thousand_due_objects_are_deleted_in_one_unit, overwritten_object_is_kept,
                object_not_due_by_current_rule_is_kept, object_with_changed_tags_is_kept, replaced_rules_delete_nothing,
                object_written_during_lifecycle_delete_is_kept, delete_fails_once_rules_are_removed,
                due_uploads_are_aborted_once, upload_not_due_any_more_is_not_aborted;
            listing: keys_are_listed_in_byte_order, delimiter_groups_keys,
                page_of_prefixes_reads_the_same_rows_at_any_size, open_uploads_are_listed_by_key;
            uploads: upload_reads_back, parts_are_listed_by_number, replaced_part_is_condemned,
                part_can_refer_to_a_range_of_content, part_of_condemned_content_is_refused, closed_upload_refuses_parts,
                fenced_part_changes_nothing, complete_joins_parts_in_order, completed_upload_keeps_its_answer,
                complete_with_replaced_part_is_refused, complete_checks_its_condition,
                unlisted_parts_are_deleted_by_cleanup, upload_is_aborted_once, ten_thousand_parts_complete_in_one_unit;
            intents: intent_reserves_its_bytes_for_its_lease, frozen_draining_or_unknown_backend_refuses_intents,
                intent_staged_before_freeze_commits, only_renewed_intents_commit_after_their_lease,
                only_open_intents_are_renewed, lease_holds_to_its_last_millisecond,
                aborting_intent_is_fenced_for_its_owner, copies_of_one_write_are_fenced_together,
                reap_is_bounded_and_takes_oldest_leases_first, dropped_write_is_queued_once,
                backend_upload_of_intent_is_kept_in_its_cleanup, requeued_write_is_counted_once,
                requeue_ends_the_claim_of_the_cleanup, requeued_write_without_answer_keeps_absent_ok_after,
                committed_write_is_not_requeued, superseded_intent_still_commits, takeover_ends_leases_and_claims;
            cleanups: lane_has_work_while_a_due_row_is_unclaimed, row_that_lost_its_claim_is_seen_by_the_next_query,
                row_below_the_low_water_mark_is_seen_within_ten_queries,
                condemned_content_and_aborted_uploads_are_seen_in_time, claim_takes_due_rows_once,
                claim_returns_its_time, settlement_deletes_done_rows_and_releases_their_bytes,
                settlement_applies_one_outcome_per_row, stale_token_settles_nothing, stale_claims_are_freed_once,
                depths_count_rows_of_each_queue, concurrent_claims_never_overlap,
                cleanup_of_referenced_key_creates_a_finding;
            dead_letters: last_refusal_moves_row_to_dead_letters, stale_token_creates_no_dead_letter,
                retried_dead_letter_starts_without_attempts, dead_letters_are_listed_in_pages,
                findings_are_listed_in_pages, queued_cleanups_are_listed_in_pages,
                discard_of_deleted_bytes_leaves_no_finding, discard_of_undeleted_bytes_leaves_a_finding,
                discard_decides_for_each_row, requeued_write_updates_its_dead_letter,
                requeued_write_is_counted_once_during_settle_and_retry,
                concurrent_retries_and_discards_take_each_dead_letter_once;
            condemned: observer_is_notified_of_condemned_content, observer_is_not_notified_of_referenced_content,
                observer_is_notified_once_per_batch, observer_is_notified_of_pieces_when_released,
                failed_unit_notifies_no_observer;
            contents: joined_content_is_released_after_its_grace_period, joined_content_is_released_in_bounded_steps,
                pieces_of_other_objects_are_kept, low_count_deletes_no_referenced_pieces,
                closed_uploads_release_parts_in_bounded_steps, completed_uploads_are_kept_for_their_retention,
                condemned_content_is_kept_for_its_retention;
            recovery: unfinished_write_is_promoted, lost_claim_resolves_nothing,
                later_change_supersedes_unfinished_write, promotion_checks_the_condition_of_the_write,
                postponed_write_stays_fenced, requeue_skips_bytes_that_another_row_names,
                promotion_never_follows_an_acknowledged_delete, write_without_intent_keeps_the_limit;
            quotas: limit_is_exact_to_the_byte, queued_bytes_count_until_deleted, limit_can_be_changed_and_removed,
                backend_without_quota_rows_refuses_intents, limit_holds_against_concurrent_intents,
                limit_is_redistributed_between_stripes;
            identities: cluster_keeps_its_first_id, new_backend_has_no_mark, planned_mark_is_kept_until_confirmed,
                last_sixteen_marks_are_kept, frozen_reason_is_stored_and_cleared, mark_age_counts_from_its_confirmation,
                newest_keys_are_those_since_the_last_accept, accept_of_stale_marks_is_refused,
                identity_records_are_kept_by_host, accept_is_refused_while_a_record_has_another_hash,
                removal_waits_for_a_planned_mark;
            credentials: first_credentials_are_kept, concurrent_callers_share_one_document;
            replicas: write_of_two_copies_is_located_twice, commit_enqueues_cleanup_of_failed_copy,
                copies_are_staged_together_or_not_at_all, missing_copy_is_written_once,
                copy_of_deleted_content_is_refused, cleanup_of_expired_copy_is_enqueued,
                suspect_copy_is_work_until_it_is_replaced_or_confirmed, source_read_before_an_accept_does_not_count;
            copy_numbers: copy_is_removed_if_enough_others_are_proven, changed_factor_is_reviewed,
                reference_from_bucket_with_higher_factor_raises_the_factor, drained_copy_is_moved_in_one_unit,
                only_an_empty_backend_is_removed, join_adds_only_missing_copies,
                unproven_copy_besides_enough_others_is_work_until_it_is_removed, last_copies_are_noted_first,
                writer_with_an_older_factor_notes_missing_copies, content_out_of_reach_is_left_to_other_instances,
                factor_is_lowered_by_the_audit, factor_of_often_referenced_content_is_lowered_by_the_review;
            damaged_copies: content_without_a_good_copy_is_a_finding, copy_absent_after_an_accept_is_given_up;
            backend_views: unhealthy_backend_has_no_counting_copies, other_instances_have_time_to_answer,
                every_live_instance_must_have_failed_for_long_enough, at_most_half_of_the_backends_become_unhealthy;
            moves: copy_is_moved_in_one_unit, move_to_a_backend_with_a_copy_is_refused,
                move_needs_both_backends_in_the_same_state, move_of_a_copy_that_was_moved_is_refused,
                refused_move_is_judged_as_a_plain_copy;
            write_offs: replaced_copy_is_written_off_without_a_trace, last_copy_is_lost,
                copy_that_does_not_count_replaces_none, queues_are_written_off_as_one_finding_per_kind,
                intent_is_kept_until_its_lease_ends, interrupted_write_off_continues,
                write_that_ends_after_the_removal_leaves_a_finding, overwrite_of_a_lost_object_queues_nothing;
            reconcile: unfinished_pass_is_joined, page_is_stored_by_one_instance,
                findings_count_when_their_pass_is_valid, second_pass_confirms_the_same_bytes,
                targets_of_a_key_are_separate_findings,
                first_pass_of_a_clock_that_was_ahead_counts_from_now, interrupted_fold_continues,
                disputed_backend_closes_no_pass, cancelled_pass_ends, failures_are_counted_until_the_next_page,
                old_passes_are_forgotten,
                written_off_finding_is_closed_when_its_bytes_are_absent, actions_advance_once;
            reconcile_decisions: approval_replaces_the_second_pass, dismissed_finding_is_only_reported,
                other_findings_are_not_decided, approval_of_a_held_pass_covers_what_was_found_until_then,
                next_plausible_pass_is_not_held, queued_bytes_are_no_finding_any_more,
                bytes_are_queued_while_their_finding_stands, accept_and_removal_discard_what_passes_found,
                last_copy_is_lost_and_recovered_with_its_bytes, copy_is_not_lost_while_another_may_be_good;
            runs: worker_row_is_created_once, run_reads_back_all_columns, recorded_run_updates_its_worker,
                noted_run_creates_no_row, skipped_run_does_not_update_its_worker,
                late_run_does_not_move_last_started_back, pause_lasts_until_resumed,
                runs_are_listed_newest_first_in_pages, old_runs_of_all_workers_are_deleted,
                each_worker_keeps_its_newest_runs;
            stale_uploads: upload_without_activity_is_stale, stored_part_counts_as_activity,
                lease_of_a_part_counts_as_activity, oldest_stale_uploads_are_listed_first, closed_upload_is_never_stale,
                activity_after_the_query_prevents_the_abort, abort_during_part_closes_upload_or_keeps_part,
                abort_during_complete_closes_upload_once;
            stuck_deletions: stuck_deletion_is_reset_once, young_deletion_is_not_reset, resets_are_bounded;
            audits: correct_quotas_show_no_drift, drift_is_repaired_in_both_directions,
                repair_of_one_drift_is_applied_once, repair_keeps_concurrent_usage_changes,
                reference_counts_are_audited_in_pages, wrong_reference_counts_are_repaired,
                recount_reports_only_wrong_counts, condemned_content_stays_condemned,
                unreferenced_content_is_condemned_after_recount, referenced_content_is_not_condemned,
                counts_stay_exact_with_recounts_during_copies_and_deletes,
                recount_skips_count_that_changed_since_confirmation, too_many_suspects_create_one_finding;
            overview: oldest_due_is_zero_without_due_rows, oldest_due_reports_each_queue,
                objects_and_locations_are_counted, savings_are_counted_by_bucket;
            races: concurrent_first_puts_leave_one_live_content, one_of_hundred_if_absent_writers_wins,
                one_of_hundred_if_match_writers_wins, bucket_delete_during_put_deletes_bucket_or_keeps_object,
                copy_during_delete_of_its_source_keeps_bytes_or_fails, reap_during_commit_fences_it_or_finds_nothing,
                failing_unit_fails_alone, concurrent_operations_keep_quotas_exact;
            sharing: equal_content_is_stored_once, different_content_is_stored_separately,
                empty_bodies_share_one_content, shared_bytes_are_queued_with_the_last_object,
                overwrite_with_equal_content_keeps_the_reference_count, condemned_content_is_not_joined,
                new_copy_replaces_suspect_or_lost_copy, present_copy_is_not_replaced, missing_copies_are_added,
                promoted_write_joins_known_content, write_without_intent_joins_known_content,
                equal_parts_are_stored_once, concurrent_first_writers_share_one_content,
                write_during_last_delete_joins_or_creates_content,
                concurrent_operations_on_equal_bodies_keep_counts_exact;
            pins: pinned_write_uses_no_quota, pinned_overwrite_keeps_the_reference_count,
                only_live_content_with_a_good_copy_is_pinned, dropping_the_last_pin_condemns_the_content,
                reaper_releases_expired_pin, fenced_pin_does_not_commit, pin_on_suspect_copies_is_refused,
                pin_in_deleted_bucket_is_refused, part_is_pinned_while_its_upload_is_open,
                pin_during_last_delete_keeps_content_or_fails, concurrent_drop_and_reap_release_one_pin_each;
            copies: copy_is_marked_suspect_once, only_the_copy_that_was_read_is_marked_suspect,
                known_content_is_checked_once, bad_copy_is_replaced_by_the_next_write,
                bad_copy_is_found_by_the_commit, content_with_unclear_copies_is_not_joined,
                one_good_copy_is_enough_to_join, concurrent_suspicion_and_write_keep_quotas_exact;
            upload_races: complete_during_replaced_part_fails_or_closes_upload,
                complete_during_abort_closes_upload_once, concurrent_completes_create_one_object,
                concurrent_expansions_release_each_piece_once;
            targets: unknown_write_queues_its_object_and_its_upload, upload_cleanup_is_executed_while_its_key_lives,
                other_version_is_removed_while_its_key_lives, learnt_version_is_the_target,
                changed_bytes_end_as_a_finding, expected_bytes_survive_the_dead_letter_queue,
                copies_are_read_with_their_version, retried_upload_keeps_its_target,
                rows_name_their_targets_and_no_others;
            unnamed: unnamed_keys_are_queued_and_counted_once, named_keys_are_not_queued,
                drafts_of_writes_are_not_queued, number_of_waiting_keys_is_bounded,
                removed_backend_takes_no_unnamed_keys, keys_are_confirmed_by_their_tables,
                direct_commit_of_a_queued_key_is_refused,
                direct_commit_of_a_deleted_key_is_refused, direct_commit_or_queue_wins;
            verification: damage_is_found_with_its_invariant, concurrent_operations_break_no_invariant,
                rows_are_found_by_physical_key_and_identifier, rows_of_a_range_are_listed_in_order,
                findings_of_passes_are_rows_of_their_keys,
                pulse_differs_after_every_change;
        }
    };
    ($fixture:path; $($topic:ident: $($test:ident),+;)+) => {
        $(mod $topic {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $test() {
                let fixture = $fixture().await;
                $crate::conformance::$topic::$test(&fixture).await;
                $crate::conformance::quota_usage::check(&fixture).await;
            })+
        })+
    };
}

/// Panics unless the outcome is a failed guard with this verdict.
#[track_caller]
fn refused<T: Debug>(outcome: Result<T, Error>, verdict: Verdict) {
    match outcome {
        Err(Error::Guard(found)) if found == verdict => {}
        other => panic!("expected {verdict:?}, got {other:?}"),
    }
}

#[cfg(test)]
mod tests;
