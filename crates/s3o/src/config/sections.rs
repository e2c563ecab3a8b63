//! The sections of the configuration, one function each, with their defaults.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use s3o_backend::s3::{PUT_BYTES_MAX, S3Options, Secret};
use s3o_model::backoff::Backoff;
use s3o_model::bucket::BucketSettings;
use s3o_model::cleanup::Retries;
use s3o_model::lifecycle::{ConfiguredRule, InvalidRule};
use s3o_model::names::{BackendName, BucketName};
use s3o_model::recovery::Recovery;
use s3o_server::s3::{ALL_BUCKETS, Access, AccessKey};
use serde_json::Value;

use super::faults::Faults;
use super::read::Section;
use super::{
    Admin, BackendConfig, BackendKind, CleanupQueue, Config, Database, Expiry, Intents, Lifecycle, Upkeep, cache,
    places, server, units,
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);
/// PostgreSQL itself takes a hundred unless it is told otherwise.
const CONNECTIONS_MAX: usize = 1000;
/// A shorter one ends with every pause of the machine, a longer one keeps work from being taken over.
const LOCK_TIMEOUT_MIN: Duration = Duration::from_millis(100);
const LOCK_TIMEOUT_MAX: Duration = Duration::from_hours(24);
/// A lease is renewed every third of it; a shorter one runs out under the hands of whoever writes.
const LEASE_MIN: Duration = Duration::from_millis(100);
/// A unit of the catalog takes no more items.
const BATCH_MAX: usize = 1000;
const HOUR: Duration = Duration::from_hours(1);

/// Sections of parts that are not built yet.
const NOT_BUILT: [&str; 9] = [
    "replication",
    "rebalance",
    "reconcile",
    "sweep",
    "integrity",
    "usage_flush",
    "circuit_breaker",
    "notifications",
    "small_objects",
];

/// Reads the whole configuration; paths that it leaves out lie below `data`.
pub(super) fn config(tree: &Value, data: &Path) -> Result<Config, Faults> {
    let faults = RefCell::new(Faults::default());
    let root = Section::new(String::new(), Some(tree), &faults);
    let identity = identity(root.section("identity"));
    let config = Config {
        server: server::server(root.section("server")),
        admin: admin(root.section("admin")),
        database: database(root.section("database"), data),
        access_keys: root.list("access_keys").into_iter().filter_map(access_key).collect(),
        buckets: root.list("buckets").into_iter().filter_map(bucket).collect(),
        backends: root.list("backends").into_iter().filter_map(|section| backend(section, data)).collect(),
        intents: intents(root.section("write_path")),
        cleanup: cleanup(root.section("cleanup_queue")),
        lifecycle: lifecycle(root.section("lifecycle")),
        expiry: expiry(root.section("expiry")),
        upkeep: Upkeep {
            stale_multipart: interval(root.section("stale_multipart"), HOUR),
            quota_audit: interval(root.section("quota_audit"), HOUR),
            watchdog: interval(root.section("watchdog"), MINUTE),
            identity: identity.interval,
            probe_interval: identity.probe_interval,
            delete_delay: identity.delete_delay,
        },
        cache: cache::cache(root.section("cache"), root.section("redis")),
        audit: audit(root.section("audit"), data),
    };
    let routing = root.section("routing");
    routing.only("strategy", "pack");
    routing.finish();
    root.not_built(&NOT_BUILT);
    check_names(&root, &config);
    places::check(&root, &config);
    root.finish();
    let faults = faults.into_inner();
    if faults.is_empty() { Ok(config) } else { Err(faults) }
}

fn check_names(root: &Section<'_>, config: &Config) {
    if config.backends.is_empty() {
        root.fault("backends", "at least one backend is needed");
    }
    once_each(root, "backends", "name");
    once_each(root, "access_keys", "access_key_id");
    once_each(root, "buckets", "name");
}

/// Notes entries of a list that say the same as an earlier one in a field that names them.
fn once_each(root: &Section<'_>, list: &'static str, field: &'static str) {
    let mut seen = BTreeSet::new();
    for entry in root.list(list) {
        if let Some(text) = entry.text(field)
            && !seen.insert(text.clone())
        {
            entry.fault(field, format!("{text:?} is used twice"));
        }
    }
}

pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("{text:?} is not an address such as 127.0.0.1:9000"))
}

pub(super) fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn admin(section: Section<'_>) -> Admin {
    section.not_built(&["tls"]);
    let listen = section.read("listen", address).unwrap_or(local(9001));
    let admin = Admin { listen, token: section.read("token", not_empty) };
    section.finish();
    admin
}

