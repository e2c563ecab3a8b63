"""Ranges: exactly the bytes asked for, of plain and of multipart objects, and parts by number."""

import pytest

from s3_checks import PART_BYTES_MIN, body_of, multipart, read, refused

BODY = body_of(1000)
RANGES = {
    "bytes=0-0": (0, 1),
    "bytes=0-99": (0, 100),
    "bytes=100-": (100, 1000),
    "bytes=999-": (999, 1000),
    "bytes=-1": (999, 1000),
    "bytes=-5000": (0, 1000),
    "bytes=500-99999": (500, 1000),
}


@pytest.fixture
def whole(s3, bucket):
    s3.put_object(Bucket=bucket, Key="whole", Body=BODY)
    return bucket


@pytest.mark.parametrize("range_", RANGES)
def test_range_returns_exactly_its_bytes(s3, whole, range_):
    start, end = RANGES[range_]
    answer = s3.get_object(Bucket=whole, Key="whole", Range=range_)
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 206
    assert answer["ContentRange"] == f"bytes {start}-{end - 1}/1000"
    assert answer["ContentLength"] == end - start
    assert answer["Body"].read() == BODY[start:end]


def test_head_answers_a_range_without_its_bytes(s3, whole):
    head = s3.head_object(Bucket=whole, Key="whole", Range="bytes=10-19")
    assert (head["ResponseMetadata"]["HTTPStatusCode"], head["ContentLength"]) == (206, 10)


@pytest.mark.parametrize("range_", ["bytes=1000-", "bytes=5000-6000", "bytes=-0"])
def test_a_range_past_the_end_is_refused(s3, whole, range_):
    with refused("InvalidRange", 416):
        s3.get_object(Bucket=whole, Key="whole", Range=range_)


@pytest.mark.parametrize("range_", ["bytes=a-b", "lines=1-2"])
def test_malformed_range_is_ignored(raw, whole, range_):
    answer = raw.request("GET", raw.path(whole, "whole"), headers={"Range": range_})
    assert (answer.status, answer.body) == (200, BODY)


@pytest.mark.parametrize(
    ("range_", "status", "body"),
    [
        ("bytes=990-18446744073709551616", 206, BODY[990:]),
        ("bytes=-18446744073709551616", 206, BODY),
        ("bytes=18446744073709551616-", 416, None),
        ("bytes=-", 200, BODY),
        ("bytes=+1-2", 200, BODY),
        ("bytes=0-1,4-5", 200, BODY),
    ],
)
def test_unusual_but_valid_ranges_are_applied(raw, whole, range_, status, body, s3o_only):
    answer = raw.request("GET", raw.path(whole, "whole"), headers={"Range": range_})
    assert answer.status == status, answer
    assert body is None or answer.body == body


def test_every_range_of_an_empty_object_is_416(s3, bucket):
    s3.put_object(Bucket=bucket, Key="empty", Body=b"")
    with refused("InvalidRange", 416):
        s3.get_object(Bucket=bucket, Key="empty", Range="bytes=0-0")


def test_ranges_cross_the_parts_of_a_multipart_object(s3, bucket):
    parts = [body_of(PART_BYTES_MIN, 1), body_of(PART_BYTES_MIN, 2), body_of(777, 3)]
    whole = b"".join(parts)
    multipart(s3, bucket, "joined", parts)
    edge = PART_BYTES_MIN
    for start, end in [(edge - 1, edge), (edge, edge + 1), (edge - 10, edge + 10), (2 * edge - 5, len(whole) - 1)]:
        assert read(s3, bucket, "joined", Range=f"bytes={start}-{end}") == whole[start : end + 1]
    assert read(s3, bucket, "joined", Range=f"bytes={10}-{2 * edge + 10}") == whole[10 : 2 * edge + 11]
    assert read(s3, bucket, "joined") == whole


def test_a_part_can_be_read_by_its_number(s3, bucket):
    parts = [body_of(PART_BYTES_MIN, 1), body_of(999, 2)]
    multipart(s3, bucket, "joined", parts)
    answer = s3.get_object(Bucket=bucket, Key="joined", PartNumber=2)
    assert answer["PartsCount"] == 2
    assert answer["ContentRange"] == f"bytes {PART_BYTES_MIN}-{PART_BYTES_MIN + 998}/{PART_BYTES_MIN + 999}"
    assert answer["Body"].read() == parts[1]
    head = s3.head_object(Bucket=bucket, Key="joined", PartNumber=1)
    assert (head["ContentLength"], head["PartsCount"]) == (PART_BYTES_MIN, 2)


def test_a_part_number_past_the_last_is_refused(s3, whole):
    assert read(s3, whole, "whole", PartNumber=1) == BODY
    with refused("InvalidPartNumber", 416):
        s3.get_object(Bucket=whole, Key="whole", PartNumber=2)
