"""Bad requests: each gets the code and status of S3 in complete error XML, and changes nothing."""

import base64
import datetime
import hashlib
import socket
import zlib

import pytest

import signing
from raw_client import assert_refused
from s3_checks import body_of, read, refused, snapshot
from signing import Credentials

HOUR = datetime.timedelta(hours=1)


@pytest.fixture
def kept(s3, bucket):
    """A bucket with one object and one open upload; the test fails if a refusal changed either."""
    s3.put_object(Bucket=bucket, Key="object", Body=b"old")
    s3.create_multipart_upload(Bucket=bucket, Key="open")
    before = snapshot(s3, bucket)
    yield bucket
    assert snapshot(s3, bucket) == before
    assert read(s3, bucket, "object") == b"old"


def test_a_bad_signature_is_refused(server, kept):
    raw = server.raw()
    raw.credentials = Credentials(raw.credentials.access_key, "not the secret")
    for method, body in (("GET", b""), ("PUT", b"new"), ("DELETE", b"")):
        answer = raw.request(method, raw.path(kept, "object"), body=body)
        assert_refused(answer, 403, "SignatureDoesNotMatch", f"/{kept}/object")


def test_a_request_that_was_changed_after_signing_is_refused(raw, kept):
    def alter(headers):
        headers["x-amz-meta-added"] = headers.pop("x-amz-meta-signed")

    answer = raw.request("PUT", raw.path(kept, "object"), headers={"x-amz-meta-signed": "1"}, body=b"n", alter=alter)
    assert_refused(answer, 403, "SignatureDoesNotMatch")


@pytest.mark.parametrize("skew", [-HOUR, HOUR], ids=["an hour ago", "in an hour"])
def test_a_wrong_date_is_refused(raw, kept, skew):
    when = datetime.datetime.now(datetime.timezone.utc) + skew
    answer = raw.request("PUT", raw.path(kept, "object"), body=b"new", when=when)
    assert_refused(answer, 403, "RequestTimeTooSkewed", f"/{kept}/object")


@pytest.mark.parametrize("name", ["ab", "Upper-Case", "under_score", "-edge", "a..b", "192.168.1.1", "x" * 64])
def test_a_bad_bucket_name_is_refused(raw, s3, name):
    assert_refused(raw.request("PUT", raw.path(name)), 400, "InvalidBucketName")
    assert name not in [entry["Name"] for entry in s3.list_buckets()["Buckets"]]


def test_a_key_over_1024_bytes_is_refused(raw, kept):
    for key in ("k" * 1025, "é" * 513):
        answer = raw.request("PUT", raw.path(kept, key), body=b"x")
        assert_refused(answer, 400, "KeyTooLongError")


def test_a_missing_bucket_or_key_is_named(raw, kept):
    assert_refused(raw.request("GET", "/no-such-bucket-x/k"), 404, "NoSuchBucket", "/no-such-bucket-x/k")
    assert_refused(raw.request("PUT", "/no-such-bucket-x/k", body=b"x"), 404, "NoSuchBucket")
    assert_refused(raw.request("GET", raw.path(kept, "missing")), 404, "NoSuchKey", f"/{kept}/missing")


def test_a_short_body_is_refused(raw, kept):
    headers = {"Content-Length": "1000"}
    target, headers, _ = raw.prepare("PUT", raw.path(kept, "object"), headers=headers)
    connection = raw.connect(timeout=30)
    raw.start(connection, "PUT", target, headers)
    connection.send(b"n" * 400)
    connection.sock.shutdown(socket.SHUT_WR)
    try:
        answer = raw.finish(connection)
    except (ConnectionError, OSError):
        return  # the server may have closed the connection of a client that stopped sending
    assert_refused(answer, 400, "IncompleteBody")


def test_chunked_body_shorter_than_declared_is_refused(raw, kept):
    crc32 = {"x-amz-checksum-crc32": base64.b64encode(zlib.crc32(b"n" * 400).to_bytes(4, "big")).decode()}
    for mode, trailers in ((signing.SIGNED_CHUNKS, None), (signing.UNSIGNED_CHUNKS_TRAILER, crc32)):
        length = {"x-amz-decoded-content-length": "1000"}
        answer = raw.put_chunked(raw.path(kept, "object"), b"n" * 400, mode, headers=length, trailers=trailers)
        assert_refused(answer, 400, "IncompleteBody")


def test_a_missing_length_is_refused(raw, kept):
    target, headers, _ = raw.prepare("PUT", raw.path(kept, "object"))
    headers["Transfer-Encoding"] = "chunked"
    answer = raw.send("PUT", target, headers, [b"3\r\nnew\r\n0\r\n\r\n"])
    assert_refused(answer, 411, "MissingContentLength")


@pytest.mark.parametrize("upload", ["unknown", "0190b5f2-0000-7000-8000-000000000000", "../x", ""])
def test_an_unknown_upload_is_refused(raw, kept, upload):
    path = raw.path(kept, "object")
    part = b"<Part><PartNumber>1</PartNumber><ETag>x</ETag></Part>"
    complete = b"<CompleteMultipartUpload>" + part + b"</CompleteMultipartUpload>"
    answers = [
        raw.request("PUT", path, query={"partNumber": "1", "uploadId": upload}, body=b"x"),
        raw.request("POST", path, query={"uploadId": upload}, body=complete),
        raw.request("GET", path, query={"uploadId": upload}),
        raw.request("DELETE", path, query={"uploadId": upload}),
    ]
    for answer in answers:
        assert_refused(answer, 404, "NoSuchUpload", f"/{kept}/object")


