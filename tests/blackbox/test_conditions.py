"""Conditions on reads and writes: the four HTTP conditions, and conditional writes that succeed once."""

import concurrent.futures
import datetime

import pytest

from s3_checks import body_of, etag_of, keys_of, read, refused

OLD = datetime.datetime(2001, 1, 1, tzinfo=datetime.timezone.utc)


@pytest.fixture
def there(s3, bucket):
    s3.put_object(Bucket=bucket, Key="there", Body=b"there")
    return bucket


def modified(s3, bucket):
    return s3.head_object(Bucket=bucket, Key="there")["LastModified"]


def test_if_match_reads_only_that_version(s3, there):
    assert read(s3, there, "there", IfMatch=etag_of(b"there")) == b"there"
    with refused("PreconditionFailed", 412):
        s3.get_object(Bucket=there, Key="there", IfMatch=etag_of(b"other"))
    with refused("412", 412):
        s3.head_object(Bucket=there, Key="there", IfMatch=etag_of(b"other"))


def test_if_none_match_answers_not_modified(s3, there):
    assert read(s3, there, "there", IfNoneMatch=etag_of(b"other")) == b"there"
    for read_method in (s3.get_object, s3.head_object):
        with refused("304", 304) as caught:
            read_method(Bucket=there, Key="there", IfNoneMatch=etag_of(b"there"))
        headers = caught.value.response["ResponseMetadata"]["HTTPHeaders"]
        assert headers["etag"] == etag_of(b"there")


def test_dates_decide_without_etag_conditions(s3, there):
    moment = modified(s3, there)
    assert read(s3, there, "there", IfModifiedSince=OLD) == b"there"
    assert read(s3, there, "there", IfUnmodifiedSince=moment) == b"there"
    with refused("304", 304):
        s3.get_object(Bucket=there, Key="there", IfModifiedSince=moment)
    with refused("PreconditionFailed", 412):
        s3.get_object(Bucket=there, Key="there", IfUnmodifiedSince=OLD)


def test_etag_conditions_override_dates(s3, there):
    assert read(s3, there, "there", IfMatch=etag_of(b"there"), IfUnmodifiedSince=OLD) == b"there"
    with refused("304", 304):
        s3.get_object(Bucket=there, Key="there", IfNoneMatch=etag_of(b"there"), IfModifiedSince=OLD)


def test_a_write_if_none_match_never_replaces(s3, there):
    with refused("PreconditionFailed", 412):
        s3.put_object(Bucket=there, Key="there", Body=b"new", IfNoneMatch="*")
    assert read(s3, there, "there") == b"there"
    s3.put_object(Bucket=there, Key="fresh", Body=b"new", IfNoneMatch="*")
    assert read(s3, there, "fresh") == b"new"


def test_a_write_if_match_replaces_only_that_version(s3, there):
    with refused("PreconditionFailed", 412):
        s3.put_object(Bucket=there, Key="there", Body=b"new", IfMatch=etag_of(b"other"))
    assert read(s3, there, "there") == b"there"
    s3.put_object(Bucket=there, Key="there", Body=b"new", IfMatch=etag_of(b"there"))
    assert read(s3, there, "there") == b"new"


def test_a_write_if_match_needs_an_object(s3, bucket):
    with refused("NoSuchKey", 404):
        s3.put_object(Bucket=bucket, Key="missing", Body=b"x", IfMatch=etag_of(b"x"))
    assert keys_of(s3, bucket) == []


def test_a_delete_if_match_removes_only_that_version(s3, there):
    with refused("PreconditionFailed", 412):
        s3.delete_object(Bucket=there, Key="there", IfMatch=etag_of(b"other"))
    assert read(s3, there, "there") == b"there"
    s3.delete_object(Bucket=there, Key="there", IfMatch=etag_of(b"there"))
    assert keys_of(s3, there) == []


def test_a_complete_if_none_match_never_replaces(s3, there):
    upload = s3.create_multipart_upload(Bucket=there, Key="there")["UploadId"]
    names = {"Bucket": there, "Key": "there", "UploadId": upload}
    etag = s3.upload_part(**names, PartNumber=1, Body=b"part")["ETag"]
    parts = {"Parts": [{"PartNumber": 1, "ETag": etag}]}
    with refused("PreconditionFailed", 412):
        s3.complete_multipart_upload(**names, MultipartUpload=parts, IfNoneMatch="*")
    assert read(s3, there, "there") == b"there"


@pytest.mark.parametrize("writers", [16])
def test_exactly_one_concurrent_if_none_match_writer_wins(server, s3, bucket, writers):
    def write(number):
        try:
            s3.put_object(Bucket=bucket, Key="contested", Body=body_of(2000, number), IfNoneMatch="*")
            return number
        except s3.exceptions.ClientError as refusal:
            assert refusal.response["Error"]["Code"] in ("PreconditionFailed", "ConditionalRequestConflict")
            return None

    with concurrent.futures.ThreadPoolExecutor(writers) as pool:
        winners = [number for number in pool.map(write, range(writers)) if number is not None]
    assert len(winners) == 1
    assert read(s3, bucket, "contested") == body_of(2000, winners[0])


def test_conditions_on_a_missing_object_are_404(s3, bucket):
    with refused("NoSuchKey", 404):
        s3.get_object(Bucket=bucket, Key="missing", IfNoneMatch=etag_of(b"x"))
