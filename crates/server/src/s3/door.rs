//! Every offered operation and where it is answered; the rest is not implemented.

use std::sync::Arc;

use async_trait::async_trait;
use s3o_engine::Engine;
use s3s::dto;
use s3s::{S3, S3Request, S3Response, S3Result};

use super::access::SharedKeys;
use super::{
    acl, bucket_tagging, buckets, copy_object, delete_object, delete_objects, get_object, list_objects, multipart,
    object_attributes, object_tagging, put_object,
};

/// Answers S3 operations from the engine.
#[derive(Clone)]
pub struct Door {
    /// What does the work.
    pub engine: Arc<Engine>,
    /// Whose buckets a listing shows.
    pub keys: SharedKeys,
    /// The region that buckets are in.
    pub region: String,
}

/// The answer to an operation.
pub type Answer<T> = S3Result<S3Response<T>>;

/// One line per operation: the method of the trait, its types, and the function that answers it.
macro_rules! operations {
    ($($method:ident: $input:ident => $output:ident = $answer:path;)*) => {
        #[async_trait]
        impl S3 for Door {
            $(async fn $method(&self, request: S3Request<dto::$input>) -> Answer<dto::$output> {
                $answer(self, request).await
            })*
        }
    };
}

operations! {
    list_buckets: ListBucketsInput => ListBucketsOutput = buckets::list;
    create_bucket: CreateBucketInput => CreateBucketOutput = buckets::create;
    delete_bucket: DeleteBucketInput => DeleteBucketOutput = buckets::delete;
    head_bucket: HeadBucketInput => HeadBucketOutput = buckets::head;
    get_bucket_location: GetBucketLocationInput => GetBucketLocationOutput = buckets::location;
    get_bucket_versioning: GetBucketVersioningInput => GetBucketVersioningOutput = buckets::versioning;
    get_bucket_acl: GetBucketAclInput => GetBucketAclOutput = acl::of_bucket;
    get_object_acl: GetObjectAclInput => GetObjectAclOutput = acl::of_object;
    get_bucket_tagging: GetBucketTaggingInput => GetBucketTaggingOutput = bucket_tagging::get;
    put_bucket_tagging: PutBucketTaggingInput => PutBucketTaggingOutput = bucket_tagging::put;
    delete_bucket_tagging: DeleteBucketTaggingInput => DeleteBucketTaggingOutput = bucket_tagging::delete;
    put_object: PutObjectInput => PutObjectOutput = put_object::put;
    get_object: GetObjectInput => GetObjectOutput = get_object::get;
    head_object: HeadObjectInput => HeadObjectOutput = get_object::head;
    delete_object: DeleteObjectInput => DeleteObjectOutput = delete_object::delete;
    delete_objects: DeleteObjectsInput => DeleteObjectsOutput = delete_objects::delete;
    copy_object: CopyObjectInput => CopyObjectOutput = copy_object::copy;
    list_objects: ListObjectsInput => ListObjectsOutput = list_objects::v1::list;
    list_objects_v2: ListObjectsV2Input => ListObjectsV2Output = list_objects::v2::list;
    get_object_attributes: GetObjectAttributesInput => GetObjectAttributesOutput = object_attributes::get;
    get_object_tagging: GetObjectTaggingInput => GetObjectTaggingOutput = object_tagging::get;
    put_object_tagging: PutObjectTaggingInput => PutObjectTaggingOutput = object_tagging::put;
    delete_object_tagging: DeleteObjectTaggingInput => DeleteObjectTaggingOutput = object_tagging::delete;
    create_multipart_upload: CreateMultipartUploadInput => CreateMultipartUploadOutput = multipart::create::create;
    upload_part: UploadPartInput => UploadPartOutput = multipart::upload_part::upload;
    upload_part_copy: UploadPartCopyInput => UploadPartCopyOutput = multipart::upload_part::copy;
    complete_multipart_upload: CompleteMultipartUploadInput => CompleteMultipartUploadOutput = multipart::complete::complete;
    abort_multipart_upload: AbortMultipartUploadInput => AbortMultipartUploadOutput = multipart::complete::abort;
    list_parts: ListPartsInput => ListPartsOutput = multipart::list_parts::list;
    list_multipart_uploads: ListMultipartUploadsInput => ListMultipartUploadsOutput = multipart::list_uploads::list;
}
