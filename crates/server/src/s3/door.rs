//! Every offered operation and where it is answered; the rest is not implemented.

use std::sync::Arc;

use async_trait::async_trait;
use s3o_engine::Engine;
use s3s::dto;
use s3s::{S3, S3Request, S3Response, S3Result};

use super::access::SharedKeys;
use super::reserved_share::ReservedShare;
use super::{
    acl, bucket_tagging, buckets, copy_object, delete_object, delete_objects, get_object, lifecycle, list_objects,
    multipart, object_attributes, object_tagging, put_object,
};
use crate::audit::Audit;

/// Answers S3 operations from the engine.
#[derive(Clone)]
pub struct Door {
    /// What does the work.
    pub engine: Arc<Engine>,
    /// Whose buckets a listing shows.
    pub keys: SharedKeys,
    /// The region that buckets are in.
    pub region: String,
    /// What one access key may reserve.
    pub reserved_share: ReservedShare,
    /// Who hears of what an operation removes besides what it was asked to.
    pub audit: Arc<Audit>,
}

/// The answer to an operation.
pub type Answer<T> = S3Result<S3Response<T>>;

#[async_trait]
impl S3 for Door {
    async fn list_buckets(&self, request: S3Request<dto::ListBucketsInput>) -> Answer<dto::ListBucketsOutput> {
        buckets::list(self, request).await
    }

    async fn create_bucket(&self, request: S3Request<dto::CreateBucketInput>) -> Answer<dto::CreateBucketOutput> {
        buckets::create(self, request).await
    }

    async fn delete_bucket(&self, request: S3Request<dto::DeleteBucketInput>) -> Answer<dto::DeleteBucketOutput> {
        buckets::delete(self, request).await
    }

    async fn head_bucket(&self, request: S3Request<dto::HeadBucketInput>) -> Answer<dto::HeadBucketOutput> {
        buckets::head(self, request).await
    }

    async fn get_bucket_location(
        &self,
        request: S3Request<dto::GetBucketLocationInput>,
    ) -> Answer<dto::GetBucketLocationOutput> {
        buckets::location(self, request).await
    }

    async fn get_bucket_versioning(
        &self,
        request: S3Request<dto::GetBucketVersioningInput>,
    ) -> Answer<dto::GetBucketVersioningOutput> {
        buckets::versioning(self, request).await
    }

    async fn get_bucket_acl(&self, request: S3Request<dto::GetBucketAclInput>) -> Answer<dto::GetBucketAclOutput> {
        acl::of_bucket(self, request).await
    }

    async fn get_object_acl(&self, request: S3Request<dto::GetObjectAclInput>) -> Answer<dto::GetObjectAclOutput> {
        acl::of_object(self, request).await
    }

    async fn put_bucket_acl(&self, request: S3Request<dto::PutBucketAclInput>) -> Answer<dto::PutBucketAclOutput> {
        acl::put_of_bucket(self, request).await
    }

    async fn put_object_acl(&self, request: S3Request<dto::PutObjectAclInput>) -> Answer<dto::PutObjectAclOutput> {
        acl::put_of_object(self, request).await
    }

    async fn get_bucket_tagging(
        &self,
        request: S3Request<dto::GetBucketTaggingInput>,
    ) -> Answer<dto::GetBucketTaggingOutput> {
        bucket_tagging::get(self, request).await
    }

    async fn put_bucket_tagging(
        &self,
        request: S3Request<dto::PutBucketTaggingInput>,
    ) -> Answer<dto::PutBucketTaggingOutput> {
        bucket_tagging::put(self, request).await
    }

    async fn delete_bucket_tagging(
        &self,
        request: S3Request<dto::DeleteBucketTaggingInput>,
    ) -> Answer<dto::DeleteBucketTaggingOutput> {
        bucket_tagging::delete(self, request).await
    }

    async fn get_bucket_lifecycle_configuration(
        &self,
        request: S3Request<dto::GetBucketLifecycleConfigurationInput>,
    ) -> Answer<dto::GetBucketLifecycleConfigurationOutput> {
        lifecycle::get(self, request).await
    }

    async fn put_bucket_lifecycle_configuration(
        &self,
        request: S3Request<dto::PutBucketLifecycleConfigurationInput>,
    ) -> Answer<dto::PutBucketLifecycleConfigurationOutput> {
        lifecycle::put(self, request).await
    }

