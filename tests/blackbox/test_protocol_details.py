"""Protocol details in which clients rely on the exact answer of S3."""

import datetime
import hashlib
from email.utils import format_datetime

import pytest

import signing
from polling import eventually
from raw_client import assert_refused
from s3_checks import PART_BYTES_MIN, body_of, etag_of, keys_of, multipart, read
from test_presigned import fetch, presign

PARTS = [body_of(PART_BYTES_MIN, "first"), body_of(1000, "last")]


def test_object_attributes_give_the_etag_without_quotes(s3, bucket):
    s3.put_object(Bucket=bucket, Key="a", Body=b"body")
    multipart(s3, bucket, "joined", [b"part"])
    for key in ("a", "joined"):
        answer = s3.get_object_attributes(Bucket=bucket, Key=key, ObjectAttributes=["ETag"])
        assert answer["ETag"] == s3.head_object(Bucket=bucket, Key=key)["ETag"].strip('"')


@pytest.mark.parametrize(
    ("algorithm", "asked", "expected"),
    [
        ("CRC32", None, "COMPOSITE"),
        ("CRC32", "COMPOSITE", "COMPOSITE"),
        ("CRC32", "FULL_OBJECT", "FULL_OBJECT"),
        ("CRC32C", "FULL_OBJECT", "FULL_OBJECT"),
        ("CRC64NVME", None, "FULL_OBJECT"),
        ("SHA256", "COMPOSITE", "COMPOSITE"),
    ],
)
def test_a_multipart_object_has_the_checksum_type_asked_for_at_create(s3, bucket, algorithm, asked, expected):
    names, field = {"Bucket": bucket, "Key": "joined"}, f"Checksum{algorithm}"
    stated = {"ChecksumType": asked} if asked else {}
    created = s3.create_multipart_upload(**names, ChecksumAlgorithm=algorithm, **stated)
    assert created["ChecksumType"] == expected
    upload, listed = {**names, "UploadId": created["UploadId"]}, []
    for number, part in enumerate(PARTS, 1):
        answer = s3.upload_part(**upload, PartNumber=number, Body=part, ChecksumAlgorithm=algorithm)
        listed.append({"PartNumber": number, "ETag": answer["ETag"], field: answer[field]})
    completed = s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": listed})
    head = s3.head_object(**names, ChecksumMode="ENABLED")
    attributes = s3.get_object_attributes(**names, ObjectAttributes=["Checksum"])["Checksum"]
    listing = s3.list_objects_v2(Bucket=bucket)["Contents"][0]
    for answer in (completed, head, attributes, listing):
        assert answer["ChecksumType"] == expected, answer
    assert completed[field] == head[field] == attributes[field]
    assert completed[field].endswith("-2") == (expected == "COMPOSITE")


def test_a_multipart_object_without_a_stated_algorithm_has_a_checksum_type(s3, bucket):
    completed = multipart(s3, bucket, "joined", PARTS)
    head = s3.head_object(Bucket=bucket, Key="joined", ChecksumMode="ENABLED")
    assert completed["ChecksumType"] == head["ChecksumType"]
    attributes = s3.get_object_attributes(Bucket=bucket, Key="joined", ObjectAttributes=["Checksum"])["Checksum"]
    assert attributes["ChecksumType"] == completed["ChecksumType"]


def test_a_checksum_type_other_than_the_uploads_completes_nothing(s3, bucket):
    upload = {"Bucket": bucket, "Key": "joined"}
    created = s3.create_multipart_upload(**upload, ChecksumAlgorithm="CRC32", ChecksumType="FULL_OBJECT")
    upload["UploadId"] = created["UploadId"]
    answer = s3.upload_part(**upload, PartNumber=1, Body=b"part", ChecksumAlgorithm="CRC32")
    parts = {"Parts": [{"PartNumber": 1, "ETag": answer["ETag"], "ChecksumCRC32": answer["ChecksumCRC32"]}]}
    with pytest.raises(s3.exceptions.ClientError) as caught:
        s3.complete_multipart_upload(**upload, MultipartUpload=parts, ChecksumType="COMPOSITE")
    assert caught.value.response["Error"]["Code"] == "InvalidRequest"
    assert keys_of(s3, bucket) == []


@pytest.mark.parametrize("body", [b"", b"small", body_of(3_000_000)], ids=["empty", "small", "large"])
def test_an_expired_presigned_put_is_forbidden(s3, bucket, body):
    url = presign(s3, "put_object", bucket, "late", seconds=1)
    probe = presign(s3, "get_object", bucket, "nothing", seconds=1)
    eventually(lambda: fetch(probe).status == 403, 10, 0.2)
    assert_refused(fetch(url, "PUT", body), 403, "AccessDenied", f"/{bucket}/late")
    assert keys_of(s3, bucket) == []


def test_an_empty_content_md5_is_an_invalid_digest(raw, s3, bucket):
    s3.put_object(Bucket=bucket, Key="a", Body=b"old")
    upload = s3.create_multipart_upload(Bucket=bucket, Key="joined")["UploadId"]
    attempts = [
        ("PUT", raw.path(bucket, "a"), {}, b"new"),
        ("PUT", raw.path(bucket, "a"), {}, b""),
        ("PUT", raw.path(bucket, "joined"), {"partNumber": "1", "uploadId": upload}, b"part"),
        ("POST", raw.path(bucket), {"delete": None}, b"<Delete><Object><Key>a</Key></Object></Delete>"),
        ("PUT", raw.path(bucket), {"tagging": None}, b"<Tagging><TagSet/></Tagging>"),
    ]
    for method, path, query, body in attempts:
        answer = raw.request(method, path, query=query, headers={"Content-MD5": ""}, body=body)
        assert_refused(answer, 400, "InvalidDigest")
    assert read(s3, bucket, "a") == b"old"


