"""Multipart uploads: S3's checks of order, sizes, ETags and upload ID, and a Complete that can be repeated."""

import hashlib
import threading

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


@pytest.fixture
def upload(s3, bucket):
    """The arguments that identify an open upload."""
    answer = s3.create_multipart_upload(Bucket=bucket, Key="joined")
    return {"Bucket": bucket, "Key": "joined", "UploadId": answer["UploadId"]}


def put(s3, upload, number, body):
    answer = s3.upload_part(**upload, PartNumber=number, Body=body)
    assert answer["ETag"] == etag_of(body)
    return {"PartNumber": number, "ETag": answer["ETag"]}


def complete(s3, upload, parts):
    return s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})


def joined_etag(parts):
    digests = b"".join(hashlib.md5(part).digest() for part in parts)
    return f'"{hashlib.md5(digests).hexdigest()}-{len(parts)}"'


def test_parts_join_in_order_under_s3s_etag(s3, bucket):
    parts = [body_of(PART_BYTES_MIN, 1), body_of(PART_BYTES_MIN + 1, 2), body_of(3, 3)]
    answer = multipart(s3, bucket, "joined", parts, ContentType="text/x", Metadata={"who": "me"})
    assert answer["ETag"] == joined_etag(parts)
    assert read(s3, bucket, "joined") == b"".join(parts)
    head = s3.head_object(Bucket=bucket, Key="joined")
    entry = s3.list_objects_v2(Bucket=bucket)["Contents"][0]
    assert head["ETag"] == entry["ETag"] == joined_etag(parts)
    assert head["ContentLength"] == entry["Size"] == sum(map(len, parts))
    assert (head["ContentType"], head["Metadata"]) == ("text/x", {"who": "me"})


def test_open_upload_is_not_listed_as_an_object(s3, upload):
    put(s3, upload, 1, b"part")
    assert keys_of(s3, upload["Bucket"]) == []
    with refused("NoSuchKey", 404):
        s3.get_object(Bucket=upload["Bucket"], Key="joined")


def test_part_numbers_may_have_gaps_and_arrive_in_any_order(s3, upload):
    last = put(s3, upload, 9999, b"end")
    first = put(s3, upload, 7, body_of(PART_BYTES_MIN))
    complete(s3, upload, [first, last])
    assert read(s3, upload["Bucket"], "joined") == body_of(PART_BYTES_MIN) + b"end"


def test_a_part_sent_again_replaces_the_first(s3, upload):
    put(s3, upload, 1, b"first")
    complete(s3, upload, [put(s3, upload, 1, b"second")])
    assert read(s3, upload["Bucket"], "joined") == b"second"


def test_unlisted_parts_are_not_in_the_object(s3, upload):
    kept = put(s3, upload, 1, b"kept")
    put(s3, upload, 2, b"left out")
    complete(s3, upload, [kept])
    assert read(s3, upload["Bucket"], "joined") == b"kept"


def test_parts_out_of_order_are_refused(s3, upload):
    parts = [put(s3, upload, 1, body_of(PART_BYTES_MIN)), put(s3, upload, 2, b"end")]
    with refused("InvalidPartOrder", 400):
        complete(s3, upload, parts[::-1])
    with refused("InvalidPartOrder", 400):
        complete(s3, upload, [parts[0], parts[0]])
    complete(s3, upload, parts)


def test_a_small_part_before_the_last_is_refused(s3, upload):
    parts = [put(s3, upload, 1, b"small"), put(s3, upload, 2, b"end")]
    with refused("EntityTooSmall", 400):
        complete(s3, upload, parts)
    assert keys_of(s3, upload["Bucket"]) == []
    assert len(s3.list_parts(**upload)["Parts"]) == 2


def test_a_part_with_another_etag_or_never_sent_is_refused(s3, upload):
    part = put(s3, upload, 1, b"part")
    with refused("InvalidPart", 400):
        complete(s3, upload, [{**part, "ETag": etag_of(b"other")}])
    with refused("InvalidPart", 400):
        complete(s3, upload, [{**part, "PartNumber": 2}])
    complete(s3, upload, [part])


def test_a_complete_without_parts_is_refused(s3, raw, upload):
    with refused("MalformedXML", 400):
        complete(s3, upload, [])
    assert s3.list_parts(**upload).get("Parts", []) == []


@pytest.mark.parametrize("number", [0, 10001, -1])
def test_a_part_number_outside_s3s_bounds_is_refused(s3, upload, number):
    with refused("InvalidArgument", 400):
        s3.upload_part(**upload, PartNumber=number, Body=b"x")


def test_a_replayed_complete_gets_the_same_answer(s3, upload, s3o_only):
    parts = [put(s3, upload, 1, b"part")]
    first = complete(s3, upload, parts)
    s3.put_object(Bucket=upload["Bucket"], Key="joined", Body=b"later")
    again = complete(s3, upload, parts)
    assert again["ETag"] == first["ETag"]
    assert read(s3, upload["Bucket"], "joined") == b"later", "a replay must not bring the old object back"


