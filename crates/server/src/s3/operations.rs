//! The table of offered operations. To add one, write a file with its handler and add a row here.
//!
//! A request with a query parameter that its row does not list is refused: an unknown parameter may select another
//! operation (`?policy`, `?restore`).

use async_trait::async_trait;
use s3s::{S3, S3Request, dto};

use super::access::Access;
use super::refusal::Refusal;
use super::s3_handler::{S3Answer, S3Handler};
use super::url_encoding::parameters;
use super::{
    acl, bucket_tagging, buckets, copy_object, delete_object, delete_objects, get_object, lifecycle, list_objects,
    multipart, object_attributes, object_tagging, put_object,
};

const NONE: &[&str] = &[];
const TAGGED_OBJECT: &[&str] = &["tagging", "versionId"];
const PART: &[&str] = &["partNumber", "uploadId"];
const READ: &[&str] = &[
    "partNumber",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    "versionId",
];
const LIST_BUCKETS: &[&str] = &["bucket-region", "continuation-token", "max-buckets", "prefix"];
const LIST_V1: &[&str] = &["delimiter", "encoding-type", "marker", "max-keys", "prefix"];
const LIST_V2: &[&str] = &[
    "continuation-token",
    "delimiter",
    "encoding-type",
    "fetch-owner",
    "list-type",
    "max-keys",
    "prefix",
    "start-after",
];
const LIST_PARTS: &[&str] = &["max-parts", "part-number-marker", "uploadId"];
const LIST_UPLOADS: &[&str] =
    &["delimiter", "encoding-type", "key-marker", "max-uploads", "prefix", "upload-id-marker", "uploads"];

/// An operation, as access checks, metrics and the audit log see it.
#[derive(Debug, PartialEq, Eq)]
pub struct S3Operation {
    /// S3's name, the label in metrics and audit events.
    pub name: &'static str,
    /// The access level that a key needs on the bucket.
    pub access: Access,
    /// The query parameters that it accepts besides `x-id` and `x-amz-*`.
    query: &'static [&'static str],
    /// The request body becomes the bytes of an object or part.
    pub has_object_body: bool,
    /// The request may set when the object expires.
    pub sets_expiry: bool,
}

/// Stands for every operation that is not offered, so that metrics have one label for all of them.
pub static NOT_OFFERED: S3Operation = S3Operation::new("NotImplemented", Access::ReadOnly, NONE);

impl S3Operation {
    const fn new(name: &'static str, access: Access, query: &'static [&'static str]) -> Self {
        Self { name, access, query, has_object_body: false, sets_expiry: false }
    }

    /// True if the operation may change an object or a bucket; such requests are audited.
    pub fn mutates(&self) -> bool {
        self.access > Access::ReadOnly
    }

    /// Refuses query parameters that the operation does not accept.
    pub fn check_query(&self, query: Option<&str>) -> Result<(), Refusal> {
        match parameters(query.unwrap_or_default()).find(|(name, _)| !self.accepts(name)) {
            Some((name, _)) => {
                Err(Refusal::because("NotImplemented", format!("The query parameter {name} is not implemented here")))
            }
            None => Ok(()),
        }
    }

    /// [`super::compat::query_headers`] checks `x-amz-*` parameters.
    fn accepts(&self, parameter: &str) -> bool {
        let is_amz = parameter.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("x-amz-"));
        is_amz || parameter == "x-id" || self.query.contains(&parameter)
    }
}

/// The offered operation with this name; any other is refused.
pub fn offered(name: &str) -> Result<&'static S3Operation, Refusal> {
    let found = OPERATIONS.iter().find(|operation| operation.name == name);
    found.ok_or_else(|| Refusal::because("NotImplemented", format!("{name} is not implemented")))
}

/// Row: `Name: library_method(Input) -> Output, handler, access level, query parameters, flags;`.
macro_rules! operations {
    ($($name:ident: $method:ident($input:ident) -> $output:ident,
        $handler:path, $access:ident, $query:expr $(, $flag:ident)*;)+) => {
        static OPERATIONS: &[S3Operation] = &[
            $(S3Operation { $($flag: true,)* ..S3Operation::new(stringify!($name), Access::$access, $query) }),+
        ];

        #[async_trait]
        impl S3 for S3Handler {
            $(async fn $method(&self, request: S3Request<dto::$input>) -> S3Answer<dto::$output> {
                $handler(self, request).await
            })+
        }
    };
}

