"""The AWS SDK for JavaScript: protocol details that applications in Node.js and browsers rely on."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from polling import eventually
from s3_checks import PART_BYTES_MIN, etag_of, keys_of, read
from server_process import ROOT
from test_presigned import fetch

SCRIPT = Path(__file__).with_name("javascript") / "operations.mjs"


@pytest.fixture
def run(server):
    """Runs operations with the SDK and returns their results in order."""

    def send(*operations, **client):
        admin = server.keys["admin"]
        asked = {
            "endpoint": server.endpoint,
            "accessKeyId": admin.access_key,
            "secretAccessKey": admin.secret_key,
            "client": client,
            "operations": operations,
        }
        modules = os.environ.get("S3O_TEST_JS", str(ROOT / "target/test-js"))
        done = subprocess.run(
            ["node", str(SCRIPT)],
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            timeout=100,
            env={**os.environ, "S3O_TEST_JS": str((ROOT / modules).resolve())},
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return send


def operation(command, bucket, key=None, **options):
    names = {"Bucket": bucket} if key is None else {"Bucket": bucket, "Key": key}
    extra = {name: options.pop(name) for name in ("body", "presign", "expires") if name in options}
    return {"command": command, "input": {**names, **options}, **extra}


def test_object_attributes_give_the_etag_without_quotes(run, bucket):
    put, attributes = run(
        operation("PutObject", bucket, "a", body="body"),
        operation("GetObjectAttributes", bucket, "a", ObjectAttributes=["ETag", "Checksum"]),
    )
    assert (put["status"], put["ETag"]) == (200, etag_of(b"body"))
    assert attributes["ETag"] == put["ETag"].strip('"')
    assert attributes["Checksum"]["ChecksumType"] == "FULL_OBJECT"


@pytest.mark.parametrize("asked", ["COMPOSITE", "FULL_OBJECT", None])
def test_a_multipart_object_has_the_checksum_type_asked_for_at_create(run, bucket, asked):
    names = {"Bucket": bucket, "Key": "joined"}
    upload = {**names, "UploadId": "$0.UploadId"}
    stated = {"ChecksumAlgorithm": "CRC32", "ChecksumType": asked} if asked else {}
    parts = [{"PartNumber": number, "ETag": f"${number}.ETag"} for number in (1, 2)]
    for number, part in enumerate(parts, 1):
        part["ChecksumCRC32"] = f"${number}.ChecksumCRC32"
    *_, completed, head, attributes = run(
        {"command": "CreateMultipartUpload", "input": {**names, **stated}},
        {"command": "UploadPart", "input": {**upload, "PartNumber": 1}, "body": "x" * PART_BYTES_MIN},
        {"command": "UploadPart", "input": {**upload, "PartNumber": 2}, "body": "last"},
        {"command": "CompleteMultipartUpload", "input": {**upload, "MultipartUpload": {"Parts": parts}}},
        {"command": "HeadObject", "input": {**names, "ChecksumMode": "ENABLED"}},
        {"command": "GetObjectAttributes", "input": {**names, "ObjectAttributes": ["Checksum"]}},
    )
    assert completed["status"] == 200, completed
    expected = asked or "FULL_OBJECT"
    assert completed["ChecksumType"] == head["ChecksumType"] == expected
    assert attributes["Checksum"]["ChecksumType"] == expected
    assert completed["ChecksumCRC32"] == head["ChecksumCRC32"] == attributes["Checksum"]["ChecksumCRC32"]


def test_presigned_put_enforces_its_query_parameters(run, s3, bucket):
    """The SDK moves most headers into the query; those for encryption stay signed headers."""
    plain, tagged, by_default, encrypted = run(
        operation("PutObject", bucket, "plain", presign=True),
        operation("PutObject", bucket, "tagged", presign=True, Tagging="a=b", Metadata={"colour": "blue"}),
        operation("PutObject", bucket, "checked", presign=True, ChecksumCRC32="AAAAAA=="),
        operation("PutObject", bucket, "encrypted", presign=True, ServerSideEncryption="AES256"),
        requestChecksumCalculation="WHEN_REQUIRED",
    )
    assert fetch(plain["url"], "PUT", b"body").status == 200
    assert fetch(tagged["url"], "PUT", b"body").status == 200
    assert s3.get_object_tagging(Bucket=bucket, Key="tagged")["TagSet"] == [{"Key": "a", "Value": "b"}]
    assert s3.head_object(Bucket=bucket, Key="tagged")["Metadata"] == {"colour": "blue"}
    mismatch = fetch(by_default["url"], "PUT", b"body")
    assert (mismatch.status, mismatch.code) == (400, "BadDigest")
    assert fetch(by_default["url"], "PUT", b"").status == 200
    assert fetch(encrypted["url"], "PUT", b"body").status == 403
    refusal = fetch(encrypted["url"], "PUT", b"body", {"x-amz-server-side-encryption": "AES256"})
    assert (refusal.status, refusal.code) == (501, "NotImplemented")
    assert keys_of(s3, bucket) == ["checked", "plain", "tagged"]


def test_presigned_urls_with_the_defaults_of_the_sdk(run, s3, bucket):
    s3.put_object(Bucket=bucket, Key="a", Body=b"body")
    get, put = run(operation("GetObject", bucket, "a", presign=True), operation("PutObject", bucket, "b", presign=True))
    assert fetch(get["url"]).body == b"body"
    answer = fetch(put["url"], "PUT", b"body")
    assert (answer.status, answer.code) == (400, "BadDigest"), "the URL states the checksum of an empty body"


def test_an_expired_presigned_put_is_forbidden(run, s3, bucket):
    put, get = run(
        operation("PutObject", bucket, "late", presign=True, expires=1),
        operation("GetObject", bucket, "late", presign=True, expires=1),
        requestChecksumCalculation="WHEN_REQUIRED",
    )
    eventually(lambda: fetch(get["url"]).status == 403, 10, 0.2)
    assert fetch(put["url"], "PUT", b"body").status == 403
    assert keys_of(s3, bucket) == []


def test_an_empty_content_md5_is_an_invalid_digest(run, s3, bucket):
    (answer,) = run(operation("PutObject", bucket, "a", body="body", ContentMD5=""))
    assert (answer["status"], answer["code"]) == (400, "InvalidDigest")
    assert keys_of(s3, bucket) == []


def test_listings_read_prefixes_and_empty_tokens(run, s3, bucket):
    for key in ("a\nb/1", "a\nb/2"):
        s3.put_object(Bucket=bucket, Key=key, Body=b"")
    first, second, continued = run(
        operation("ListObjects", bucket, Prefix="a\nb"),
        operation("ListObjectsV2", bucket, Prefix="a\nb"),
        operation("ListObjectsV2", bucket, ContinuationToken=""),
    )
    for answer in (first, second, continued):
        assert [entry["Key"] for entry in answer["Contents"]] == ["a\nb/1", "a\nb/2"]
    assert first["Prefix"] == second["Prefix"] == "a\nb"


def test_content_encoding_is_returned_unchanged(run, s3, bucket):
    _, head = run(
        operation("PutObject", bucket, "a", body="body", ContentEncoding="deflate, gzip"),
        operation("HeadObject", bucket, "a"),
    )
    assert head["ContentEncoding"] == "deflate, gzip"
    assert read(s3, bucket, "a") == b"body"


def test_unsupported_requests_are_refused(run, s3, bucket):
    owner, glacier, token = (
        *run(
            operation("PutObject", bucket, "a", body="x", ExpectedBucketOwner="123456789012"),
            operation("PutObject", bucket, "a", body="x", StorageClass="GLACIER"),
        ),
        *run(
            operation("PutObject", bucket, "a", body="x"),
            credentials={"accessKeyId": "admin-key", "secretAccessKey": "unused", "sessionToken": "token"},
        ),
    )
    assert (owner["status"], owner["code"]) == (403, "AccessDenied")
    assert (glacier["status"], glacier["code"]) == (400, "InvalidStorageClass")
    assert (token["status"], token["code"]) == (400, "InvalidToken")
    assert keys_of(s3, bucket) == []
