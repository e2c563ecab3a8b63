"""Digests from clients: verified, stored and returned; a wrong one is refused and changes nothing."""

import base64
import hashlib
import zlib

import pytest
from awscrt import checksums as crt

import signing
from raw_client import assert_refused
from s3_checks import PART_BYTES_MIN, body_of, read, snapshot

BODY = body_of(150_000)
DIGESTS = {
    "CRC32": lambda body: zlib.crc32(body).to_bytes(4, "big"),
    "CRC32C": lambda body: crt.crc32c(body).to_bytes(4, "big"),
    "CRC64NVME": lambda body: crt.crc64nvme(body).to_bytes(8, "big"),
    "SHA1": lambda body: hashlib.sha1(body).digest(),
    "SHA256": lambda body: hashlib.sha256(body).digest(),
}
MODES = [signing.SIGNED_CHUNKS_TRAILER, signing.UNSIGNED_CHUNKS_TRAILER]


def text_of(algorithm, body):
    return base64.b64encode(DIGESTS[algorithm](body)).decode()


def header_of(algorithm):
    return f"x-amz-checksum-{algorithm.lower()}"


def md5_of(body):
    return base64.b64encode(hashlib.md5(body).digest()).decode()


@pytest.fixture
def kept(s3, bucket):
    """A bucket whose one object must survive every refusal."""
    s3.put_object(Bucket=bucket, Key="object", Body=b"old")
    return bucket


@pytest.mark.parametrize("algorithm", DIGESTS)
def test_checksum_is_verified_stored_and_returned(s3, bucket, algorithm):
    field = f"Checksum{algorithm}"
    expected = text_of(algorithm, BODY)
    answer = s3.put_object(Bucket=bucket, Key="object", Body=BODY, ChecksumAlgorithm=algorithm)
    assert answer[field] == expected
    assert field not in s3.head_object(Bucket=bucket, Key="object")
    assert s3.head_object(Bucket=bucket, Key="object", ChecksumMode="ENABLED")[field] == expected
    got = s3.get_object(Bucket=bucket, Key="object", ChecksumMode="ENABLED")
    assert (got[field], got["Body"].read()) == (expected, BODY)
    attributes = s3.get_object_attributes(Bucket=bucket, Key="object", ObjectAttributes=["Checksum"])
    assert attributes["Checksum"][field] == expected
    entry = s3.list_objects_v2(Bucket=bucket)["Contents"][0]
    assert entry.get("ChecksumAlgorithm", [algorithm]) == [algorithm]


@pytest.mark.parametrize("algorithm", DIGESTS)
def test_a_wrong_checksum_in_a_header_changes_nothing(raw, s3, kept, algorithm):
    before = snapshot(s3, kept)
    headers = {header_of(algorithm): text_of(algorithm, b"other")}
    answer = raw.request("PUT", raw.path(kept, "object"), headers=headers, body=BODY)
    assert_refused(answer, 400, "BadDigest", f"/{kept}/object")
    assert snapshot(s3, kept) == before and read(s3, kept, "object") == b"old"


@pytest.mark.parametrize("mode", MODES, ids=["signed", "unsigned"])
@pytest.mark.parametrize("algorithm", DIGESTS)
def test_a_checksum_in_a_trailer_is_verified(raw, s3, kept, algorithm, mode):
    path = raw.path(kept, "object")
    before = snapshot(s3, kept)
    wrong = raw.put_chunked(path, BODY, mode, trailers={header_of(algorithm): text_of(algorithm, b"other")})
    assert_refused(wrong, 400, "BadDigest", f"/{kept}/object")
    assert snapshot(s3, kept) == before and read(s3, kept, "object") == b"old"
    right = raw.put_chunked(path, BODY, mode, trailers={header_of(algorithm): text_of(algorithm, BODY)})
    assert right.status == 200, right
    assert right.headers.get(header_of(algorithm)) == text_of(algorithm, BODY)
    assert read(s3, kept, "object") == BODY


@pytest.mark.parametrize("size_bytes", [0, 1, 65536, 65537])
@pytest.mark.parametrize("chunk_bytes", [8192, 65536])
def test_signed_chunks_are_unframed(raw, s3, bucket, size_bytes, chunk_bytes):
    body = body_of(size_bytes)
    path = raw.path(bucket, "object")
    assert raw.put_chunked(path, body, signing.SIGNED_CHUNKS, chunk_bytes=chunk_bytes).status == 200
    assert read(s3, bucket, "object") == body


def test_a_forged_chunk_changes_nothing(raw, s3, kept):
    before = snapshot(s3, kept)

    def forge(framed):
        at = framed.index(b"\r\n") + 100
        return framed[:at] + bytes([framed[at] ^ 1]) + framed[at + 1 :]

    answer = raw.put_chunked(raw.path(kept, "object"), BODY, signing.SIGNED_CHUNKS, alter_body=forge)
    assert_refused(answer, 403, "SignatureDoesNotMatch")
    assert snapshot(s3, kept) == before and read(s3, kept, "object") == b"old"


