//! `ListMultipartUploads`.

use s3o_engine::multipart::{ListedUpload, UploadsQuery};
use s3o_model::ids::UploadId;
use s3s::dto::{
    CommonPrefix, EncodingType, ListMultipartUploadsInput, ListMultipartUploadsOutput, MultipartUpload, StorageClass,
};
use s3s::{S3Request, S3Response};

use crate::s3::attributes::DEFAULT_STORAGE_CLASS;
use crate::s3::errors::refuse;
use crate::s3::list_objects::page_size;
use crate::s3::owner::{initiator, owner};
use crate::s3::refusal::Refusal;
use crate::s3::s3_handler::{S3Answer, S3Handler};
use crate::s3::url_encoding::NameEncoding;
use crate::s3::{checksums, names, times};

/// Lists the unfinished uploads of a bucket.
pub async fn list(
    handler: &S3Handler,
    request: S3Request<ListMultipartUploadsInput>,
) -> S3Answer<ListMultipartUploadsOutput> {
    let input = request.input;
    let encoding = NameEncoding::requested(input.encoding_type.as_ref().map(EncodingType::as_str))?;
    let max_uploads = page_size(input.max_uploads, "max-uploads")?;
    let prefix = input.prefix.unwrap_or_default();
    let delimiter = input.delimiter.filter(|delimiter| !delimiter.is_empty());
    let key_marker = input.key_marker.filter(|marker| !marker.is_empty());
    let query = UploadsQuery {
        prefix: prefix.clone(),
        delimiter: delimiter.clone(),
        key_marker: key_marker.clone(),
        upload_id_marker: upload_marker(key_marker.as_deref(), input.upload_id_marker.as_deref())?,
        limit: usize::try_from(max_uploads).unwrap_or_default(),
    };
    let page = handler.engine.list_uploads(&names::bucket(&input.bucket)?, query).await.map_err(refuse)?;
    let keys = page.uploads.iter().map(|upload| upload.key.as_str());
    let encoding = encoding.fit_for(keys.chain(page.prefixes.iter().map(String::as_str)).chain([prefix.as_str()]));
    let (next_key, next_upload) = page.next.map_or((None, None), |(key, upload)| (Some(key), upload));
    Ok(S3Response::new(ListMultipartUploadsOutput {
        bucket: Some(input.bucket),
        prefix: Some(encoding.write(&prefix)),
        delimiter: delimiter.map(|delimiter| encoding.write(&delimiter)),
        key_marker: Some(encoding.write(&key_marker.unwrap_or_default())),
        upload_id_marker: Some(input.upload_id_marker.unwrap_or_default()),
        is_truncated: Some(next_key.is_some()),
        next_key_marker: next_key.map(|key| encoding.write(&key)),
        next_upload_id_marker: next_upload.map(|upload| upload.to_string()),
        max_uploads: Some(max_uploads),
        uploads: Some(page.uploads.into_iter().map(|listed| upload(listed, encoding)).collect()),
        common_prefixes: Some(page.prefixes.iter().map(|prefix| common_prefix(prefix, encoding)).collect()),
        encoding_type: encoding.stated(),
        request_charged: None,
    }))
}

/// Without a key marker S3 ignores the upload marker.
fn upload_marker(key_marker: Option<&str>, upload_id: Option<&str>) -> Result<Option<UploadId>, Refusal> {
    let (Some(_), Some(upload_id)) = (key_marker, upload_id.filter(|id| !id.is_empty())) else { return Ok(None) };
    let malformed = |_| Refusal::because("InvalidArgument", "Invalid uploadId marker");
    upload_id.parse().map(Some).map_err(malformed)
}

fn common_prefix(prefix: &str, encoding: NameEncoding) -> CommonPrefix {
    CommonPrefix { prefix: Some(encoding.write(prefix)) }
}

fn upload(listed: ListedUpload, encoding: NameEncoding) -> MultipartUpload {
    let class = listed.storage_class.unwrap_or_else(|| DEFAULT_STORAGE_CLASS.to_owned());
    MultipartUpload {
        checksum_algorithm: listed.checksum.map(|checksum| checksums::algorithm_name(checksum.algorithm)),
        checksum_type: listed.checksum.map(|checksum| checksums::type_of(checksum.coverage)),
        initiated: Some(times::to_s3(listed.created_at)),
        initiator: Some(initiator()),
        key: Some(encoding.write(listed.key.as_str())),
        owner: Some(owner()),
        storage_class: Some(StorageClass::from(class)),
        upload_id: Some(listed.id.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::upload_marker;

    #[test]
    fn upload_marker_needs_a_key_marker() {
        assert_eq!(upload_marker(None, Some("x")).unwrap(), None);
        assert_eq!(upload_marker(Some("k"), None).unwrap(), None);
        assert_eq!(upload_marker(Some("k"), Some("x")).unwrap_err().code, "InvalidArgument");
        assert!(upload_marker(Some("k"), Some("0195f3a0000070008000000000000001")).unwrap().is_some());
    }
}
