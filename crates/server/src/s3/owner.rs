//! The one owner of everything, as S3's answers name it.

use s3s::dto::{Initiator, Owner};

/// The owner's identifier, and its name.
pub const NAME: &str = "s3o";

/// The owner of buckets and objects.
pub fn owner() -> Owner {
    Owner { display_name: Some(NAME.to_owned()), id: Some(NAME.to_owned()) }
}

/// Who started an upload.
pub fn initiator() -> Initiator {
    Initiator { display_name: Some(NAME.to_owned()), id: Some(NAME.to_owned()) }
}
