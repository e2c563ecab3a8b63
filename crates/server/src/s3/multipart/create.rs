//! `CreateMultipartUpload`.

use s3o_engine::multipart::CreateUpload;
use s3o_model::checksum::{Algorithm, Coverage};
use s3o_model::multipart::UploadChecksum;
use s3s::dto::{ChecksumAlgorithm, ChecksumType, CreateMultipartUploadInput, CreateMultipartUploadOutput};
use s3s::{S3Request, S3Response};

use crate::s3::attributes::given;
use crate::s3::errors::refuse;
use crate::s3::refusal::Refusal;
use crate::s3::s3_handler::{S3Answer, S3Handler};
use crate::s3::{checksums, expiration, names};

/// Creates an upload.
pub async fn create(
    handler: &S3Handler,
    request: S3Request<CreateMultipartUploadInput>,
) -> S3Answer<CreateMultipartUploadOutput> {
    let mut input = request.input;
    let checksum = upload_checksum(input.checksum_algorithm.as_ref(), input.checksum_type.as_ref())?;
    let create = CreateUpload {
        bucket: names::bucket(&input.bucket)?,
        key: names::key(&input.key)?,
        attributes: given!(input).attributes(&request.headers)?,
        checksum,
        expiry: expiration::requested(&request.headers)?,
    };
    let created = handler.engine.create_upload(create).await.map_err(refuse)?;
    let (abort_date, abort_rule_id) = expiration::aborted(created.expiration.as_ref()).unzip();
    Ok(S3Response::new(CreateMultipartUploadOutput {
        abort_date,
        abort_rule_id,
        bucket: Some(input.bucket),
        key: Some(input.key),
        upload_id: Some(created.upload.id.to_string()),
        checksum_algorithm: checksum.map(|checksum| checksums::algorithm_name(checksum.algorithm)),
        checksum_type: checksum.map(|checksum| checksums::type_of(checksum.coverage)),
        ..CreateMultipartUploadOutput::default()
    }))
}

/// As in S3, CRC-64 is always a full-object checksum, SHA-1 and SHA-256 are always composite, CRC-32 and CRC-32C can be
/// either.
fn upload_checksum(
    algorithm: Option<&ChecksumAlgorithm>,
    stated: Option<&ChecksumType>,
) -> Result<Option<UploadChecksum>, Refusal> {
    let stated = stated.map(checksums::coverage).transpose()?;
    let Some(algorithm) = algorithm else {
        return match stated {
            None => Ok(None),
            Some(_) => Err(Refusal::because("InvalidRequest", "A checksum type needs a checksum algorithm.")),
        };
    };
    let algorithm = checksums::algorithm(algorithm.as_str())?;
    let coverage = stated.unwrap_or(match algorithm {
        Algorithm::Crc64nvme => Coverage::FullObject,
        Algorithm::Crc32 | Algorithm::Crc32c | Algorithm::Sha1 | Algorithm::Sha256 => Coverage::Composite,
    });
    let possible = match (algorithm, coverage) {
        (Algorithm::Crc32 | Algorithm::Crc32c, _) | (Algorithm::Crc64nvme, Coverage::FullObject) => true,
        (Algorithm::Sha1 | Algorithm::Sha256, coverage) => coverage == Coverage::Composite,
        (Algorithm::Crc64nvme, Coverage::Composite) => false,
    };
    if possible {
        return Ok(Some(UploadChecksum { algorithm, coverage }));
    }
    let message = format!("The checksum type cannot be used with the {} checksum algorithm.", algorithm.name());
    Err(Refusal::because("InvalidRequest", message))
}

#[cfg(test)]
mod tests {
    use super::upload_checksum;
    use s3o_model::checksum::Coverage;
    use s3s::dto::{ChecksumAlgorithm, ChecksumType};

    fn coverage(algorithm: &'static str, stated: Option<&'static str>) -> Option<Coverage> {
        let stated = stated.map(ChecksumType::from_static);
        upload_checksum(Some(&ChecksumAlgorithm::from_static(algorithm)), stated.as_ref()).ok()?.map(|c| c.coverage)
    }

    #[test]
    fn each_algorithm_allows_its_checksum_types() {
        assert_eq!(coverage("CRC32", None), Some(Coverage::Composite));
        assert_eq!(coverage("CRC32", Some("FULL_OBJECT")), Some(Coverage::FullObject));
        assert_eq!(coverage("CRC64NVME", None), Some(Coverage::FullObject));
        assert_eq!(coverage("CRC64NVME", Some("COMPOSITE")), None);
        assert_eq!(coverage("SHA256", Some("FULL_OBJECT")), None);
        assert_eq!(coverage("SHA256", None), Some(Coverage::Composite));
    }

    #[test]
    fn checksum_type_needs_an_algorithm() {
        assert!(upload_checksum(None, None).unwrap().is_none());
        let stated = ChecksumType::from_static("COMPOSITE");
        assert_eq!(upload_checksum(None, Some(&stated)).unwrap_err().code, "InvalidRequest");
    }
}
