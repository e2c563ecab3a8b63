//! Valid configurations, their defaults, and the error messages of invalid ones.

mod not_built;
mod template;

use super::{BackendKind, Config, Database};
use s3o_model::recovery::Recovery;
use std::path::Path;
use std::time::Duration;

pub(super) fn parse(text: &str) -> Result<Config, String> {
    Config::parse(text, |name| (name == "TOKEN").then(|| "t$1".to_owned())).map_err(|faults| faults.to_string())
}

pub(super) const DISK: &str = "backends: [{name: disk, kind: fs, root: /tmp/x}]\n";

#[test]
fn embedded_configuration_keeps_everything_below_one_folder() {
    let config = Config::embedded(Path::new("/srv/s3o data"));
    assert!(matches!(&config.database, Database::Sqlite(path) if path == Path::new("/srv/s3o data/catalog.db")));
    assert!(matches!(&config.backends[0].kind, BackendKind::Fs { root } if root == Path::new("/srv/s3o data/disk")));
    assert_eq!(config.audit, Path::new("/srv/s3o data/audit.jsonl"));
    assert_eq!(config.server.listen.port(), 9000);
}

#[test]
fn paths_that_are_not_configured_are_below_the_data_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("s3o.yaml");
    let data = Path::new("/srv/data");
    let root = |config: &Config| match &config.backends[0].kind {
        BackendKind::Fs { root } => root.clone(),
        BackendKind::S3(_) => panic!("a folder"),
    };
    std::fs::write(&path, "backends: [{name: first, kind: fs}]\n").expect("written");
    let config = Config::load(&path, data).expect("valid");
    assert!(matches!(&config.database, Database::Sqlite(path) if path == Path::new("/srv/data/catalog.db")));
    assert_eq!((config.audit.as_path(), root(&config).as_path()), (&*data.join("audit.jsonl"), &*data.join("first")));
    let configured = "backends: [{name: first, kind: fs, root: /a}]\naudit: {path: /b}\ndatabase: {url: 'sqlite:/c'}\n";
    std::fs::write(&path, configured).expect("written");
    let config = Config::load(&path, data).expect("valid");
    assert!(matches!(&config.database, Database::Sqlite(path) if path == Path::new("/c")));
    assert_eq!((config.audit.as_path(), root(&config).as_path()), (Path::new("/b"), Path::new("/a")));
}

#[test]
fn create_bucket_defaults_to_false() {
    let backend = "name: b, kind: s3, endpoint: 'http://h', bucket: b, access_key_id: a, secret_access_key: s";
    let created = |text: String| match &parse(&text).expect("valid").backends[0].kind {
        BackendKind::S3(options) => options.create_bucket,
        BackendKind::Fs { .. } => panic!("a bucket"),
    };
    assert!(!created(format!("backends: [{{{backend}}}]\n")));
    assert!(created(format!("backends: [{{{backend}, create_bucket: true}}]\n")));
}

#[test]
fn defaults_match_the_documentation() {
    let config = parse(DISK).expect("valid");
    assert!(config.intents.enabled && config.intents.recovery == Recovery::Promote);
    assert_eq!(config.intents.min_age, Duration::from_mins(5));
    assert_eq!((config.intents.reaper_tick, config.intents.batch_size), (Duration::from_mins(1), 100));
    assert_eq!(config.intents.late_write_window, Duration::from_hours(1));
    assert_eq!((config.cleanup.interval, config.cleanup.batch_size), (Duration::from_mins(1), 1000));
    assert_eq!(config.cleanup.claim_grace_period, Duration::from_mins(5));
    assert_eq!(config.cleanup.retries.backoff.min, Duration::from_mins(1));
    assert_eq!(config.cleanup.retries.backoff.max, Duration::from_hours(24));
    assert_eq!(config.cleanup.retries.max_attempts, 10);
    assert_eq!(config.cleanup.multipart_stale_timeout, Duration::from_hours(24));
    assert_eq!(config.maintenance.stale_multipart, Duration::from_hours(1));
    assert_eq!(config.maintenance.quota_audit, Duration::from_hours(1));
    assert_eq!((config.lifecycle.interval, config.lifecycle.rules), (Duration::from_hours(1), vec![]));
    assert_eq!(config.maintenance.watchdog, Duration::from_mins(1));
    assert_eq!((config.expiry.interval, config.expiry.batch_size), (Duration::from_mins(1), 1000));
    assert_eq!(config.expiry.stuck_after, Duration::from_hours(2));
    assert_eq!(config.server.object_bytes_max, 5 << 40);
    assert_eq!(config.audit, Path::new("./s3o-data/audit.jsonl"));
}

