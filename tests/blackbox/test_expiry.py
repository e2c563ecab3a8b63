"""Objects that expire: how clients set it, and that no request sees them afterwards."""

import time
from datetime import datetime, timedelta, timezone

import pytest

from expiry_client import (
    SETTINGS,
    expiration,
    expire,
    expiry_headers,
    put,
    seconds_ahead,
)
from polling import eventually
from raw_client import assert_refused
from s3_checks import (
    PART_BYTES_MIN,
    body_of,
    keys_of,
    multipart,
    read,
    refused,
    snapshot,
)
from test_maintenance_workers import audited
from test_presigned import fetch, presign

pytestmark = pytest.mark.usefixtures("s3o_only")


AFTER, AT = "x-s3o-expires-after", "x-s3o-expires-at"


def test_every_write_accepts_an_expiry_and_every_answer_shows_it(s3, bucket):
    with expiry_headers(s3, x_s3o_expires_after="3600"):
        answers = [
            s3.put_object(Bucket=bucket, Key="put", Body=b"body"),
            s3.copy_object(Bucket=bucket, Key="copy", CopySource={"Bucket": bucket, "Key": "put"}),
            multipart(s3, bucket, "joined", [body_of(PART_BYTES_MIN), b"tail"]),
        ]
    for key in ("put", "copy", "joined"):
        answers += [s3.head_object(Bucket=bucket, Key=key), s3.get_object(Bucket=bucket, Key=key, Range="bytes=0-0")]
    assert all(3500 < seconds_ahead(answer) <= 3600 for answer in answers), answers
    for text, seconds in (("90s", 90), ("24h", 86400), ("2d", 172800)):
        assert seconds - 60 < seconds_ahead(put(s3, bucket, "put", after=text)) <= seconds
    moment = datetime(2031, 5, 6, 7, 8, 9, tzinfo=timezone(timedelta(hours=2)))
    with expiry_headers(s3, x_s3o_expires_at=moment.isoformat()):
        assert expiration(s3.put_object(Bucket=bucket, Key="put", Body=b"body")) == moment
    assert expiration(s3.head_object(Bucket=bucket, Key="put")) == moment


def test_an_expiry_belongs_to_one_write(s3, bucket):
    put(s3, bucket, "expiring")
    source = {"Bucket": bucket, "Key": "expiring"}
    assert "Expiration" not in s3.copy_object(Bucket=bucket, Key="copy", CopySource=source)
    assert "Expiration" not in s3.head_object(Bucket=bucket, Key="copy")
    s3.copy_object(Bucket=bucket, Key="expiring", CopySource=source, MetadataDirective="REPLACE")
    assert "Expiration" not in s3.head_object(Bucket=bucket, Key="expiring"), "a copy onto it clears it"
    put(s3, bucket, "expiring")
    assert "Expiration" not in s3.put_object(Bucket=bucket, Key="expiring", Body=b"new")
    assert "Expiration" not in s3.get_object(Bucket=bucket, Key="expiring")


def test_a_time_to_live_counts_from_complete(s3, bucket):
    with expiry_headers(s3, x_s3o_expires_after="1h"):
        upload = s3.create_multipart_upload(Bucket=bucket, Key="joined")["UploadId"]
    part = s3.upload_part(Bucket=bucket, Key="joined", UploadId=upload, PartNumber=1, Body=b"only")
    time.sleep(2)
    before = datetime.now(timezone.utc)
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    complete = {"Bucket": bucket, "Key": "joined", "UploadId": upload, "MultipartUpload": parts}
    first = s3.complete_multipart_upload(**complete)
    assert expiration(first) >= before.replace(microsecond=0) + timedelta(hours=1)
    assert s3.complete_multipart_upload(**complete)["Expiration"] == first["Expiration"], "a repeated read"


PAST = "2021-01-01T00:00:00Z"


@pytest.mark.parametrize(
    "headers",
    [
        {"x_s3o_expires_after": "60", "x_s3o_expires_at": "2031-01-01T00:00:00Z"},
        *(
            {"x_s3o_expires_after": text}
            for text in ("0", "0s", "-1", "-1s", "1.5", "soon", "5 parsecs", "9" * 30, "40000d")
        ),
        *(
            {"x_s3o_expires_at": text}
            for text in (PAST, "soon", "2031-01-01", "2031-13-01T00:00:00Z", "9999-01-01T00:00:00Z")
        ),
    ],
    ids=lambda headers: "+".join(headers.values())[:40],
)
def test_invalid_expiry_is_refused_and_changes_nothing(s3, bucket, headers):
    s3.put_object(Bucket=bucket, Key="there", Body=b"old")
    before = snapshot(s3, bucket)
    with expiry_headers(s3, **headers):
        for write in (
            lambda: s3.put_object(Bucket=bucket, Key="there", Body=b"new"),
            lambda: s3.copy_object(Bucket=bucket, Key="copy", CopySource={"Bucket": bucket, "Key": "there"}),
            lambda: s3.create_multipart_upload(Bucket=bucket, Key="joined"),
        ):
            with refused("InvalidArgument", 400):
                write()
    assert snapshot(s3, bucket) == before and read(s3, bucket, "there") == b"old"


