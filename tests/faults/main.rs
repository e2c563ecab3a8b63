//! Injected faults: every backend call of every operation fails in turn, and each time the settled store holds exactly
//! what was acknowledged. Further tests inject particular faults.

mod bad_copies;
mod cache;
mod call_counts;
mod damaged_contents;
mod dead_letters;
mod each_call;
mod expirations;
mod full;
mod idle_copies;
mod intent_counters;
mod interrupted_copies;
mod large_copies;
mod late;
mod late_writes;
mod listing_faults;
mod moves;
mod order;
mod panicking_row;
mod reach;
mod reconcile;
mod reconcile_costs;
mod reconcile_kills;
mod reconcile_versions;
mod replaced_objects;
mod reservations;
mod slow_copies;
mod stale_claims;
mod statement_counts;
mod targets;
mod unexpected_identity;
mod usage_limits;
mod verify;
mod wiped_stores;