fn database(section: Section<'_>, data: &Path) -> Database {
    let connections = section.count("connections", 16);
    if connections > CONNECTIONS_MAX {
        section.fault("connections", format!("at most {CONNECTIONS_MAX}"));
    }
    let lock_timeout = section.duration("lock_timeout", 20 * SECOND);
    if !(LOCK_TIMEOUT_MIN..=LOCK_TIMEOUT_MAX).contains(&lock_timeout) {
        section.fault("lock_timeout", "must be between 100ms and 24h");
    }
    let database = section.read("url", |url| match url.split_once(':') {
        Some(("sqlite", path)) if !path.is_empty() => {
            Ok(Database::Sqlite(PathBuf::from(path.strip_prefix("//").unwrap_or(path))))
        }
        Some(("postgres" | "postgresql", _)) => match s3o_catalog::check_url(url) {
            Ok(()) => Ok(Database::Postgres { url: url.to_owned(), connections, lock_timeout }),
            Err(error) => Err(error.to_string()),
        },
        // What was written may hold a password.
        Some(_) | None => Err("is not sqlite:PATH or postgres://user:password@host/database".to_owned()),
    });
    section.finish();
    database.unwrap_or_else(|| Database::Sqlite(data.join("catalog.db")))
}

fn audit(section: Section<'_>, data: &Path) -> PathBuf {
    let path = section.read("path", not_empty);
    section.finish();
    path.map_or_else(|| data.join("audit.jsonl"), PathBuf::from)
}

fn not_empty(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("must not be empty".to_owned()) } else { Ok(text.to_owned()) }
}

fn access(text: &str) -> Result<Access, String> {
    match text {
        "read_only" => Ok(Access::ReadOnly),
        "read_write" => Ok(Access::ReadWrite),
        "admin" => Ok(Access::Admin),
        other => Err(format!("{other:?} is not one of read_only, read_write, admin")),
    }
}

fn access_key(section: Section<'_>) -> Option<AccessKey> {
    let id = section.required("access_key_id", not_empty);
    let secret = section.required("secret_access_key", not_empty);
    let granted = section.read("access", access).unwrap_or(Access::ReadWrite);
    // A key without the field may use all buckets; one with an empty list none.
    let listed = section.has("buckets").then(|| section.texts("buckets"));
    let buckets = listed.unwrap_or_else(|| vec![ALL_BUCKETS.to_owned()]);
    section.finish();
    Some(AccessKey { access_key_id: id?, secret: secret?, buckets, access: granted })
}

fn bucket(section: Section<'_>) -> Option<(BucketName, BucketSettings)> {
    let name = section.required("name", |text| text.parse().map_err(|e: s3o_model::names::InvalidName| e.to_string()));
    let dedup = section.read("dedup", flag).unwrap_or(false);
    section.not_built(&["replication_factor", "small_objects"]);
    let default_ttl = section.read("default_ttl", time_to_live);
    section.finish();
    Some((name?, BucketSettings { dedup, default_ttl }))
}

fn time_to_live(text: &str) -> Result<Duration, String> {
    let live = units::duration(text)?;
    if live.is_zero() { Err("must be longer than nothing".to_owned()) } else { Ok(live) }
}

fn backend(section: Section<'_>, data: &Path) -> Option<BackendConfig> {
    let name = section.required("name", |text| text.parse::<BackendName>().map_err(|error| error.to_string()));
    let quota_bytes = section.read("quota", units::size);
    section.not_built(&["api_request_limit", "egress_byte_limit", "ingress_byte_limit", "max_object_size"]);
    let kind = section.required("kind", |text| match text {
        "fs" | "s3" => Ok(text.to_owned()),
        other => Err(format!("{other:?} is not one of fs, s3")),
    });
    let kind = match kind.as_deref() {
        Some("fs") => {
            let default = name.as_ref().map(|name| data.join(name.as_str()));
            let root = section.read("root", not_empty).map(PathBuf::from).or(default);
            root.map(|root| BackendKind::Fs { root })
        }
        Some(_) => s3_options(&section).map(|options| BackendKind::S3(Box::new(options))),
        None => return None,
    };
    section.finish();
    Some(BackendConfig { name: name?, quota_bytes, kind: kind? })
}

fn s3_options(section: &Section<'_>) -> Option<S3Options> {
    let endpoint = section.required("endpoint", |text| match text.split_once("://") {
        Some(("http" | "https", host)) if !host.is_empty() => Ok(text.trim_end_matches('/').to_owned()),
        // What was written may hold a password.
        Some(_) | None => Err("is not a URL such as https://s3.example.com".to_owned()),
    });
    let region = section.text("region").unwrap_or_else(|| "us-east-1".to_owned());
    let bucket = section.required("bucket", not_empty);
    let access_key_id = section.required("access_key_id", not_empty);
    let secret = section.required("secret_access_key", not_empty);
    let path_style = section.read("path_style", flag).unwrap_or(true);
    let put_bytes_max = section.read("put_bytes_max", units::size).unwrap_or(PUT_BYTES_MAX);
    let create_bucket = section.read("create_bucket", flag).unwrap_or(false);
    Some(S3Options {
        endpoint: endpoint?,
        region,
        bucket: bucket?,
        access_key_id: access_key_id?,
        secret_access_key: Secret::new(secret?),
        path_style,
        put_bytes_max,
        create_bucket,
    })
}

