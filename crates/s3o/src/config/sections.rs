//! Reads the whole configuration, and the sections `admin`, `database`, `access_keys` and `audit`.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use s3o_model::bucket::ConfiguredBuckets;
use s3o_model::placement::Strategy;
use s3o_server::s3::{ALL_BUCKETS, Access, AccessKey};
use serde_json::Value;

use super::faults::Faults;
use super::read::Section;
use super::{
    AdminConfig, Config, Database, backends, cache, conflicts, rebalance, reconcile, replication, server, usage,
    workers,
};

/// Ten times the default `max_connections` of PostgreSQL.
const CONNECTIONS_MAX: usize = 1000;
/// A shorter timeout would expire in every pause of the machine.
const LOCK_TIMEOUT_MIN: Duration = Duration::from_millis(100);
/// A longer timeout would delay the takeover of workers for too long.
const LOCK_TIMEOUT_MAX: Duration = Duration::from_hours(24);

/// Sections of parts that are not built yet.
const NOT_BUILT: [&str; 4] = ["sweep", "integrity", "notifications", "small_objects"];

/// Reads the whole configuration; paths that are not configured are below `data`.
pub(super) fn config(tree: &Value, data: &Path) -> Result<Config, Faults> {
    let faults = RefCell::new(Faults::default());
    let root = Section::new(String::new(), Some(tree), &faults);
    let replication = replication::replication(root.section("replication"));
    let buckets = root.list("buckets").into_iter().filter_map(|entry| backends::bucket(entry, replication.factor));
    let config = Config {
        server: server::server(root.section("server")),
        admin: admin(root.section("admin")),
        database: database(root.section("database"), data),
        access_keys: root.list("access_keys").into_iter().filter_map(access_key).collect(),
        buckets: buckets.collect::<ConfiguredBuckets>().with_default_factor(replication.factor),
        backends: root.list("backends").into_iter().filter_map(|entry| backends::backend(entry, data)).collect(),
        strategy: routing(root.section("routing")),
        replication,
        rebalance: rebalance::rebalance(root.section("rebalance")),
        reconcile: reconcile::reconcile(root.section("reconcile")),
        circuit_breaker: workers::circuit_breaker(root.section("circuit_breaker")),
        intents: workers::intents(root.section("write_path")),
        cleanup: workers::cleanup(root.section("cleanup_queue")),
        lifecycle: workers::lifecycle(root.section("lifecycle")),
        expiry: workers::expiry(root.section("expiry")),
        maintenance: workers::maintenance(&root),
        usage_flush: usage::usage_flush(root.section("usage_flush")),
        cache: cache::cache(root.section("cache"), root.section("redis")),
        audit: audit(root.section("audit"), data),
    };
    root.not_built(&NOT_BUILT);
    check_names(&root);
    conflicts::check(&root, &config);
    replication::check(&root, &config);
    root.finish();
    let faults = faults.into_inner();
    if faults.is_empty() { Ok(config) } else { Err(faults) }
}

fn check_names(root: &Section<'_>) {
    if root.list("backends").is_empty() {
        root.fault("backends", "at least one backend is needed");
    }
    check_unique(root, "backends", "name");
    check_unique(root, "access_keys", "access_key_id");
    check_unique(root, "buckets", "name");
}

/// Reports entries of a list whose `field` has the same value as that of an earlier entry.
fn check_unique(root: &Section<'_>, list: &'static str, field: &'static str) {
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

fn admin(section: Section<'_>) -> AdminConfig {
    section.not_built(&["tls"]);
    let listen = section.read("listen", address).unwrap_or(local(9001));
    let admin = AdminConfig { listen, token: section.read("token", not_empty) };
    section.finish();
    admin
}

fn database(section: Section<'_>, data: &Path) -> Database {
    let connections = section.count_up_to("connections", 16, CONNECTIONS_MAX);
    let range = LOCK_TIMEOUT_MIN..=LOCK_TIMEOUT_MAX;
    let lock_timeout = section.duration_within("lock_timeout", Duration::from_secs(20), range, "100ms to 24h");
    let database = section.read("url", |url| match url.split_once(':') {
        Some(("sqlite", path)) if !path.is_empty() => {
            Ok(Database::Sqlite(PathBuf::from(path.strip_prefix("//").unwrap_or(path))))
        }
        Some(("postgres" | "postgresql", _)) => match s3o_catalog::check_url(url) {
            Ok(()) => Ok(Database::Postgres { url: url.to_owned(), connections, lock_timeout }),
            Err(error) => Err(error.to_string()),
        },
        // The value may hold a password.
        Some(_) | None => Err("is not sqlite:PATH or postgres://user:password@host/database".to_owned()),
    });
    section.finish();
    database.unwrap_or_else(|| Database::Sqlite(data.join("catalog.db")))
}

fn routing(section: Section<'_>) -> Strategy {
    let strategy = section.read("strategy", strategy);
    section.finish();
    strategy.unwrap_or_default()
}

pub(super) fn strategy(text: &str) -> Result<Strategy, String> {
    match text {
        "pack" => Ok(Strategy::Pack),
        "spread" => Ok(Strategy::Spread),
        other => Err(format!("{other:?} is not one of pack, spread")),
    }
}

fn audit(section: Section<'_>, data: &Path) -> PathBuf {
    let path = section.read("path", not_empty);
    section.finish();
    path.map_or_else(|| data.join("audit.jsonl"), PathBuf::from)
}

pub(super) fn not_empty(text: &str) -> Result<String, String> {
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

pub(super) fn flag(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| format!("{text:?} is not one of true, false"))
}
