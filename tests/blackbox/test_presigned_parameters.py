"""`x-amz-*` query parameters of presigned URLs: each is applied like the header of its name, or refused."""

import base64
import hashlib
import zlib

import pytest

import signing
from raw_client import assert_refused
from s3_checks import body_of, keys_of, read, refused
from test_presigned import fetch

BODY = body_of(5000)
CRC32 = base64.b64encode(zlib.crc32(BODY).to_bytes(4, "big")).decode()
EMPTY_CRC32 = "AAAAAA=="
SHA256 = base64.b64encode(hashlib.sha256(BODY).digest()).decode()


def presigned(raw, method, path, parameters):
    """A URL whose signature covers these parameters, as created by SDKs that move headers into the query."""
    stamp = signing.timestamp()
    signature = signing.Signature(raw.credentials, stamp)
    host = f"{raw.host}:{raw.port}"
    query = {
        "X-Amz-Algorithm": signing.ALGORITHM,
        "X-Amz-Credential": f"{raw.credentials.access_key}/{signature.scope}",
        "X-Amz-Date": stamp,
        "X-Amz-Expires": "60",
        "X-Amz-SignedHeaders": "host",
        **parameters,
    }
    canonical = "\n".join((method, path, signing.encode_query(query), f"host:{host}", "", "host", signing.UNSIGNED))
    query["X-Amz-Signature"] = signature.request(canonical)
    return f"http://{host}{path}?{signing.encode_query(query)}"


@pytest.fixture
def put(raw, bucket):
    """Sends a PUT of `BODY` to a presigned URL with the given parameters."""

    def send(body=BODY, headers=None, **parameters):
        parameters = {name.replace("_", "-"): value for name, value in parameters.items()}
        return fetch(presigned(raw, "PUT", raw.path(bucket, "a"), parameters), "PUT", body, headers)

    return send


def test_parameters_are_applied_like_headers(raw, s3, bucket, put):
    answer = put(x_amz_checksum_crc32=CRC32, x_amz_tagging="a=b&c=d", x_amz_meta_colour="blue", x_amz_acl="private")
    assert answer.status == 200, answer
    assert answer.headers["x-amz-checksum-crc32"] == CRC32
    assert s3.head_object(Bucket=bucket, Key="a")["Metadata"] == {"colour": "blue"}
    tags = s3.get_object_tagging(Bucket=bucket, Key="a")["TagSet"]
    assert tags == [{"Key": "a", "Value": "b"}, {"Key": "c", "Value": "d"}]
    url = presigned(raw, "GET", raw.path(bucket, "a"), {"x-amz-checksum-mode": "ENABLED"})
    got = fetch(url)
    assert (got.body, got.headers["x-amz-checksum-crc32"]) == (BODY, CRC32)


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({"x_amz_checksum_crc32": EMPTY_CRC32}, "BadDigest"),
        ({"x_amz_checksum_crc32": EMPTY_CRC32, "x_amz_sdk_checksum_algorithm": "CRC32"}, "BadDigest"),
        ({"x_amz_checksum_sha256": base64.b64encode(bytes(32)).decode()}, "BadDigest"),
        ({"X_Amz_Checksum_Crc32": EMPTY_CRC32}, "BadDigest"),
        ({"X_Amz_Content_Sha256": hashlib.sha256(b"other").hexdigest()}, "XAmzContentSHA256Mismatch"),
        ({"x_amz_checksum_crc32": "short"}, "InvalidRequest"),
        ({"x_amz_tagging": "a=b&a=c"}, "InvalidTag"),
        ({"x_amz_storage_class": "GLACIER"}, "InvalidStorageClass"),
        ({"x_amz_meta_big": "v" * 2100}, "MetadataTooLarge"),
    ],
    ids=lambda value: value if isinstance(value, str) else ",".join(value),
)
def test_parameter_with_a_wrong_value_is_refused(s3, bucket, put, parameters, code):
    assert_refused(put(**parameters), 400, code)
    assert keys_of(s3, bucket) == []


@pytest.mark.parametrize(
    "name",
    [
        "x_amz_server_side_encryption",
        "X_Amz_Server_Side_Encryption_Customer_Key",
        "x_amz_object_lock_mode",
        "x_amz_object_lock_legal_hold",
        "x_amz_grant_read",
        "x_amz_website_redirect_location",
        "x_amz_trailer",
        "x_amz_write_offset_bytes",
        "x_amz_not_known_yet",
    ],
)
def test_a_parameter_that_is_not_supported_is_refused(s3, bucket, put, name, s3o_only):
    assert_refused(put(**{name: "AES256"}), 501, "NotImplemented")
    assert keys_of(s3, bucket) == []


def test_a_public_acl_in_the_query_is_refused(s3, bucket, put, s3o_only):
    assert_refused(put(x_amz_acl="public-read"), 501, "NotImplemented")
    assert keys_of(s3, bucket) == []


def test_parameters_in_the_query_that_agree_with_the_body_are_accepted(put):
    assert put(x_amz_checksum_sha256=SHA256, x_amz_sdk_checksum_algorithm="SHA256").status == 200
    assert put(X_Amz_Content_Sha256="UNSIGNED-PAYLOAD").status == 200
    assert put(X_Amz_Content_Sha256=hashlib.sha256(BODY).hexdigest()).status == 200


def test_header_cannot_override_its_parameter(s3, bucket, put, s3o_only):
    other = base64.b64encode(zlib.crc32(b"other").to_bytes(4, "big")).decode()
    answer = put(b"other", {"x-amz-checksum-crc32": other}, x_amz_checksum_crc32=CRC32)
    assert_refused(answer, 400, "InvalidRequest")
    assert keys_of(s3, bucket) == []
    assert put(BODY, {"x-amz-checksum-crc32": CRC32}, x_amz_checksum_crc32=CRC32).status == 200


