//! Bucket names, keys and versions of requests.

use s3o_model::names::{BucketName, InvalidName, ObjectKey};
use s3s::validation::NameValidation;

use super::refusal::Refusal;

/// Makes the protocol library accept exactly the names that [`BucketName`] accepts.
pub struct BucketNameValidation;

impl NameValidation for BucketNameValidation {
    fn validate_bucket_name(&self, name: &str) -> bool {
        name.parse::<BucketName>().is_ok()
    }
}

/// Parses a bucket name.
pub fn bucket(name: &str) -> Result<BucketName, Refusal> {
    name.parse().map_err(|invalid| refuse_name(&invalid))
}

/// Parses a key, which stays exactly as the client wrote it.
pub fn key(name: &str) -> Result<ObjectKey, Refusal> {
    name.parse().map_err(|invalid| refuse_name(&invalid))
}

/// Accepts only `null`, the version ID of objects in unversioned buckets.
pub fn version(version_id: Option<&str>) -> Result<(), Refusal> {
    match version_id {
        None | Some("null") => Ok(()),
        Some(_) => Err(Refusal::new("NoSuchVersion")),
    }
}

fn refuse_name(invalid: &InvalidName) -> Refusal {
    match invalid {
        InvalidName::Bucket => Refusal::new("InvalidBucketName"),
        InvalidName::KeyTooLong => Refusal::new("KeyTooLongError"),
        InvalidName::KeyEmpty | InvalidName::KeyNul | InvalidName::Backend => {
            Refusal::because("InvalidArgument", invalid.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{bucket, key};

    #[test]
    fn invalid_names_get_the_error_codes_of_s3() {
        assert_eq!(bucket("Nope").unwrap_err().code, "InvalidBucketName");
        assert_eq!(key(&"k".repeat(1025)).unwrap_err().code, "KeyTooLongError");
        assert_eq!(key("a\0").unwrap_err().code, "InvalidArgument");
    }

    #[test]
    fn unusual_keys_are_unchanged() {
        for name in ["a//b", "./x", "../x", "/x", "x/", "%2F", "a b"] {
            assert_eq!(key(name).unwrap().as_str(), name);
        }
    }
}
