"""Common S3 requests and checks: errors by code, unique bodies, the content of a bucket."""

import contextlib
import hashlib

import pytest
from botocore.exceptions import ClientError

PART_BYTES_MIN = 5 * 1024 * 1024


@contextlib.contextmanager
def refused(code, status=None):
    """The block must raise an S3 error with this code. HEAD has no body, so boto3 reports the status as code."""
    with pytest.raises(ClientError) as caught:
        yield caught
    error = caught.value.response
    assert error["Error"]["Code"] == code, error
    if status is not None:
        assert error["ResponseMetadata"]["HTTPStatusCode"] == status, error


def body_of(size_bytes, seed="body"):
    """Incompressible bytes that differ by seed."""
    return hashlib.shake_128(str(seed).encode()).digest(size_bytes)


def etag_of(body):
    return f'"{hashlib.md5(body).hexdigest()}"'


def read(s3, bucket, key, **options):
    return s3.get_object(Bucket=bucket, Key=key, **options)["Body"].read()


def keys_of(s3, bucket, **options):
    """Every key of a bucket, page by page, in the order of the server."""
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, **options)
    return [entry["Key"] for page in pages for entry in page.get("Contents", [])]


def snapshot(s3, bucket):
    """Objects and open uploads of a bucket, to check that a refusal changed nothing."""
    listed = s3.list_objects_v2(Bucket=bucket).get("Contents", [])
    uploads = s3.list_multipart_uploads(Bucket=bucket).get("Uploads", [])
    return (
        [(entry["Key"], entry["ETag"], entry["Size"], entry["LastModified"]) for entry in listed],
        sorted((upload["Key"], upload["UploadId"]) for upload in uploads),
    )


def multipart(s3, bucket, key, parts, **options):
    """A whole multipart upload; returns the answer of Complete."""
    upload = s3.create_multipart_upload(Bucket=bucket, Key=key, **options)["UploadId"]
    listed = []
    for number, part in enumerate(parts, 1):
        answer = s3.upload_part(Bucket=bucket, Key=key, UploadId=upload, PartNumber=number, Body=part)
        listed.append({"PartNumber": number, "ETag": answer["ETag"]})
    return s3.complete_multipart_upload(Bucket=bucket, Key=key, UploadId=upload, MultipartUpload={"Parts": listed})