    async fn delete_bucket_lifecycle(
        &self,
        request: S3Request<dto::DeleteBucketLifecycleInput>,
    ) -> Answer<dto::DeleteBucketLifecycleOutput> {
        lifecycle::delete(self, request).await
    }

    async fn put_object(&self, request: S3Request<dto::PutObjectInput>) -> Answer<dto::PutObjectOutput> {
        put_object::put(self, request).await
    }

    async fn get_object(&self, request: S3Request<dto::GetObjectInput>) -> Answer<dto::GetObjectOutput> {
        get_object::get(self, request).await
    }

    async fn head_object(&self, request: S3Request<dto::HeadObjectInput>) -> Answer<dto::HeadObjectOutput> {
        get_object::head(self, request).await
    }

    async fn delete_object(&self, request: S3Request<dto::DeleteObjectInput>) -> Answer<dto::DeleteObjectOutput> {
        delete_object::delete(self, request).await
    }

    async fn delete_objects(&self, request: S3Request<dto::DeleteObjectsInput>) -> Answer<dto::DeleteObjectsOutput> {
        delete_objects::delete(self, request).await
    }

    async fn copy_object(&self, request: S3Request<dto::CopyObjectInput>) -> Answer<dto::CopyObjectOutput> {
        copy_object::copy(self, request).await
    }

    async fn list_objects(&self, request: S3Request<dto::ListObjectsInput>) -> Answer<dto::ListObjectsOutput> {
        list_objects::v1::list(self, request).await
    }

    async fn list_objects_v2(&self, request: S3Request<dto::ListObjectsV2Input>) -> Answer<dto::ListObjectsV2Output> {
        list_objects::v2::list(self, request).await
    }

    async fn get_object_attributes(
        &self,
        request: S3Request<dto::GetObjectAttributesInput>,
    ) -> Answer<dto::GetObjectAttributesOutput> {
        object_attributes::get(self, request).await
    }

    async fn get_object_tagging(
        &self,
        request: S3Request<dto::GetObjectTaggingInput>,
    ) -> Answer<dto::GetObjectTaggingOutput> {
        object_tagging::get(self, request).await
    }

    async fn put_object_tagging(
        &self,
        request: S3Request<dto::PutObjectTaggingInput>,
    ) -> Answer<dto::PutObjectTaggingOutput> {
        object_tagging::put(self, request).await
    }

    async fn delete_object_tagging(
        &self,
        request: S3Request<dto::DeleteObjectTaggingInput>,
    ) -> Answer<dto::DeleteObjectTaggingOutput> {
        object_tagging::delete(self, request).await
    }

    async fn create_multipart_upload(
        &self,
        request: S3Request<dto::CreateMultipartUploadInput>,
    ) -> Answer<dto::CreateMultipartUploadOutput> {
        multipart::create::create(self, request).await
    }

    async fn upload_part(&self, request: S3Request<dto::UploadPartInput>) -> Answer<dto::UploadPartOutput> {
        multipart::upload_part::upload(self, request).await
    }

    async fn upload_part_copy(
        &self,
        request: S3Request<dto::UploadPartCopyInput>,
    ) -> Answer<dto::UploadPartCopyOutput> {
        multipart::upload_part::copy(self, request).await
    }

    async fn complete_multipart_upload(
        &self,
        request: S3Request<dto::CompleteMultipartUploadInput>,
    ) -> Answer<dto::CompleteMultipartUploadOutput> {
        multipart::complete::complete(self, request).await
    }

    async fn abort_multipart_upload(
        &self,
        request: S3Request<dto::AbortMultipartUploadInput>,
    ) -> Answer<dto::AbortMultipartUploadOutput> {
        multipart::complete::abort(self, request).await
    }

    async fn list_parts(&self, request: S3Request<dto::ListPartsInput>) -> Answer<dto::ListPartsOutput> {
        multipart::list_parts::list(self, request).await
    }

    async fn list_multipart_uploads(
        &self,
        request: S3Request<dto::ListMultipartUploadsInput>,
    ) -> Answer<dto::ListMultipartUploadsOutput> {
        multipart::list_uploads::list(self, request).await
    }
}