fn intents(write_path: Section<'_>) -> Intents {
    let section = write_path.section("pending_intents");
    let intents = Intents {
        enabled: section.read("enabled", flag).unwrap_or(true),
        recovery: section.read("recovery", recovery).unwrap_or(Recovery::Promote),
        concurrency: section.count("concurrency", 8),
        min_age: section.duration("min_age", 5 * MINUTE),
        reaper_tick: section.duration("reaper_tick", MINUTE),
        batch_size: section.count_up_to("batch_size", 100, BATCH_MAX),
        late_write_window: section.duration("late_write_window", HOUR),
    };
    if intents.min_age < LEASE_MIN {
        section.fault("min_age", "must be at least 100ms, or writes under way are taken for dead");
    }
    section.finish();
    write_path.finish();
    intents
}

fn recovery(text: &str) -> Result<Recovery, String> {
    match text {
        "promote" => Ok(Recovery::Promote),
        "rollback" => Ok(Recovery::Rollback),
        _ => Err("must be promote or rollback".to_owned()),
    }
}

pub(super) fn flag(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| "must be true or false".to_owned())
}

fn cleanup(section: Section<'_>) -> CleanupQueue {
    let cleanup = CleanupQueue {
        interval: section.duration("interval", MINUTE),
        batch_size: section.count_up_to("batch_size", 1000, BATCH_MAX),
        concurrency: section.count("concurrency", 8),
        claim_grace_period: section.duration("claim_grace_period", 5 * MINUTE),
        retries: Retries {
            backoff: Backoff {
                min: section.duration("backoff_min", 60 * SECOND),
                max: section.duration("backoff_max", 24 * HOUR),
            },
            max_attempts: u32::try_from(section.count("max_attempts", 10)).unwrap_or(u32::MAX),
        },
        reader_grace: section.duration("reader_grace", MINUTE),
        multipart_stale_timeout: section.duration("multipart_stale_timeout", 24 * HOUR),
    };
    if cleanup.retries.backoff.min > cleanup.retries.backoff.max {
        section.fault("backoff_min", "must not be longer than backoff_max");
    }
    if cleanup.multipart_stale_timeout.is_zero() {
        section.fault("multipart_stale_timeout", "must be longer than nothing, or uploads in use are aborted");
    }
    section.finish();
    cleanup
}

fn lifecycle(section: Section<'_>) -> Lifecycle {
    let rules = section.list("rules").into_iter().enumerate();
    let lifecycle = Lifecycle {
        interval: section.duration("interval", HOUR),
        rules: rules.filter_map(|(position, rule)| lifecycle_rule(position, rule)).collect(),
    };
    section.finish();
    lifecycle
}

fn lifecycle_rule(position: usize, section: Section<'_>) -> Option<ConfiguredRule> {
    let told = |error: InvalidRule| error.to_string();
    let bucket = section.required("bucket", |text| text.parse::<BucketName>().map_err(|error| error.to_string()));
    let prefix = section.required("prefix", |text| ConfiguredRule::prefix(text).map_err(told));
    let days = section.required("expiration_days", |text| ConfiguredRule::days(text).map_err(told));
    section.finish();
    Some(ConfiguredRule::new(position, bucket?, prefix?, days?))
}

fn expiry(section: Section<'_>) -> Expiry {
    let expiry = Expiry {
        interval: section.duration("interval", MINUTE),
        batch_size: section.count_up_to("batch_size", 1000, BATCH_MAX),
        stuck_after: section.duration("stuck_after", 2 * HOUR),
    };
    section.finish();
    expiry
}

/// Settings of the section `identity`.
struct IdentitySection {
    interval: Duration,
    probe_interval: Option<Duration>,
    delete_delay: Option<Duration>,
}

fn identity(section: Section<'_>) -> IdentitySection {
    let settings = IdentitySection {
        interval: section.duration("interval", HOUR),
        probe_interval: section.read("probe_interval", units::duration),
        delete_delay: section.read("delete_delay", units::duration),
    };
    section.finish();
    settings
}

/// A worker that has nothing to set but how often it looks.
fn interval(section: Section<'_>, default: Duration) -> Duration {
    let interval = section.duration("interval", default);
    section.finish();
    interval
}