def test_a_range_past_the_end_is_refused(raw, kept):
    answer = raw.request("GET", raw.path(kept, "object"), headers={"Range": "bytes=3-"})
    assert_refused(answer, 416, "InvalidRange", f"/{kept}/object")


def test_missing_xml_body_is_refused(raw, kept):
    answer = raw.request("POST", raw.path(kept), query={"delete": None}, body=b"")
    assert (answer.status, answer.code) in ((400, "MissingRequestBodyError"), (400, "MalformedXML")), answer


def test_too_long_xml_body_is_refused(raw, kept, s3o_only):
    body = b"<Delete>" + b" " * 10_000_000 + b"<Object><Key>object</Key></Object></Delete>"
    answer = raw.request("POST", raw.path(kept), query={"delete": None}, body=body)
    assert_refused(answer, 400, "MaxMessageLengthExceeded", f"/{kept}")


@pytest.mark.parametrize("body", [b"not xml", b"<Delete><Object>", b"<Delete></Delete>", b"<Other/>"])
def test_malformed_xml_is_refused(raw, kept, body):
    md5 = {"Content-MD5": base64.b64encode(hashlib.md5(body).digest()).decode()}
    answer = raw.request("POST", raw.path(kept), query={"delete": None}, headers=md5, body=body)
    assert_refused(answer, 400, "MalformedXML", f"/{kept}")


def test_malformed_xml_completes_no_upload(raw, s3, kept):
    upload = s3.list_multipart_uploads(Bucket=kept)["Uploads"][0]["UploadId"]
    for body in (b"<CompleteMultipartUpload>", b"text", b"<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>"):
        answer = raw.request("POST", raw.path(kept, "open"), query={"uploadId": upload}, body=body)
        assert_refused(answer, 400, "MalformedXML")


def test_delete_of_more_than_a_thousand_keys_is_refused(s3, kept):
    keys = [{"Key": "object"}] + [{"Key": f"k{number}"} for number in range(1000)]
    with refused("MalformedXML", 400):
        s3.delete_objects(Bucket=kept, Delete={"Objects": keys})


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
@pytest.mark.parametrize("name", ["policy", "website", "cors", "encryption", "object-lock", "replication", "nonsense"])
def test_unsupported_bucket_subresources_are_not_implemented(raw, kept, name, method, s3o_only):
    answer = raw.request(method, raw.path(kept), query={name: None}, body=b"<X/>" if method == "PUT" else b"")
    assert_refused(answer, 501, "NotImplemented", f"/{kept}")


@pytest.mark.parametrize("method", ["GET", "PUT", "POST", "DELETE"])
@pytest.mark.parametrize("name", ["retention", "legal-hold", "torrent", "restore", "select", "nonsense"])
def test_unsupported_object_subresources_are_not_implemented(raw, kept, name, method, s3o_only):
    body = b"<X/>" if method in ("PUT", "POST") else b""
    answer = raw.request(method, raw.path(kept, "object"), query={name: None}, body=body)
    assert_refused(answer, 501, "NotImplemented", f"/{kept}/object")


@pytest.mark.parametrize(
    "headers",
    [
        {"x-amz-server-side-encryption": "AES256"},
        {"x-amz-server-side-encryption-customer-algorithm": "AES256"},
        {"x-amz-object-lock-mode": "GOVERNANCE"},
        {"x-amz-object-lock-legal-hold": "ON"},
        {"x-amz-acl": "public-read"},
        {"x-amz-website-redirect-location": "/x"},
    ],
    ids=lambda headers: next(iter(headers)),
)
def test_unsupported_headers_are_not_implemented(raw, kept, headers, s3o_only):
    answer = raw.request("PUT", raw.path(kept, "object"), headers=headers, body=b"new")
    assert_refused(answer, 501, "NotImplemented", f"/{kept}/object")


def test_version_ids_are_refused(raw, kept, s3o_only):
    for method in ("GET", "DELETE"):
        answer = raw.request(method, raw.path(kept, "object"), query={"versionId": "abc"})
        assert answer.status in (400, 404, 501), answer
        assert answer.code in ("InvalidArgument", "NoSuchVersion", "NotImplemented")


@pytest.mark.parametrize("value", ["-1", "x", "99999999999999999999"])
def test_a_bad_number_in_a_query_is_refused(raw, kept, value):
    answer = raw.request("GET", raw.path(kept), query={"list-type": "2", "max-keys": value})
    assert_refused(answer, 400, "InvalidArgument", f"/{kept}")


def test_a_post_form_is_not_implemented(raw, kept, s3o_only):
    form = b'--b\r\nContent-Disposition: form-data; name="key"\r\n\r\nobject\r\n--b--\r\n'
    answer = raw.request("POST", raw.path(kept), headers={"Content-Type": "multipart/form-data; boundary=b"}, body=form)
    assert_refused(answer, 501, "NotImplemented")


def test_failed_head_has_a_status_and_no_body(raw, kept):
    answer = raw.request("HEAD", raw.path(kept, "missing"))
    assert (answer.status, answer.body) == (404, b"")


def test_invalid_http_does_not_stop_the_server(server, s3, kept):
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(body_of(300) + b"\r\n\r\n")
    assert read(s3, kept, "object") == b"old"