operations! {
    ListBuckets: list_buckets(ListBucketsInput) -> ListBucketsOutput, buckets::list, ReadOnly, LIST_BUCKETS;
    CreateBucket: create_bucket(CreateBucketInput) -> CreateBucketOutput, buckets::create, Admin, NONE;
    DeleteBucket: delete_bucket(DeleteBucketInput) -> DeleteBucketOutput, buckets::delete, Admin, NONE;
    HeadBucket: head_bucket(HeadBucketInput) -> HeadBucketOutput, buckets::head, ReadOnly, NONE;
    GetBucketLocation: get_bucket_location(GetBucketLocationInput) -> GetBucketLocationOutput,
        buckets::location, ReadOnly, &["location"];
    GetBucketVersioning: get_bucket_versioning(GetBucketVersioningInput) -> GetBucketVersioningOutput,
        buckets::versioning, ReadOnly, &["versioning"];
    GetBucketAcl: get_bucket_acl(GetBucketAclInput) -> GetBucketAclOutput, acl::of_bucket, ReadOnly, &["acl"];
    PutBucketAcl: put_bucket_acl(PutBucketAclInput) -> PutBucketAclOutput, acl::put_of_bucket, Admin, &["acl"];
    GetBucketTagging: get_bucket_tagging(GetBucketTaggingInput) -> GetBucketTaggingOutput,
        bucket_tagging::get, ReadOnly, &["tagging"];
    PutBucketTagging: put_bucket_tagging(PutBucketTaggingInput) -> PutBucketTaggingOutput,
        bucket_tagging::put, Admin, &["tagging"];
    DeleteBucketTagging: delete_bucket_tagging(DeleteBucketTaggingInput) -> DeleteBucketTaggingOutput,
        bucket_tagging::delete, Admin, &["tagging"];
    GetBucketLifecycleConfiguration:
        get_bucket_lifecycle_configuration(GetBucketLifecycleConfigurationInput)
        -> GetBucketLifecycleConfigurationOutput, lifecycle::get, ReadOnly, &["lifecycle"];
    PutBucketLifecycleConfiguration:
        put_bucket_lifecycle_configuration(PutBucketLifecycleConfigurationInput)
        -> PutBucketLifecycleConfigurationOutput, lifecycle::put, Admin, &["lifecycle"];
    DeleteBucketLifecycle: delete_bucket_lifecycle(DeleteBucketLifecycleInput) -> DeleteBucketLifecycleOutput,
        lifecycle::delete, Admin, &["lifecycle"];

    PutObject: put_object(PutObjectInput) -> PutObjectOutput,
        put_object::put, ReadWrite, NONE, has_object_body, sets_expiry;
    CopyObject: copy_object(CopyObjectInput) -> CopyObjectOutput, copy_object::copy, ReadWrite, NONE, sets_expiry;
    GetObject: get_object(GetObjectInput) -> GetObjectOutput, get_object::get, ReadOnly, READ;
    HeadObject: head_object(HeadObjectInput) -> HeadObjectOutput, get_object::head, ReadOnly, READ;
    DeleteObject: delete_object(DeleteObjectInput) -> DeleteObjectOutput,
        delete_object::delete, ReadWrite, &["versionId"];
    DeleteObjects: delete_objects(DeleteObjectsInput) -> DeleteObjectsOutput,
        delete_objects::delete, ReadWrite, &["delete"];
    GetObjectAcl: get_object_acl(GetObjectAclInput) -> GetObjectAclOutput,
        acl::of_object, ReadOnly, &["acl", "versionId"];
    PutObjectAcl: put_object_acl(PutObjectAclInput) -> PutObjectAclOutput,
        acl::put_of_object, ReadWrite, &["acl", "versionId"];
    GetObjectAttributes: get_object_attributes(GetObjectAttributesInput) -> GetObjectAttributesOutput,
        object_attributes::get, ReadOnly, &["attributes", "versionId"];
    GetObjectTagging: get_object_tagging(GetObjectTaggingInput) -> GetObjectTaggingOutput,
        object_tagging::get, ReadOnly, TAGGED_OBJECT;
    PutObjectTagging: put_object_tagging(PutObjectTaggingInput) -> PutObjectTaggingOutput,
        object_tagging::put, ReadWrite, TAGGED_OBJECT;
    DeleteObjectTagging: delete_object_tagging(DeleteObjectTaggingInput) -> DeleteObjectTaggingOutput,
        object_tagging::delete, ReadWrite, TAGGED_OBJECT;
    ListObjects: list_objects(ListObjectsInput) -> ListObjectsOutput, list_objects::v1::list, ReadOnly, LIST_V1;
    ListObjectsV2: list_objects_v2(ListObjectsV2Input) -> ListObjectsV2Output,
        list_objects::v2::list, ReadOnly, LIST_V2;

    CreateMultipartUpload: create_multipart_upload(CreateMultipartUploadInput) -> CreateMultipartUploadOutput,
        multipart::create::create, ReadWrite, &["uploads"], sets_expiry;
    UploadPart: upload_part(UploadPartInput) -> UploadPartOutput,
        multipart::upload_part::upload, ReadWrite, PART, has_object_body;
    UploadPartCopy: upload_part_copy(UploadPartCopyInput) -> UploadPartCopyOutput,
        multipart::upload_part::copy, ReadWrite, PART;
    CompleteMultipartUpload: complete_multipart_upload(CompleteMultipartUploadInput) -> CompleteMultipartUploadOutput,
        multipart::complete::complete, ReadWrite, &["uploadId"];
    AbortMultipartUpload: abort_multipart_upload(AbortMultipartUploadInput) -> AbortMultipartUploadOutput,
        multipart::complete::abort, ReadWrite, &["uploadId"];
    ListParts: list_parts(ListPartsInput) -> ListPartsOutput, multipart::list_parts::list, ReadOnly, LIST_PARTS;
    ListMultipartUploads: list_multipart_uploads(ListMultipartUploadsInput) -> ListMultipartUploadsOutput,
        multipart::list_uploads::list, ReadOnly, LIST_UPLOADS;
}

