"""Copies: within and across buckets, of objects and of parts, with their directives and conditions."""

import datetime

import pytest

from s3_checks import (
    PART_BYTES_MIN,
    body_of,
    etag_of,
    keys_of,
    multipart,
    read,
    refused,
)

OLD = datetime.datetime(2001, 1, 1, tzinfo=datetime.timezone.utc)


@pytest.fixture
def source(s3, bucket):
    s3.put_object(
        Bucket=bucket,
        Key="source",
        Body=b"source",
        ContentType="text/plain",
        CacheControl="no-store",
        Metadata={"kept": "yes"},
        Tagging="colour=red",
    )
    return {"Bucket": bucket, "Key": "source"}


def tags_of(s3, bucket, key):
    return {tag["Key"]: tag["Value"] for tag in s3.get_object_tagging(Bucket=bucket, Key=key)["TagSet"]}


def test_a_copy_has_the_bytes_headers_metadata_and_tags(s3, source):
    answer = s3.copy_object(Bucket=source["Bucket"], Key="copy", CopySource=source)
    assert answer["CopyObjectResult"]["ETag"] == etag_of(b"source")
    head = s3.head_object(Bucket=source["Bucket"], Key="copy")
    assert (head["ContentType"], head["CacheControl"]) == ("text/plain", "no-store")
    assert head["Metadata"] == {"kept": "yes"}
    assert tags_of(s3, source["Bucket"], "copy") == {"colour": "red"}
    assert read(s3, source["Bucket"], "copy") == b"source"
    assert answer["CopyObjectResult"]["LastModified"].replace(microsecond=0) == head["LastModified"]


def test_copy_survives_deletion_of_its_source(s3, source, new_bucket):
    other = new_bucket()
    s3.copy_object(Bucket=other, Key="copy", CopySource=source)
    s3.delete_object(**source)
    assert read(s3, other, "copy") == b"source"


def test_source_survives_overwrite_and_deletion_of_its_copy(s3, source):
    s3.copy_object(Bucket=source["Bucket"], Key="copy", CopySource=source)
    s3.put_object(Bucket=source["Bucket"], Key="copy", Body=b"new")
    s3.delete_object(Bucket=source["Bucket"], Key="copy")
    assert read(s3, **{"bucket": source["Bucket"], "key": "source"}) == b"source"


def test_replace_directives_replace_metadata_and_tags(s3, source):
    s3.copy_object(
        Bucket=source["Bucket"],
        Key="copy",
        CopySource=source,
        MetadataDirective="REPLACE",
        Metadata={"new": "1"},
        ContentType="image/png",
        TaggingDirective="REPLACE",
        Tagging="shape=round",
    )
    head = s3.head_object(Bucket=source["Bucket"], Key="copy")
    assert (head["Metadata"], head["ContentType"]) == ({"new": "1"}, "image/png")
    assert "CacheControl" not in head
    assert tags_of(s3, source["Bucket"], "copy") == {"shape": "round"}


def test_a_copy_onto_itself_changes_metadata_only(s3, source):
    s3.copy_object(**source, CopySource=source, MetadataDirective="REPLACE", Metadata={"new": "1"})
    assert s3.head_object(**source)["Metadata"] == {"new": "1"}
    assert read(s3, source["Bucket"], "source") == b"source"


def test_a_copy_onto_itself_that_changes_nothing_is_refused(s3, source):
    with refused("InvalidRequest", 400):
        s3.copy_object(**source, CopySource=source)


def test_a_missing_source_is_refused(s3, source):
    with refused("NoSuchKey", 404):
        s3.copy_object(Bucket=source["Bucket"], Key="copy", CopySource={**source, "Key": "missing"})
    with refused("NoSuchBucket", 404):
        s3.copy_object(Bucket=source["Bucket"], Key="copy", CopySource={**source, "Bucket": "no-such-bucket-x"})
    assert keys_of(s3, source["Bucket"]) == ["source"]