def test_a_copy_source_in_the_query_copies_and_needs_its_grant(server, s3, bucket, raw, s3o_only):
    s3.put_object(Bucket=bucket, Key="source", Body=BODY)
    url = presigned(raw, "PUT", raw.path(bucket, "copy"), {"x-amz-copy-source": f"{bucket}/source"})
    assert fetch(url, "PUT", b"").status == 200
    assert read(s3, bucket, "copy") == BODY
    granted = f"granted-{bucket}"
    s3.create_bucket(Bucket=granted)
    writer = server.raw("writer")
    url = presigned(writer, "PUT", writer.path(granted, "stolen"), {"x-amz-copy-source": f"{bucket}/source"})
    assert_refused(fetch(url, "PUT", b""), 403, "AccessDenied")
    assert keys_of(s3, granted) == []


def test_a_parameter_outside_a_presigned_url_is_refused(raw, s3, bucket, s3o_only):
    for name in ("x-amz-acl", "x-amz-checksum-crc32", "X-Amz-Expires"):
        answer = raw.request("PUT", raw.path(bucket, "a"), query={name: "60"}, body=BODY)
        assert_refused(answer, 400, "InvalidRequest")
    assert keys_of(s3, bucket) == []


def test_a_presigned_range_that_is_ignored_keeps_its_parameters(raw, s3, bucket):
    s3.put_object(Bucket=bucket, Key="a", Body=BODY, ChecksumAlgorithm="CRC32")
    url = presigned(raw, "GET", raw.path(bucket, "a"), {"x-amz-checksum-mode": "ENABLED"})
    answer = fetch(url, headers={"Range": "bytes=0-1,4-5"})
    assert (answer.status, answer.body, answer.headers["x-amz-checksum-crc32"]) == (200, BODY, CRC32)
    url = presigned(raw, "GET", raw.path(bucket, "a"), {"x-amz-expected-bucket-owner": "123456789012"})
    assert_refused(fetch(url, headers={"Range": "bytes=0-1,4-5"}), 403, "AccessDenied")


def test_unexpected_bucket_owner_is_denied(raw, s3, bucket, put, s3o_only):
    with refused("AccessDenied", 403):
        s3.put_object(Bucket=bucket, Key="a", Body=b"x", ExpectedBucketOwner="123456789012")
    assert_refused(put(x_amz_expected_bucket_owner="123456789012"), 403, "AccessDenied")
    assert keys_of(s3, bucket) == []
    owner = s3.get_bucket_acl(Bucket=bucket)["Owner"]["ID"]
    s3.put_object(Bucket=bucket, Key="a", Body=b"x", ExpectedBucketOwner=owner)
    with refused("AccessDenied", 403):
        s3.copy_object(Bucket=bucket, Key="b", CopySource=f"{bucket}/a", ExpectedSourceBucketOwner="123456789012")
    for call in (s3.delete_object, s3.get_object_tagging):
        with refused("AccessDenied", 403):
            call(Bucket=bucket, Key="a", ExpectedBucketOwner="123456789012")
    assert keys_of(s3, bucket) == ["a"]


def test_a_session_token_is_refused(raw, s3, bucket, put, s3o_only):
    answer = raw.request("PUT", raw.path(bucket, "a"), headers={"x-amz-security-token": "token"}, body=b"x")
    assert_refused(answer, 400, "InvalidToken")
    assert_refused(put(X_Amz_Security_Token="token"), 400, "InvalidToken")
    assert keys_of(s3, bucket) == []


@pytest.mark.parametrize("name", ["STANDARD_IA", "GLACIER", "REDUCED_REDUNDANCY", "COLD"])
def test_a_storage_class_other_than_standard_is_refused(s3, bucket, name, s3o_only):
    s3.put_object(Bucket=bucket, Key="kept", Body=b"x", StorageClass="STANDARD")
    with refused("InvalidStorageClass", 400):
        s3.put_object(Bucket=bucket, Key="a", Body=b"x", StorageClass=name)
    with refused("InvalidStorageClass", 400):
        s3.create_multipart_upload(Bucket=bucket, Key="a", StorageClass=name)
    with refused("InvalidStorageClass", 400):
        s3.copy_object(Bucket=bucket, Key="a", CopySource=f"{bucket}/kept", StorageClass=name)
    assert keys_of(s3, bucket) == ["kept"]


@pytest.mark.parametrize("mode", [signing.SIGNED_CHUNKS_TRAILER, signing.UNSIGNED_CHUNKS_TRAILER])
def test_two_trailers_of_one_name_are_refused(raw, s3, bucket, mode):
    """One value is right and the other wrong, in both orders."""
    trailer = f"x-amz-checksum-crc32:{CRC32}\r\n".encode()
    for extra in (f"x-amz-checksum-crc32:{EMPTY_CRC32}\r\n", f"X-Amz-Checksum-Crc32:{CRC32}\r\n"):
        for doubled in (trailer + extra.encode(), extra.encode() + trailer):
            answer = raw.put_chunked(
                raw.path(bucket, "a"),
                BODY,
                mode,
                trailers={"x-amz-checksum-crc32": CRC32},
                alter_body=lambda framed, doubled=doubled: framed.replace(trailer, doubled),
            )
            assert_refused(answer, 400, "InvalidRequest")
    assert keys_of(s3, bucket) == []
    once = raw.put_chunked(raw.path(bucket, "a"), BODY, mode, trailers={"x-amz-checksum-crc32": CRC32})
    assert once.status == 200, once