#[test]
fn every_error_is_reported_with_its_path() {
    let faults = parse(
        "server: {listen: nowhere, colour: red}\n\
         access_keys: [{access_key_id: a, access: root}]\n\
         backends: [{name: Disk, kind: fs, root: x}, {name: b, kind: ftp}, {name: c, kind: s3}]\n\
         cleanup_queue: {interval: soon}\n\
         watchdog: {interval: 1m, stuck_after: 2h}\n\
         expiry: {stuck_after: soon, colour: red}\n\
         buckets: [{name: photos, default_ttl: 0s}, {name: videos, default_ttl: long}]\n\
         lifecycle: {rules: [{prefix: a, expiration_days: 1}, {bucket: photos, prefix: '', expiration_days: 0}, \
         {bucket: Photos, prefix: a, expiration_days: 1, days: 1}]}\n",
    )
    .expect_err("faulty");
    for path in [
        "server.listen: ",
        "server.colour: is not a known setting",
        "access_keys[0].secret_access_key: is required",
        "access_keys[0].access: ",
        "backends[0].name: ",
        "backends[1].kind: ",
        "backends[2].endpoint: is required",
        "backends[2].bucket: is required",
        "cleanup_queue.interval: ",
        "watchdog.stuck_after: is not a known setting",
        "expiry.stuck_after: ",
        "expiry.colour: is not a known setting",
        "buckets[0].default_ttl: 0s is not allowed, use 1ms or more",
        "buckets[1].default_ttl: ",
        "lifecycle.rules[0].bucket: is required",
        "lifecycle.rules[1].prefix: must be 1 to 1024 bytes",
        "lifecycle.rules[1].expiration_days: must be a whole number of days from 1",
        "lifecycle.rules[2].bucket: ",
        "lifecycle.rules[2].days: is not a known setting",
    ] {
        assert!(faults.contains(path), "{path} not in:\n{faults}");
    }
}

#[test]
fn max_attempts_is_read_and_must_be_positive() {
    let config = parse(&format!("cleanup_queue: {{max_attempts: 3}}\n{DISK}")).expect("valid");
    assert_eq!(config.cleanup.retries.max_attempts, 3);
    for wrong in ["0", "-1", "many"] {
        let faults = parse(&format!("cleanup_queue: {{max_attempts: {wrong}}}\n{DISK}")).expect_err("not a number");
        assert!(faults.contains("cleanup_queue.max_attempts"), "{faults}");
    }
}

#[test]
fn lifecycle_rules_are_read_in_order() {
    let rules = "[{bucket: photos, prefix: tmp/, expiration_days: 7}, {bucket: logs, prefix: a, expiration_days: 1}]";
    let config = parse(&format!("lifecycle: {{interval: 5m, rules: {rules}}}\n{DISK}")).expect("valid");
    assert_eq!(config.lifecycle.interval, Duration::from_mins(5));
    let read = |number: usize| (config.lifecycle.rules[number].bucket().as_str(), &config.lifecycle.rules[number]);
    assert_eq!((read(0).0, read(0).1.rule().filter.prefix()), ("photos", "tmp/"));
    assert_eq!((read(1).0, read(1).1.rule().id.as_str()), ("logs", "lifecycle.rules[1]"));
}

#[test]
fn dedup_is_read_per_bucket() {
    let buckets = "buckets: [{name: shared, dedup: true}, {name: plain, dedup: false}, {name: default}]\n";
    let config = parse(&format!("{buckets}{DISK}")).expect("valid");
    let dedup = |name: &str| config.buckets.of(&name.parse().expect("a name")).dedup;
    assert_eq!([dedup("shared"), dedup("plain"), dedup("default")], [true, false, false]);
    let faults = parse(&format!("buckets: [{{name: shared, dedup: often}}]\n{DISK}")).expect_err("not a flag");
    assert!(faults.contains("buckets[0].dedup: "), "{faults}");
}