#[cfg(test)]
mod tests {
    use super::{Access, NOT_OFFERED, OPERATIONS, Refusal, offered};

    fn check(operation: &str, query: Option<&str>) -> Result<(), Refusal> {
        offered(operation)?.check_query(query)
    }

    #[test]
    fn listed_query_parameters_pass() {
        for (operation, query) in [
            ("GetObject", None),
            ("GetObject", Some("response-content-type=a%2Fb&partNumber=1&X-Amz-Signature=x&x-id=GetObject")),
            ("ListObjectsV2", Some("list-type=2&prefix=&encoding-type=url&fetch-owner=true")),
            ("PutObject", Some("x-id=PutObject")),
            ("UploadPart", Some("partNumber=1&uploadId=u")),
            ("CreateMultipartUpload", Some("uploads")),
        ] {
            assert!(check(operation, query).is_ok(), "{operation} {query:?}");
        }
    }

    #[test]
    fn unknown_query_parameters_are_refused() {
        for (operation, query) in [
            ("GetObject", "torrents"),
            ("PutObject", "restore"),
            ("PutObject", "partNumber=1"),
            ("ListObjects", "versionz"),
            ("CreateBucket", "policy%20"),
            ("DeleteObject", "legal-hold"),
            ("GetObject", "%FF=1"),
        ] {
            assert_eq!(check(operation, Some(query)).unwrap_err().code, "NotImplemented", "{operation} {query}");
        }
    }

    #[test]
    fn operations_without_a_row_are_not_implemented() {
        for operation in ["GetBucketPolicy", "PutBucketCors", "ListObjectVersions", "GetObjectTorrent", "SomethingNew"]
        {
            assert_eq!(check(operation, None).unwrap_err().status.as_u16(), 501, "{operation}");
        }
    }

    #[test]
    fn access_level_follows_what_an_operation_changes() {
        let needed = |operation| offered(operation).unwrap().access;
        for operation in ["GetObject", "HeadBucket", "ListParts", "GetBucketTagging"] {
            assert_eq!(needed(operation), Access::ReadOnly, "{operation}");
        }
        for operation in ["PutObject", "DeleteObjects", "UploadPartCopy", "PutObjectTagging", "PutObjectAcl"] {
            assert_eq!(needed(operation), Access::ReadWrite, "{operation}");
        }
        for operation in [
            "CreateBucket",
            "DeleteBucket",
            "PutBucketTagging",
            "PutBucketAcl",
            "PutBucketLifecycleConfiguration",
            "DeleteBucketLifecycle",
        ] {
            assert_eq!(needed(operation), Access::Admin, "{operation}");
        }
    }

    #[test]
    fn only_get_head_and_list_do_not_mutate() {
        assert!(!NOT_OFFERED.mutates());
        for operation in OPERATIONS {
            let reads = ["Get", "Head", "List"].iter().any(|start| operation.name.starts_with(start));
            assert_eq!(operation.mutates(), !reads, "{}", operation.name);
        }
    }

    #[test]
    fn documentation_lists_every_operation_at_its_level() {
        let text = include_str!("../../../../docs/operations.md");
        for level in [Access::ReadOnly, Access::ReadWrite, Access::Admin] {
            let start = format!("| `{}` |", level.name());
            let row = text.lines().find(|line| line.starts_with(&start)).expect("a row for each level");
            let listed = row.rsplit_once(" | `").expect("a column of operations").1;
            let mut listed: Vec<&str> = listed.trim_end_matches("` |").split("`, `").collect();
            let at_level = OPERATIONS.iter().filter(|operation| operation.access == level);
            let mut needing: Vec<&str> = at_level.map(|operation| operation.name).collect();
            listed.sort_unstable();
            needing.sort_unstable();
            assert_eq!(listed, needing, "{}", level.name());
        }
    }
}
