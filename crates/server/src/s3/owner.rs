//! The owner of all buckets and objects in responses.

use s3s::dto::{Initiator, Owner};

/// The ID and display name of the owner.
pub const NAME: &str = "s3o";

/// The owner element of listings and access control lists.
pub fn owner() -> Owner {
    Owner { display_name: Some(NAME.to_owned()), id: Some(NAME.to_owned()) }
}

/// The initiator element of multipart uploads.
pub fn initiator() -> Initiator {
    Initiator { display_name: Some(NAME.to_owned()), id: Some(NAME.to_owned()) }
}