@pytest.mark.parametrize(
    "condition",
    [
        {"CopySourceIfMatch": etag_of(b"other")},
        {"CopySourceIfNoneMatch": etag_of(b"source")},
        {"CopySourceIfUnmodifiedSince": OLD},
    ],
    ids=["if-match", "if-none-match", "if-unmodified-since"],
)
def test_a_copy_condition_that_does_not_hold_copies_nothing(s3, source, condition):
    with refused("PreconditionFailed", 412):
        s3.copy_object(Bucket=source["Bucket"], Key="copy", CopySource=source, **condition)
    assert keys_of(s3, source["Bucket"]) == ["source"]


def test_a_copy_condition_that_holds_copies(s3, source):
    s3.copy_object(
        Bucket=source["Bucket"],
        Key="copy",
        CopySource=source,
        CopySourceIfMatch=etag_of(b"source"),
        CopySourceIfModifiedSince=OLD,
    )
    assert read(s3, source["Bucket"], "copy") == b"source"


@pytest.mark.parametrize("key", ["a b+c%2F~é", "a//b", "./x", "q?x=1&y", "日本 語"])
def test_awkward_keys_can_be_copied_and_copied_onto(s3, bucket, key):
    s3.put_object(Bucket=bucket, Key=key, Body=b"awkward")
    s3.copy_object(Bucket=bucket, Key=f"{key}2", CopySource={"Bucket": bucket, "Key": key})
    assert read(s3, bucket, f"{key}2") == b"awkward"


def test_a_multipart_object_can_be_copied(s3, bucket):
    parts = [body_of(PART_BYTES_MIN, 1), b"end"]
    etag = multipart(s3, bucket, "joined", parts)["ETag"]
    s3.copy_object(Bucket=bucket, Key="copy", CopySource={"Bucket": bucket, "Key": "joined"})
    s3.delete_object(Bucket=bucket, Key="joined")
    assert read(s3, bucket, "copy") == b"".join(parts)
    assert s3.head_object(Bucket=bucket, Key="copy")["ETag"] in (etag, etag_of(b"".join(parts)))


def test_parts_are_copied_whole_in_ranges_and_across_part_borders(s3, bucket):
    parts = [body_of(PART_BYTES_MIN, 1), body_of(PART_BYTES_MIN, 2)]
    whole = b"".join(parts)
    multipart(s3, bucket, "joined", parts)
    s3.put_object(Bucket=bucket, Key="small", Body=b"small")
    names = {"Bucket": bucket, "Key": "assembled"}
    names["UploadId"] = s3.create_multipart_upload(**names)["UploadId"]
    joined = {"Bucket": bucket, "Key": "joined"}
    copies = [
        (joined, None, whole),
        (joined, (100, 100 + PART_BYTES_MIN - 1), whole[100 : 100 + PART_BYTES_MIN]),
        (joined, (0, PART_BYTES_MIN - 1), parts[0]),
        ({"Bucket": bucket, "Key": "small"}, None, b"small"),
    ]
    listed = []
    for number, (copied, range_, expected) in enumerate(copies, 1):
        options = {"CopySourceRange": f"bytes={range_[0]}-{range_[1]}"} if range_ else {}
        answer = s3.upload_part_copy(**names, PartNumber=number, CopySource=copied, **options)["CopyPartResult"]
        if copied is not joined or range_:
            assert answer["ETag"] == etag_of(expected)
        listed.append({"PartNumber": number, "ETag": answer["ETag"]})
    s3.delete_object(**joined)
    s3.complete_multipart_upload(**names, MultipartUpload={"Parts": listed})
    assert read(s3, bucket, "assembled") == b"".join(expected for _, _, expected in copies)


@pytest.mark.parametrize("range_", ["bytes=0-6", "bytes=6-9"])
def test_a_part_copied_from_past_the_end_is_refused(s3, source, range_):
    names = {"Bucket": source["Bucket"], "Key": "assembled"}
    names["UploadId"] = s3.create_multipart_upload(**names)["UploadId"]
    with pytest.raises(s3.exceptions.ClientError) as caught:
        s3.upload_part_copy(**names, PartNumber=1, CopySource=source, CopySourceRange=range_)
    assert caught.value.response["Error"]["Code"] in ("InvalidArgument", "InvalidRange")
    assert "Parts" not in s3.list_parts(**names)
