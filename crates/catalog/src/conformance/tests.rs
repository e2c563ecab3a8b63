//! Checks that the macro runs every test of the suite.

const TOPICS: [(&str, &str); 42] = [
    ("backend_usage", include_str!("backend_usage.rs")),
    ("backend_views", include_str!("backend_views.rs")),
    ("moves", include_str!("moves.rs")),
    ("write_offs", include_str!("write_offs.rs")),
    ("replicas", include_str!("replicas.rs")),
    ("copy_numbers", include_str!("copy_numbers.rs")),
    ("future_timestamps", include_str!("future_timestamps.rs")),
    ("credentials", include_str!("credentials.rs")),
    ("quota_usage", include_str!("quota_usage.rs")),
    ("buckets", include_str!("buckets.rs")),
    ("objects", include_str!("objects.rs")),
    ("expired_objects", include_str!("expired_objects.rs")),
    ("expiry_removal", include_str!("expiry_removal.rs")),
    ("copied_objects", include_str!("copied_objects.rs")),
    ("lifecycles", include_str!("lifecycles.rs")),
    ("lifecycle_deletes", include_str!("lifecycle_deletes.rs")),
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
    ("stuck_deletions", include_str!("stuck_deletions.rs")),
    ("targets", include_str!("targets.rs")),
    ("unnamed", include_str!("unnamed.rs")),
    ("audits", include_str!("audits.rs")),
    ("overview", include_str!("overview.rs")),
    ("races", include_str!("races.rs")),
    ("reconcile", include_str!("reconcile.rs")),
    ("reconcile_decisions", include_str!("reconcile_decisions.rs")),
    ("recovery", include_str!("recovery.rs")),
    ("sharing", include_str!("sharing.rs")),
    ("pins", include_str!("pins.rs")),
    ("copies", include_str!("copies.rs")),
    ("damaged_copies", include_str!("damaged_copies.rs")),
    ("upload_races", include_str!("upload_races.rs")),
    ("verification", include_str!("verification.rs")),
];

/// The tests of a topic in the macro, separated by commas.
fn listed_tests(topic: &str) -> &'static str {
    let all = include_str!("mod.rs");
    let (_, rest) =
        all.split_once(&format!("\n            {topic}: ")).unwrap_or_else(|| panic!("{topic}: not in the macro"));
    rest.split_once(';').expect("an end").0
}

#[test]
fn every_test_is_in_the_macro() {
    for (topic, text) in TOPICS {
        let listed: Vec<&str> = listed_tests(topic).split(',').map(str::trim).collect();
        let tests = text.lines().filter_map(|line| {
            let name = line.strip_prefix("pub async fn ")?.strip_suffix("(fixture: &Fixture) {")?;
            (!["check", "assert_nothing_is_broken"].contains(&name)).then_some(name)
        });
        for test in tests {
            assert!(listed.contains(&test), "{topic}: {test}");
        }
    }
    let topics = include_str!("mod.rs").lines().filter(|line| line.starts_with("pub mod ")).count();
    assert_eq!(TOPICS.len() + 1, topics, "every topic but the fixture");
}
