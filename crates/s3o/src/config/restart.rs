//! Settings that need a restart.

use super::{BackendConfig, Config};

/// Resets the settings of `wanted` that need a restart to the running values. Returns the names of those that differed.
pub fn keep_until_restart(running: &Config, wanted: &mut Config) -> Vec<&'static str> {
    let mut kept = RestartNeeded::default();
    kept.part("server.listen", &running.server.listen, &mut wanted.server.listen);
    kept.part("server.region", &running.server.region, &mut wanted.server.region);
    kept.part("server.domain", &running.server.domain, &mut wanted.server.domain);
    let (now, then) = (&running.server, &mut wanted.server);
    kept.part("server.max_concurrent_requests", &now.max_concurrent_requests, &mut then.max_concurrent_requests);
    kept.part("server.max_connections", &now.max_connections, &mut then.max_connections);
    kept.part(
        "server.max_connections_per_address",
        &now.max_connections_per_address,
        &mut then.max_connections_per_address,
    );
    kept.part("server.min_transfer_rate", &now.min_transfer_rate, &mut then.min_transfer_rate);
    kept.part("server.max_reserved_share", &now.max_reserved_share, &mut then.max_reserved_share);
    kept.part("admin.listen", &running.admin.listen, &mut wanted.admin.listen);
    kept.part("identity.delete_delay", &running.maintenance.delete_delay, &mut wanted.maintenance.delete_delay);
    kept.part("database", &running.database, &mut wanted.database);
    kept.part("cache", &running.cache, &mut wanted.cache);
    kept.part("audit.path", &running.audit, &mut wanted.audit);
    let then = with_new_limits(&running.backends, &wanted.backends);
    // The order matters, too: a write goes to the first backend with free capacity.
    if !has_same_backends(&running.backends, &wanted.backends) {
        kept.names.push("backends");
    }
    wanted.backends = then;
    kept.names
}

#[derive(Default)]
struct RestartNeeded {
    names: Vec<&'static str>,
}

impl RestartNeeded {
    fn part<T: PartialEq + Clone>(&mut self, name: &'static str, running: &T, wanted: &mut T) {
        if running != wanted {
            wanted.clone_from(running);
            self.names.push(name);
        }
    }
}

fn has_same_backends(running: &[BackendConfig], wanted: &[BackendConfig]) -> bool {
    running.len() == wanted.len()
        && running.iter().zip(wanted).all(|(now, then)| now.name == then.name && now.kind == then.kind)
}

/// The running backends with the new quotas, size limits and usage limits.
fn with_new_limits(running: &[BackendConfig], wanted: &[BackendConfig]) -> Vec<BackendConfig> {
    let with_limits = |now: &BackendConfig| {
        let then = wanted.iter().find(|then| then.name == now.name);
        let Some(BackendConfig { quota_bytes, object_bytes_max, usage_limits, .. }) = then.cloned() else {
            return now.clone();
        };
        BackendConfig { quota_bytes, object_bytes_max, usage_limits, ..now.clone() }
    };
    running.iter().map(with_limits).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::keep_until_restart;

    fn config(text: &str) -> Config {
        Config::parse(text, |_| None).expect("valid")
    }

    const RUNNING: &str = "backends: [{name: a, kind: fs, root: /a, quota: 1GiB}, {name: b, kind: fs, root: /b}]";

    #[test]
    fn settings_that_need_a_restart_are_named_and_kept() {
        let running = config(RUNNING);
        let mut wanted = config(
            "server: {listen: 127.0.0.1:1, region: moon}\naudit: {path: /x}\ncache: {enabled: true}\n\
             backends: [{name: a, kind: fs, root: /elsewhere, quota: 2GiB}]",
        );
        let kept = keep_until_restart(&running, &mut wanted);
        assert_eq!(kept, ["server.listen", "server.region", "cache", "audit.path", "backends"]);
        assert_eq!((&wanted.server.region, &wanted.audit), (&running.server.region, &running.audit));
        let quotas: Vec<_> =
            wanted.backends.iter().map(|backend| (backend.name.as_str(), backend.quota_bytes)).collect();
        assert_eq!(quotas, [("a", Some(2 << 30)), ("b", None)], "quotas change, roots do not");
        assert!(wanted.backends.iter().zip(&running.backends).all(|(then, now)| then.kind == now.kind));
    }

    #[test]
    fn other_settings_change_without_a_restart() {
        let mut wanted = config(
            "buckets: [{name: photos}]\ncleanup_queue: {interval: 5s}\nserver: {max_object_size: 1MiB}\n\
             backends: [{name: a, kind: fs, root: /a}, {name: b, kind: fs, root: /b, quota: 1MiB}]",
        );
        assert_eq!(keep_until_restart(&config(RUNNING), &mut wanted), Vec::<&str>::new());
        assert_eq!(wanted.server.object_bytes_max, 1 << 20);
        assert_eq!(wanted.backends[1].quota_bytes, Some(1 << 20));
    }

    #[test]
    fn another_order_of_backends_needs_a_restart() {
        let running = config(RUNNING);
        let mut wanted = config(
            "backends: [{name: b, kind: fs, root: /b, quota: 1MiB}, {name: a, kind: fs, root: /a, quota: 1GiB}]",
        );
        assert_eq!(keep_until_restart(&running, &mut wanted), ["backends"]);
        let quotas: Vec<_> =
            wanted.backends.iter().map(|backend| (backend.name.as_str(), backend.quota_bytes)).collect();
        assert_eq!(quotas, [("a", Some(1 << 30)), ("b", Some(1 << 20))], "quotas follow the name, the order is kept");
    }
}
