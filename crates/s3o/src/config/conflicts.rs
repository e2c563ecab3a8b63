//! Refuses backends with the same or nested folders, backends with the same bucket, and one address for two listeners.
//!
//! Two backends in one folder or bucket would share an identity object and count each other's bytes as foreign.

use std::net::{IpAddr, SocketAddr};
use std::path::{Component, Path, PathBuf};

use super::read::Section;
use super::{BackendConfig, BackendKind, Config};

/// Reports backends and listeners that conflict.
pub(super) fn check(root: &Section<'_>, config: &Config) {
    if collide(config.server.listen, config.admin.listen) {
        let message = format!("{} is also used by server.listen, use another address", config.admin.listen);
        root.section("admin").fault("listen", message);
    }
    let entries = root.list("backends");
    // An invalid entry is not among the backends; it is already reported.
    if entries.len() != config.backends.len() {
        return;
    }
    let mut seen: Vec<(usize, StoreLocation)> = Vec::new();
    for (position, (entry, backend)) in entries.iter().zip(&config.backends).enumerate() {
        let (field, location) = StoreLocation::of(backend);
        for (earlier, other) in &seen {
            if let Some(relation) = location.relation(other) {
                entry.fault(
                    field,
                    format!("{relation} backends[{earlier}]; use a separate folder or bucket for each backend"),
                );
            }
        }
        seen.push((position, location));
    }
}

/// Normalised location of a backend's bytes.
enum StoreLocation {
    Folder(PathBuf),
    Bucket { host: String, bucket: String },
}

impl StoreLocation {
    /// With the name of its setting.
    fn of(backend: &BackendConfig) -> (&'static str, Self) {
        match &backend.kind {
            BackendKind::Fs { root } => ("root", Self::Folder(resolved(root))),
            BackendKind::S3(options) => {
                let (host, bucket) = (host_and_port(&options.endpoint), options.bucket.clone());
                ("bucket", Self::Bucket { host, bucket })
            }
        }
    }

    fn relation(&self, other: &Self) -> Option<&'static str> {
        match (self, other) {
            (Self::Folder(mine), Self::Folder(theirs)) if mine == theirs => Some("is the same folder as that of"),
            (Self::Folder(mine), Self::Folder(theirs)) if mine.starts_with(theirs) => Some("is inside the folder of"),
            (Self::Folder(mine), Self::Folder(theirs)) if theirs.starts_with(mine) => Some("contains the folder of"),
            (Self::Bucket { host, bucket }, Self::Bucket { host: other_host, bucket: other_bucket })
                if host == other_host && bucket == other_bucket =>
            {
                Some("is the same bucket at the same endpoint as that of")
            }
            _ => None,
        }
    }
}

/// An absolute path without `.` and `..`, with symbolic links resolved as far as the path exists.
fn resolved(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut plain = PathBuf::new();
    for component in absolute.components() {
        match component {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            other => plain.push(other),
        }
        if let Ok(real) = plain.canonicalize() {
            plain = real;
        }
    }
    plain
}

/// Host and port of a URL in lower case; the default port of the scheme if the URL has none.
fn host_and_port(endpoint: &str) -> String {
    let (scheme, rest) = endpoint.split_once("://").unwrap_or(("https", endpoint));
    let authority = rest.split('/').next().unwrap_or(rest).to_ascii_lowercase();
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let port = if scheme == "https" { 443 } else { 80 };
    if has_port { authority } else { format!("{authority}:{port}") }
}

/// True if two listeners cannot bind both addresses. Port 0 is a different port each time.
fn collide(one: SocketAddr, other: SocketAddr) -> bool {
    let covers = |all: IpAddr, ip: IpAddr| all.is_unspecified() && (all.is_ipv6() || ip.is_ipv4());
    let (first, second) = (one.ip(), other.ip());
    one.port() != 0 && one.port() == other.port() && (first == second || covers(first, second) || covers(second, first))
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    fn faults(text: &str) -> Vec<String> {
        match Config::parse(text, |_| None) {
            Ok(_) => vec![],
            Err(faults) => faults.to_string().lines().map(str::to_owned).collect(),
        }
    }

    fn folders(first: &str, second: &str) -> Vec<String> {
        faults(&format!("backends: [{{name: a, kind: fs, root: {first}}}, {{name: b, kind: fs, root: {second}}}]"))
    }

    fn bucket(name: &str, endpoint: &str, bucket: &str) -> String {
        let keys = "access_key_id: a, secret_access_key: s";
        format!("{{name: {name}, kind: s3, endpoint: '{endpoint}', bucket: {bucket}, {keys}}}")
    }

    #[test]
    fn same_and_nested_roots_are_refused_with_their_path() {
        for (first, second, relation) in [
            ("/srv/x", "/srv/./y/../x/", "is the same folder"),
            ("/srv/x", "/srv/x/deep/er", "is inside the folder"),
            ("/srv/x/y", "/srv/x", "contains the folder"),
        ] {
            let found = folders(first, second);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with(&format!("backends[1].root: {relation}")), "{found:?}");
            assert!(found[0].contains(" of backends[0];"), "{found:?}");
        }
        assert_eq!(folders("/srv/x", "/srv/xy"), Vec::<String>::new());
    }

    #[test]
    fn symbolic_link_to_the_same_folder_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let (real, link) = (folder.path().join("real"), folder.path().join("link"));
        std::fs::create_dir(&real).expect("created");
        std::os::unix::fs::symlink(&real, &link).expect("linked");
        let found = folders(&real.display().to_string(), &link.join("deep").display().to_string());
        assert!(found[0].contains("is inside the folder of backends[0]"), "{found:?}");
    }

    #[test]
    fn same_endpoint_and_bucket_are_refused() {
        let pair = |first: String, second: String| faults(&format!("backends: [{first}, {second}]"));
        let found = pair(bucket("a", "https://S3.example.com/", "x"), bucket("b", "https://s3.example.com:443", "x"));
        assert!(found[0].starts_with("backends[1].bucket: is the same bucket"), "{found:?}");
        let others = [bucket("b", "https://s3.example.com", "y"), bucket("b", "https://s3.example.com:444", "x")];
        for other in others {
            assert_eq!(pair(bucket("a", "https://s3.example.com", "x"), other), Vec::<String>::new());
        }
    }

    #[test]
    fn equal_listen_addresses_are_refused() {
        let listen = |server: &str, admin: &str| {
            let disk = "backends: [{name: a, kind: fs, root: /srv/x}]";
            faults(&format!("server: {{listen: '{server}'}}\nadmin: {{listen: '{admin}'}}\n{disk}"))
        };
        for (server, admin) in
            [("127.0.0.1:9000", "127.0.0.1:9000"), ("0.0.0.0:9000", "127.0.0.1:9000"), ("10.0.0.1:9000", "[::]:9000")]
        {
            let found = listen(server, admin);
            assert_eq!(found, [format!("admin.listen: {admin} is also used by server.listen, use another address")]);
        }
        for (server, admin) in [("127.0.0.1:0", "127.0.0.1:0"), ("127.0.0.1:9000", "127.0.0.2:9000")] {
            assert_eq!(listen(server, admin), Vec::<String>::new());
        }
    }
}
