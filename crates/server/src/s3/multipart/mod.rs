//! Multipart uploads.

pub mod complete;
pub mod create;
pub mod list_parts;
pub mod list_uploads;
pub mod upload_part;

use s3o_engine::multipart::UploadRef;

use super::names;
use super::refusal::Refusal;

/// An upload as a request names it; an identifier that we never gave is an unknown upload.
fn upload_ref(bucket: &str, key: &str, upload_id: &str) -> Result<UploadRef, Refusal> {
    let (bucket, key) = (names::bucket(bucket)?, names::key(key)?);
    let upload = upload_id.parse().map_err(|_| Refusal::new("NoSuchUpload"))?;
    Ok(UploadRef { bucket, key, upload })
}

#[cfg(test)]
mod tests {
    use super::upload_ref;

    #[test]
    fn foreign_identifiers_are_unknown_uploads() {
        assert_eq!(upload_ref("photos", "k", "nonsense").unwrap_err().code, "NoSuchUpload");
        assert!(upload_ref("photos", "k", "0195f3a0000070008000000000000001").is_ok());
    }
}
