//! Warns of files and folders that other users of the machine can access.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::cli::Serve;
use crate::config::{BackendKind, Config, Database};
use crate::credentials::Credentials;

/// Permission bits of the group and of all other users.
const OTHERS: u32 = 0o077;

/// A path with permissions wider than s3o gives to what it creates, and the command that narrows them.
#[derive(Debug, PartialEq, Eq)]
struct WideMode {
    path: PathBuf,
    mode: u32,
    fix: String,
}

/// Logs a warning for every path that other users can access. s3o creates files with narrow modes and leaves existing
/// ones to the operator.
pub(super) fn warn(config: &Config, arguments: &Serve) {
    for WideMode { path, mode, fix } in wide_modes(config, arguments) {
        let (path, mode) = (path.display(), format!("{mode:04o}"));
        tracing::warn!(%path, mode, fix, "other users of this machine can access s3o's files");
    }
}

fn wide_modes(config: &Config, arguments: &Serve) -> Vec<WideMode> {
    let mut files = vec![config.audit.clone(), Credentials::path(&arguments.data)];
    files.extend(arguments.config.clone());
    if let Database::Sqlite(path) = &config.database {
        files.extend(["", "-wal", "-shm"].map(|ending| with_ending(path, ending)));
    }
    let roots = config.backends.iter().filter_map(|backend| match &backend.kind {
        BackendKind::Fs { root } => Some(root.clone()),
        BackendKind::S3(_) => None,
    });
    let folder = std::iter::once((arguments.data.clone(), "chmod 700"));
    let files = files.into_iter().map(|path| (path, "chmod 600"));
    let roots = roots.map(|path| (path, "chmod -R go-rwx"));
    folder.chain(files).chain(roots).filter_map(|(path, command)| wide_mode(path, command)).collect()
}

fn wide_mode(path: PathBuf, command: &str) -> Option<WideMode> {
    // A path that cannot be read is reported by the part that needs it.
    let mode = std::fs::metadata(&path).ok()?.permissions().mode() & 0o777;
    let fix = format!("{command} {}", quoted(&path));
    (mode & OTHERS != 0).then_some(WideMode { path, mode, fix })
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// The path as one word of a shell command.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "/._-".contains(character);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::{quoted, wide_mode};

    #[test]
    fn wide_mode_is_reported_with_the_command_that_narrows_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("catalog.db");
        assert_eq!(wide_mode(path.clone(), "chmod 600"), None, "an absent file is no finding");
        std::fs::write(&path, "").expect("written");
        for (mode, is_wide) in [(0o600, false), (0o400, false), (0o640, true), (0o604, true), (0o666, true)] {
            set_permissions(&path, Permissions::from_mode(mode)).expect("set");
            let found = wide_mode(path.clone(), "chmod 600");
            assert_eq!(found.is_some(), is_wide, "{mode:o}");
            let fix = format!("chmod 600 {}", path.display());
            assert!(found.is_none_or(|found| found.fix == fix && found.mode == mode), "{mode:o}");
        }
    }

    #[test]
    fn paths_are_quoted_for_the_shell() {
        assert_eq!(quoted(Path::new("./s3o-data/a_b.db")), "./s3o-data/a_b.db");
        assert_eq!(quoted(Path::new("/srv/my $data")), "'/srv/my $data'");
        assert_eq!(quoted(Path::new("it's")), r"'it'\''s'");
    }
}