#[test]
fn names_must_be_unique() {
    let twice = "backends: [{name: a, kind: fs, root: x}, {name: a, kind: fs, root: y}]\n";
    assert!(parse(twice).expect_err("twice").contains("used twice"));
    let buckets = parse(&format!("{DISK}buckets: [{{name: photos, dedup: true}}, {{name: logs}}, {{name: photos}}]\n"));
    assert_eq!(buckets.expect_err("twice"), "buckets[2].name: \"photos\" is used twice");
    let key = "{access_key_id: app, secret_access_key: s}";
    let keys = parse(&format!("{DISK}access_keys: [{key}, {key}]\n"));
    assert_eq!(keys.expect_err("twice"), "access_keys[1].access_key_id: \"app\" is used twice");
    assert!(parse("").expect_err("none").contains("at least one backend"));
}

#[test]
fn variables_are_expanded_in_values() {
    let config = parse(&format!("admin: {{token: \"${{TOKEN}}\"}}\n{DISK}")).expect("valid");
    assert_eq!(config.admin.token.as_deref(), Some("t$1"));
}

#[test]
fn values_of_variables_are_not_shown_in_errors() {
    let secret = |_: &str| Some("a \"secret\" value".to_owned());
    let text = format!("routing: {{strategy: \"${{SECRET}}\"}}\nwatchdog: {{interval: \"${{SECRET}}\"}}\n{DISK}");
    let faults = Config::parse(&text, secret).expect_err("refused").to_string();
    assert!(faults.contains("routing.strategy: \"${SECRET}\" is not one of pack, spread"), "{faults}");
    assert!(!faults.contains("secret"), "{faults}");
}

#[test]
fn faulty_backend_is_not_reported_as_missing() {
    let faults = parse("backends: [{name: a, kind: tape}]\n").expect_err("refused");
    assert!(faults.contains("kind") && !faults.contains("at least one"), "{faults}");
}

#[test]
fn database_is_chosen_by_url_and_password_is_hidden() {
    let config = parse(&format!("database: {{url: \"postgres://u:secret@db/s3o\"}}\n{DISK}")).expect("valid");
    assert!(matches!(&config.database, Database::Postgres { connections: 16, .. }));
    assert!(!format!("{config:?}").contains("secret"));
    let faults = parse(&format!("database: {{url: \"mysql://u:secret@db/s3o\"}}\n{DISK}")).expect_err("unknown");
    assert!(faults.contains("database.url") && !faults.contains("secret"), "{faults}");
}

#[test]
fn out_of_range_values_are_refused() {
    let faults = |settings: &str| parse(&format!("{DISK}{settings}")).expect_err("refused");
    assert!(faults("watchdog: {interval: 9223372036854775807ms}\n").contains("at most 36500d"));
    assert!(faults("cleanup_queue: {backoff_min: 1h, backoff_max: 1s}\n").contains("backoff_min"));
    assert!(
        faults("write_path: {pending_intents: {min_age: 99ms}}\n")
            .contains("min_age: 99ms is not allowed, use 100ms or more")
    );
    assert!(parse(&format!("{DISK}write_path: {{pending_intents: {{min_age: 100ms}}}}\n")).is_ok());
    let stale = faults("cleanup_queue: {multipart_stale_timeout: 0s}\n");
    assert!(stale.contains("multipart_stale_timeout: 0s is not allowed, use 1ms or more"), "{stale}");
    assert!(parse(&format!("{DISK}cleanup_queue: {{multipart_stale_timeout: 1ms}}\n")).is_ok());
    let postgres = "database: {url: 'postgres://localhost/x', ";
    assert!(faults(&format!("{postgres}connections: 9223372036854775807}}\n")).contains("connections"));
    assert!(faults(&format!("{postgres}lock_timeout: 0s}}\n")).contains("lock_timeout"));
}
