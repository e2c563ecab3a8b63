//! What an error of the operating system means to a caller.

use rustix::io::Errno;

use crate::Error;

/// Translates an error that happened while doing something.
pub(super) fn failure(doing: &str, errno: Errno) -> Error {
    let why = format!("{doing}: {errno}");
    match errno {
        Errno::NOSPC | Errno::DQUOT => Error::NoRoom(why),
        Errno::ACCESS
        | Errno::PERM
        | Errno::EXIST
        | Errno::NAMETOOLONG
        | Errno::INVAL
        | Errno::ILSEQ
        | Errno::LOOP
        | Errno::NOTDIR
        | Errno::ISDIR
        | Errno::FBIG => Error::Refused(why),
        // A disk that was mounted read-only refuses everything, not this key. A dying, hanging or
        // vanished disk has many names, and so has a machine short of
        // handles or memory. All of them may pass, and none of them proves anything.
        _ => Error::Away(why),
    }
}

/// Translates an error of the standard library.
pub(super) fn io_failure(doing: &str, error: &std::io::Error) -> Error {
    match Errno::from_io_error(error) {
        Some(errno) => failure(doing, errno),
        None => Error::Away(format!("{doing}: {error}")),
    }
}

/// Whether an error says that a name leads nowhere.
pub(super) fn leads_nowhere(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::NOTDIR)
}

#[cfg(test)]
mod tests {
    use super::failure;
    use crate::Error;
    use rustix::io::Errno;

    #[test]
    fn errors_are_named_by_what_can_be_done() {
        assert!(matches!(failure("writing", Errno::NOSPC), Error::NoRoom(_)));
        assert!(matches!(failure("writing", Errno::DQUOT), Error::NoRoom(_)));
        assert!(matches!(failure("writing", Errno::ROFS), Error::Away(_)));
        assert!(matches!(failure("writing", Errno::IO), Error::Away(_)));
        assert!(matches!(failure("writing", Errno::STALE), Error::Away(_)));
    }
}
