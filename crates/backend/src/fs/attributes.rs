//! Probes how a file system treats names.

use rustix::fd::OwnedFd;
use rustix::fs::AtFlags;
use s3o_model::physical_key::{NameStyle, RESERVED_PREFIX};

use super::failure::failure;
use super::folders::{KeyPath, open_parent};
use super::remove::remove_own;
use super::{FsState, write};
use crate::{Error, Traits};

const FOLDER: &str = "probe";

/// An upper-case letter, and a letter with two Unicode forms.
const WRITTEN: &str = "A\u{e9}";
/// The same name on a file system that folds case.
const LOWER_CASE: &str = "a\u{e9}";
/// The same name on a file system that normalises Unicode.
const DECOMPOSED: &str = "Ae\u{301}";

pub(super) fn probe_traits(state: &FsState) -> Result<Traits, Error> {
    let stem = format!("{:016x}", state.entropy.next_u64());
    let key = format!("{RESERVED_PREFIX}{FOLDER}/{stem}{WRITTEN}");
    write::replace(state, &key, b"s3o")?;
    let root = state.root.enter()?;
    let style = name_style(&root, &key, &stem);
    remove_own(&root, FOLDER, &format!("{stem}{WRITTEN}")).map_err(|errno| failure("removing the probe", errno))?;
    Ok(Traits {
        name_style: style?,
        etag_is_md5: false,
        keeps_versions: false,
        // File times come from the clock of this machine.
        clock_skew_ms: None,
    })
}

fn name_style(root: &OwnedFd, key: &str, stem: &str) -> Result<NameStyle, Error> {
    let parent =
        open_parent(root, &KeyPath::parse(key)?).map_err(|errno| failure("opening the probe folder", errno))?;
    let folded = [LOWER_CASE, DECOMPOSED].iter().any(|other| {
        let name = format!("{stem}{other}");
        rustix::fs::statat(&parent, name.as_str(), AtFlags::SYMLINK_NOFOLLOW).is_ok()
    });
    Ok(if folded { NameStyle::Folded } else { NameStyle::Exact })
}