def test_expiry_header_is_refused_on_requests_that_write_no_object(s3, raw, bucket):
    put(s3, bucket, "there")
    upload = s3.create_multipart_upload(Bucket=bucket, Key="joined")["UploadId"]
    part = {"uploadId": upload, "partNumber": "1"}
    for method, query in (("GET", None), ("DELETE", None), ("PUT", part), ("PUT", {"tagging": ""})):
        answer = raw.request(method, raw.path(bucket, "there"), query=query, headers={AFTER: "60"}, body=b"x")
        assert_refused(answer, 400, "InvalidArgument")
    assert read(s3, bucket, "there") == b"body"


def test_unsigned_expiry_header_is_refused(s3, bucket):
    url = presign(s3, "put_object", bucket, "signed")
    assert_refused(fetch(url, "PUT", b"body", {AFTER: "1"}), 403, "AccessDenied")
    assert_refused(fetch(url, "PUT", b"body", {AT: "2031-01-01T00:00:00Z"}), 403, "AccessDenied")
    assert keys_of(s3, bucket) == []
    assert fetch(url, "PUT", b"body").status == 200


def test_expired_object_is_invisible_to_every_request(server, s3, bucket):
    for key in ("expiring", "other"):
        put(s3, bucket, key)
    etag = s3.head_object(Bucket=bucket, Key="expiring")["ETag"]
    upload = s3.create_multipart_upload(Bucket=bucket, Key="joined")["UploadId"]
    expire(server, bucket, "expiring")
    expiring, source = {"Bucket": bucket, "Key": "expiring"}, {"Bucket": bucket, "Key": "expiring"}
    for gone in (
        lambda: s3.get_object(**expiring),
        lambda: s3.get_object_tagging(**expiring),
        lambda: s3.put_object_tagging(**expiring, Tagging={"TagSet": [{"Key": "k", "Value": "v"}]}),
        lambda: s3.delete_object_tagging(**expiring),
        lambda: s3.get_object_attributes(**expiring, ObjectAttributes=["ObjectSize"]),
        lambda: s3.copy_object(Bucket=bucket, Key="copy", CopySource=source),
        lambda: s3.upload_part_copy(Bucket=bucket, Key="joined", UploadId=upload, PartNumber=1, CopySource=source),
        lambda: s3.put_object(**expiring, Body=b"new", IfMatch=etag),
    ):
        with refused("NoSuchKey", 404):
            gone()
    with refused("404", 404):
        s3.head_object(**expiring)
    assert keys_of(s3, bucket) == ["other"]
    assert [entry["Key"] for entry in s3.list_objects(Bucket=bucket)["Contents"]] == ["other"]
    deleted = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "expiring", "ETag": etag}]})
    assert [error["Code"] for error in deleted["Errors"]] == ["PreconditionFailed"], "no object matches the condition"
    s3.put_object(**expiring, Body=b"new", IfNoneMatch="*")
    assert read(s3, bucket, "expiring") == b"new"


def test_object_disappears_at_its_expiry(s3, bucket):
    put(s3, bucket, "expiring", after="3s")
    assert read(s3, bucket, "expiring") == b"body"

    def is_expired():
        return keys_of(s3, bucket) == []

    eventually(is_expired, 30, message="it is still listed")
    with refused("NoSuchKey", 404):
        s3.get_object(Bucket=bucket, Key="expiring")
    s3.delete_object(Bucket=bucket, Key="expiring")


def test_expired_objects_do_not_block_bucket_deletion(server, s3, new_bucket):
    bucket = new_bucket()
    for key in ("a", "b"):
        put(s3, bucket, key)
    expire(server, bucket, "a")
    with refused("BucketNotEmpty", 409):
        s3.delete_bucket(Bucket=bucket)
    expire(server, bucket, "b")
    s3.delete_bucket(Bucket=bucket)
    with refused("404", 404):
        s3.head_bucket(Bucket=bucket)


def test_expired_objects_deleted_with_their_bucket_are_audited(own_server):
    server = own_server(settings=SETTINGS).start()
    s3, keys = server.s3(), [f"k{number}" for number in range(20)]
    s3.create_bucket(Bucket="doomed")
    for key in keys:
        put(s3, "doomed", key)
    expire(server, "doomed", *keys)
    answer = s3.delete_bucket(Bucket="doomed")
    eventually(lambda: audited(server, "s3.DeleteBucket"), 10, message="not audited")
    gone = audited(server, "expiry.deleted")
    assert sorted(line["key"] for line in gone) == sorted(keys)
    cause = answer["ResponseMetadata"]["RequestId"]
    assert {(line["bucket"], line["size_bytes"], line["request_id"]) for line in gone} == {("doomed", 4, cause)}
    assert {line["actor"] for line in gone} == {audited(server, "s3.DeleteBucket")[0]["actor"]}
