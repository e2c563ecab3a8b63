//! Multipart uploads.

pub mod complete;
pub mod create;
pub mod list_parts;
pub mod list_uploads;
pub mod upload_part;

use s3o_engine::multipart::UploadRef;
use s3o_model::multipart::PART_NUMBER_MAX;

use super::names;
use super::refusal::Refusal;

/// Parses the target of a request; a malformed upload ID is an unknown upload.
fn upload_ref(bucket: &str, key: &str, upload_id: &str) -> Result<UploadRef, Refusal> {
    let (bucket, key) = (names::bucket(bucket)?, names::key(key)?);
    let upload = upload_id.parse().map_err(|_| Refusal::new("NoSuchUpload"))?;
    Ok(UploadRef { bucket, key, upload })
}

/// Parses a part number.
pub fn part_number(number: i32) -> Result<u32, Refusal> {
    let valid = u32::try_from(number).ok().filter(|number| (1..=PART_NUMBER_MAX).contains(number));
    let message = "Part number must be an integer between 1 and 10000, inclusive";
    valid.ok_or_else(|| Refusal::because("InvalidArgument", message))
}

#[cfg(test)]
mod tests {
    use super::upload_ref;

    #[test]
    fn malformed_upload_id_is_an_unknown_upload() {
        assert_eq!(upload_ref("photos", "k", "nonsense").unwrap_err().code, "NoSuchUpload");
        assert!(upload_ref("photos", "k", "0195f3a0000070008000000000000001").is_ok());
    }
}
