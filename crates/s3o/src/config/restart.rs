//! What a running process cannot change about itself.

use super::{BackendConfig, Config};

/// Puts back what only a restart can change, and names what would need one.
pub fn keep_until_restart(running: &Config, wanted: &mut Config) -> Vec<&'static str> {
    let mut kept = Kept::default();
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
    kept.part("identity.delete_delay", &running.upkeep.delete_delay, &mut wanted.upkeep.delete_delay);
    kept.part("database", &running.database, &mut wanted.database);
    kept.part("cache", &running.cache, &mut wanted.cache);
    kept.part("audit.path", &running.audit, &mut wanted.audit);
    let then = same_backends(&running.backends, &wanted.backends);
    // Their order, too: writes go to the first with room.
    if !is_same_fleet(&running.backends, &wanted.backends) {
        kept.names.push("backends");
    }
    wanted.backends = then;
    kept.names
}

#[derive(Default)]
struct Kept {
    names: Vec<&'static str>,
}

impl Kept {
    fn part<T: PartialEq + Clone>(&mut self, name: &'static str, running: &T, wanted: &mut T) {
        if running != wanted {
            wanted.clone_from(running);
            self.names.push(name);
        }
    }
}

fn is_same_fleet(running: &[BackendConfig], wanted: &[BackendConfig]) -> bool {
    running.len() == wanted.len()
        && running.iter().zip(wanted).all(|(now, then)| now.name == then.name && now.kind == then.kind)
}

/// The backends that run, with the room that they are to have.
fn same_backends(running: &[BackendConfig], wanted: &[BackendConfig]) -> Vec<BackendConfig> {
    let with_quota = |now: &BackendConfig| {
        let then = wanted.iter().find(|then| then.name == now.name);
        BackendConfig { quota_bytes: then.map_or(now.quota_bytes, |then| then.quota_bytes), ..now.clone() }
    };
    running.iter().map(with_quota).collect()
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
    fn what_needs_a_restart_is_named_and_stays() {
        let running = config(RUNNING);
        let mut wanted = config(
            "server: {listen: 127.0.0.1:1, region: moon}\naudit: {path: /x}\ncache: {enabled: true}\n\
             backends: [{name: a, kind: fs, root: /elsewhere, quota: 2GiB}]",
        );
        let kept = keep_until_restart(&running, &mut wanted);
        assert_eq!(kept, ["server.listen", "server.region", "cache", "audit.path", "backends"]);
        assert_eq!((&wanted.server.region, &wanted.audit), (&running.server.region, &running.audit));
        let room: Vec<_> = wanted.backends.iter().map(|backend| (backend.name.as_str(), backend.quota_bytes)).collect();
        assert_eq!(room, [("a", Some(2 << 30)), ("b", None)], "room changes, places do not");
        assert!(wanted.backends.iter().zip(&running.backends).all(|(then, now)| then.kind == now.kind));
    }

    #[test]
    fn everything_else_may_change() {
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
        let room: Vec<_> = wanted.backends.iter().map(|backend| (backend.name.as_str(), backend.quota_bytes)).collect();
        assert_eq!(room, [("a", Some(1 << 30)), ("b", Some(1 << 20))], "room is by name, the order stays");
    }
}
