//! Settings of parts that are not built are refused with their path, and no setting disables a required worker.

use super::{DISK, parse};

/// One setting of every part that is not built, with the path under which it is refused.
const NOT_BUILT: [(&str, &str); 7] = [
    ("sweep: {enabled: true}", "sweep"),
    ("integrity: {enabled: true}", "integrity"),
    ("notifications: {interval: 5s}", "notifications"),
    ("small_objects: {inline_max: 16KiB}", "small_objects"),
    ("server: {tls: {cert_file: a, key_file: b}}", "server.tls"),
    ("admin: {tls: {cert_file: a, key_file: b}}", "admin.tls"),
    ("buckets: [{name: photos, small_objects: true}]", "buckets[0].small_objects"),
];

#[test]
fn settings_of_parts_that_are_not_built_are_refused_with_their_path() {
    for (setting, path) in NOT_BUILT {
        let faults = parse(&format!("{DISK}{setting}\n")).expect_err(setting);
        let named =
            faults.lines().any(|fault| fault.starts_with(&format!("{path}: ")) && fault.contains("not built yet"));
        assert!(named, "{setting}: {faults}");
    }
}

#[test]
fn required_workers_cannot_be_disabled() {
    for section in ["cleanup_queue", "expiry", "watchdog", "quota_audit", "stale_multipart", "identity", "lifecycle"] {
        let faults = parse(&format!("{DISK}{section}: {{enabled: false}}\n")).expect_err(section);
        assert_eq!(faults, format!("{section}.enabled: is not a known setting"));
    }
}