def test_body_with_another_signed_hash_changes_nothing(raw, s3, kept):
    before = snapshot(s3, kept)
    digest = hashlib.sha256(b"other").hexdigest()
    answer = raw.request("PUT", raw.path(kept, "object"), body=BODY, payload_hash=digest)
    assert_refused(answer, 400, "XAmzContentSHA256Mismatch")
    assert snapshot(s3, kept) == before and read(s3, kept, "object") == b"old"


def test_a_content_md5_is_verified(raw, s3, kept):
    path = raw.path(kept, "object")
    before = snapshot(s3, kept)
    wrong = raw.request("PUT", path, headers={"Content-MD5": md5_of(b"other")}, body=BODY)
    assert_refused(wrong, 400, "BadDigest")
    malformed = raw.request("PUT", path, headers={"Content-MD5": "not-a-digest"}, body=BODY)
    assert_refused(malformed, 400, "InvalidDigest")
    assert snapshot(s3, kept) == before and read(s3, kept, "object") == b"old"
    assert raw.request("PUT", path, headers={"Content-MD5": md5_of(BODY)}, body=BODY).status == 200
    assert read(s3, kept, "object") == BODY


def test_a_malformed_checksum_is_refused(raw, s3, kept):
    before = snapshot(s3, kept)
    answer = raw.request("PUT", raw.path(kept, "object"), headers={"x-amz-checksum-sha256": "AAAA"}, body=BODY)
    assert_refused(answer, 400, "InvalidRequest")
    assert snapshot(s3, kept) == before


def test_a_part_with_a_wrong_digest_is_refused(raw, s3, bucket):
    upload = s3.create_multipart_upload(Bucket=bucket, Key="joined")["UploadId"]
    query = {"partNumber": "1", "uploadId": upload}
    for headers in ({"Content-MD5": md5_of(b"other")}, {"x-amz-checksum-crc32": text_of("CRC32", b"other")}):
        answer = raw.request("PUT", raw.path(bucket, "joined"), query=query, headers=headers, body=BODY)
        assert_refused(answer, 400, "BadDigest")
    assert "Parts" not in s3.list_parts(Bucket=bucket, Key="joined", UploadId=upload)


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "SHA1", "SHA256"])
def test_a_multipart_object_has_a_checksum_of_its_parts(s3, bucket, algorithm):
    field = f"Checksum{algorithm}"
    bodies = [body_of(PART_BYTES_MIN, 1), b"end"]
    upload = s3.create_multipart_upload(
        Bucket=bucket, Key="joined", ChecksumAlgorithm=algorithm, ChecksumType="COMPOSITE"
    )
    names = {"Bucket": bucket, "Key": "joined", "UploadId": upload["UploadId"]}
    parts = []
    for number, body in enumerate(bodies, 1):
        answer = s3.upload_part(**names, PartNumber=number, Body=body, ChecksumAlgorithm=algorithm)
        assert answer[field] == text_of(algorithm, body)
        parts.append({"PartNumber": number, "ETag": answer["ETag"], field: answer[field]})
    wrong = [parts[0], {**parts[1], field: text_of(algorithm, b"other")}]
    with pytest.raises(s3.exceptions.ClientError) as caught:
        s3.complete_multipart_upload(**names, MultipartUpload={"Parts": wrong})
    assert caught.value.response["Error"]["Code"] in ("InvalidPart", "BadDigest")
    answer = s3.complete_multipart_upload(**names, MultipartUpload={"Parts": parts})
    joined = text_of(algorithm, b"".join(DIGESTS[algorithm](body) for body in bodies))
    assert answer[field] == f"{joined}-2"
    assert s3.head_object(Bucket=bucket, Key="joined", ChecksumMode="ENABLED")[field] == f"{joined}-2"


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "CRC64NVME"])
def test_a_multipart_object_can_have_a_checksum_of_the_whole(s3, bucket, algorithm):
    field = f"Checksum{algorithm}"
    bodies = [body_of(PART_BYTES_MIN, 1), b"end"]
    names = {"Bucket": bucket, "Key": "joined"}
    names["UploadId"] = s3.create_multipart_upload(**names, ChecksumAlgorithm=algorithm, ChecksumType="FULL_OBJECT")[
        "UploadId"
    ]
    parts = []
    for number, body in enumerate(bodies, 1):
        answer = s3.upload_part(**names, PartNumber=number, Body=body, ChecksumAlgorithm=algorithm)
        parts.append({"PartNumber": number, "ETag": answer["ETag"], field: answer[field]})
    answer = s3.complete_multipart_upload(**names, MultipartUpload={"Parts": parts})
    assert answer[field] == text_of(algorithm, b"".join(bodies))


def test_a_batch_delete_with_a_wrong_md5_deletes_nothing(raw, s3, kept):
    body = b"<Delete><Object><Key>object</Key></Object></Delete>"
    answer = raw.request(
        "POST", raw.path(kept), query={"delete": None}, headers={"Content-MD5": md5_of(b"other")}, body=body
    )
    assert_refused(answer, 400, "BadDigest")
    assert read(s3, kept, "object") == b"old"