def signed_with_date(raw, method, path, text, stamp, body=b"", signed=True):
    """A request with only a `Date` header; `signed` decides whether that header is signed."""
    payload_hash = hashlib.sha256(body).hexdigest()
    headers = {"Host": f"{raw.host}:{raw.port}", "x-amz-content-sha256": payload_hash}
    names = {"host": headers["Host"], "x-amz-content-sha256": payload_hash, **({"date": text} if signed else {})}
    listed = ";".join(sorted(names))
    canonical = "\n".join((method, path, "", *(f"{n}:{names[n]}" for n in sorted(names)), "", listed, payload_hash))
    signature = signing.Signature(raw.credentials, stamp)
    value = signature.request(canonical)
    headers["Date"] = text
    headers["Authorization"] = (
        f"{signing.ALGORITHM} Credential={raw.credentials.access_key}/{signature.scope}, "
        f"SignedHeaders={listed}, Signature={value}"
    )
    if body:
        headers["Content-Length"] = str(len(body))
    return raw.send(method, path, headers, [body] if body else [])


def test_signed_date_header_replaces_x_amz_date(raw, s3, bucket):
    now = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)
    path, http_date, stamp = raw.path(bucket, "a"), format_datetime(now, usegmt=True), signing.timestamp(now)
    assert signed_with_date(raw, "PUT", path, http_date, stamp, b"body").status == 200
    assert signed_with_date(raw, "GET", path, http_date, stamp).body == b"body"
    assert signed_with_date(raw, "GET", path, stamp, stamp).body == b"body"


def test_old_unsigned_or_invalid_date_header_is_refused(raw, bucket):
    now = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)
    path, http_date, stamp = raw.path(bucket, "a"), format_datetime(now, usegmt=True), signing.timestamp(now)
    assert_refused(signed_with_date(raw, "GET", path, http_date, stamp, signed=False), 403, "AccessDenied")
    assert_refused(signed_with_date(raw, "GET", path, "yesterday", stamp), 403, "AccessDenied")
    old = now - datetime.timedelta(hours=1)
    answer = signed_with_date(raw, "GET", path, format_datetime(old, usegmt=True), signing.timestamp(old))
    assert_refused(answer, 403, "RequestTimeTooSkewed")
    later = now + datetime.timedelta(seconds=5)
    answer = signed_with_date(raw, "GET", path, format_datetime(later, usegmt=True), stamp)
    assert_refused(answer, 403, "SignatureDoesNotMatch")


@pytest.mark.parametrize("prefix", ["a\nb", "a\tb", "a\x7fb", "a\x85b", "a b", "ü"], ids=repr)
def test_both_listings_return_the_requested_prefix(s3, bucket, prefix):
    keys = [f"{prefix}/1", f"{prefix}/2"]
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=b"")
    for listing in (s3.list_objects, s3.list_objects_v2):
        answer = listing(Bucket=bucket, Prefix=prefix)
        assert answer["Prefix"] == prefix
        assert [entry["Key"] for entry in answer["Contents"]] == keys
        rolled_up = listing(Bucket=bucket, Prefix=prefix, Delimiter="/")
        assert [entry["Prefix"] for entry in rolled_up["CommonPrefixes"]] == [f"{prefix}/"]


def test_list_objects_v1_accepts_a_prefix_that_xml_cannot_represent(s3, bucket):
    s3.put_object(Bucket=bucket, Key="a\x01/b", Body=b"")
    answer = s3.list_objects(Bucket=bucket, Prefix="a\x01")
    assert [entry["Key"] for entry in answer["Contents"]] == ["a\x01/b"]
    # boto3 decodes every name in this listing except the prefix, and XML cannot represent this character.
    assert answer["Prefix"] == "a%01"


def test_an_empty_continuation_token_means_none(s3, bucket):
    for key in ("a", "b"):
        s3.put_object(Bucket=bucket, Key=key, Body=b"")
    answer = s3.list_objects_v2(Bucket=bucket, ContinuationToken="")
    assert [entry["Key"] for entry in answer["Contents"]] == ["a", "b"]
    started = s3.list_objects_v2(Bucket=bucket, ContinuationToken="", StartAfter="a")
    assert [entry["Key"] for entry in started["Contents"]] == ["b"]


def test_an_empty_continuation_token_lists_all_buckets(s3, bucket):
    assert bucket in {entry["Name"] for entry in s3.list_buckets(ContinuationToken="", MaxBuckets=10_000)["Buckets"]}


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("deflate, gzip", "deflate, gzip"),
        ("gzip,br", "gzip,br"),
        ("GZIP", "GZIP"),
        ("aws-chunked, deflate, gzip", "deflate, gzip"),
        ("deflate, aws-chunked, gzip", "deflate, gzip"),
        ("deflate, gzip, aws-chunked", "deflate, gzip"),
        ("deflate,gzip,AWS-Chunked", "deflate,gzip"),
        ("aws-chunked", None),
        ("x-aws-chunked", "x-aws-chunked"),
    ],
)
def test_only_aws_chunked_is_removed_from_content_encoding(raw, s3, bucket, sent, kept):
    path = raw.path(bucket, "a")
    if "aws-chunked" in sent.lower().replace("x-", ""):
        answer = raw.put_chunked(path, b"body", signing.SIGNED_CHUNKS, headers={"Content-Encoding": sent})
    else:
        answer = raw.request("PUT", path, headers={"Content-Encoding": sent}, body=b"body")
    assert answer.status == 200, answer
    head = raw.request("HEAD", path)
    assert head.headers.get("content-encoding") == kept
    assert head.headers["etag"] == etag_of(b"body")
