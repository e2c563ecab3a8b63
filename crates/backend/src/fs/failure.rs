//! Maps errors of the operating system to backend errors.

use rustix::io::Errno;

use crate::Error;

/// Maps an error; `doing` names the failed step.
pub(super) fn failure(doing: &str, errno: Errno) -> Error {
    let why = format!("{doing}: {errno}");
    match errno {
        Errno::NOSPC | Errno::DQUOT => Error::NoSpace(why),
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
        // A disk mounted read-only refuses everything, not this key. A failing or missing disk has many
        // error numbers, and so has a lack of file handles or memory. All of these may be temporary,
        // and none of them proves that a key is absent.
        _ => Error::Away(why),
    }
}

/// Maps an error of the standard library.
pub(super) fn io_failure(doing: &str, error: &std::io::Error) -> Error {
    match Errno::from_io_error(error) {
        Some(errno) => failure(doing, errno),
        None => Error::Away(format!("{doing}: {error}")),
    }
}

/// True if an error says that a path does not exist.
pub(super) fn is_missing(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::NOTDIR)
}

#[cfg(test)]
mod tests {
    use super::failure;
    use crate::Error;
    use rustix::io::Errno;

    #[test]
    fn errors_are_mapped_by_what_a_caller_can_do() {
        assert!(matches!(failure("writing", Errno::NOSPC), Error::NoSpace(_)));
        assert!(matches!(failure("writing", Errno::DQUOT), Error::NoSpace(_)));
        assert!(matches!(failure("writing", Errno::ROFS), Error::Away(_)));
        assert!(matches!(failure("writing", Errno::IO), Error::Away(_)));
        assert!(matches!(failure("writing", Errno::STALE), Error::Away(_)));
    }
}