def test_aborted_upload_does_not_exist(s3, upload):
    part = put(s3, upload, 1, b"part")
    assert s3.abort_multipart_upload(**upload)["ResponseMetadata"]["HTTPStatusCode"] == 204
    for act in (
        lambda: complete(s3, upload, [part]),
        lambda: s3.upload_part(**upload, PartNumber=2, Body=b"x"),
        lambda: s3.list_parts(**upload),
    ):
        with refused("NoSuchUpload", 404):
            act()
    assert keys_of(s3, upload["Bucket"]) == []


def test_an_upload_belongs_to_its_bucket_and_key(s3, upload, new_bucket):
    part = put(s3, upload, 1, b"part")
    for other in ({"Bucket": new_bucket()}, {"Key": "other"}):
        for act in (
            lambda names: s3.upload_part(**names, PartNumber=1, Body=b"stolen"),
            lambda names: complete(s3, names, [part]),
            lambda names: s3.abort_multipart_upload(**names),
            lambda names: s3.list_parts(**names),
        ):
            with refused("NoSuchUpload", 404):
                act({**upload, **other})
    complete(s3, upload, [part])
    assert read(s3, upload["Bucket"], "joined") == b"part"


def test_parts_are_listed_in_pages(s3, upload):
    for number in (1, 2, 3):
        put(s3, upload, number, body_of(10, number))
    page = s3.list_parts(**upload, MaxParts=2)
    assert page["IsTruncated"] and page["NextPartNumberMarker"] == 2
    assert [(part["PartNumber"], part["Size"]) for part in page["Parts"]] == [(1, 10), (2, 10)]
    rest = s3.list_parts(**upload, PartNumberMarker=2)
    assert not rest["IsTruncated"]
    assert [part["ETag"] for part in rest["Parts"]] == [etag_of(body_of(10, 3))]


def test_open_uploads_are_listed_in_pages_by_key_and_prefix(s3, bucket):
    made = [(key, s3.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]) for key in ("a", "b/1", "b/1", "c")]
    found = []
    for page in s3.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, PaginationConfig={"PageSize": 1}):
        found += [(entry["Key"], entry["UploadId"]) for entry in page.get("Uploads", [])]
    assert [key for key, _ in found] == ["a", "b/1", "b/1", "c"]
    assert sorted(found) == sorted(made)
    page = s3.list_multipart_uploads(Bucket=bucket, Delimiter="/")
    assert [entry["Prefix"] for entry in page["CommonPrefixes"]] == ["b/"]
    assert {entry["Key"] for entry in s3.list_multipart_uploads(Bucket=bucket, Prefix="b")["Uploads"]} == {"b/1"}


def test_only_one_of_concurrent_complete_and_abort_succeeds(s3, bucket):
    for attempt in range(5):
        names = {"Bucket": bucket, "Key": f"k{attempt}"}
        names["UploadId"] = s3.create_multipart_upload(**names)["UploadId"]
        part = put(s3, names, 1, b"part")
        outcomes = {}

        def act(name, call):
            try:
                call()
                outcomes[name] = True
            except s3.exceptions.ClientError as refusal:
                assert refusal.response["Error"]["Code"] == "NoSuchUpload"
                outcomes[name] = False

        calls = {
            "complete": lambda: complete(s3, names, [part]),
            "abort": lambda: s3.abort_multipart_upload(**names),
        }
        threads = [threading.Thread(target=act, args=call) for call in calls.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        there = keys_of(s3, bucket, Prefix=names["Key"]) == [names["Key"]]
        assert there == outcomes["complete"]
        assert outcomes["complete"] or outcomes["abort"]


def test_attributes_list_the_parts_of_a_multipart_object(s3, bucket):
    upload = s3.create_multipart_upload(Bucket=bucket, Key="joined", ChecksumAlgorithm="SHA256")
    names = {"Bucket": bucket, "Key": "joined", "UploadId": upload["UploadId"]}
    parts = []
    for number, body in enumerate([body_of(PART_BYTES_MIN), b"end"], 1):
        answer = s3.upload_part(**names, PartNumber=number, Body=body, ChecksumAlgorithm="SHA256")
        parts.append({"PartNumber": number, "ETag": answer["ETag"], "ChecksumSHA256": answer["ChecksumSHA256"]})
    complete(s3, names, parts)
    answer = s3.get_object_attributes(
        Bucket=bucket, Key="joined", ObjectAttributes=["ObjectSize", "ObjectParts", "Checksum"]
    )
    assert answer["ObjectSize"] == PART_BYTES_MIN + 3
    assert answer["ObjectParts"]["TotalPartsCount"] == 2
    assert [part["Size"] for part in answer["ObjectParts"]["Parts"]] == [PART_BYTES_MIN, 3]
