"""PUT, GET, HEAD and DELETE agree on bytes, ETag, size and date."""

import concurrent.futures
import hashlib
import itertools
import time

import pytest

from s3_checks import body_of, etag_of, keys_of, read, refused

# Minimum number of reads whose object was replaced between their first and their last byte.
OVERLAPPING_READS = 20


@pytest.mark.parametrize("size_bytes", [0, 1, 4096, 65536, 1048577, 6 * 1048576])
def test_an_object_reads_back_byte_for_byte(s3, bucket, size_bytes):
    body = body_of(size_bytes, size_bytes)
    assert s3.put_object(Bucket=bucket, Key="object", Body=body)["ETag"] == etag_of(body)
    answer = s3.get_object(Bucket=bucket, Key="object")
    assert answer["ContentLength"] == size_bytes
    assert answer["Body"].read() == body


def test_list_head_and_get_agree(s3, bucket):
    body = body_of(1234)
    s3.put_object(Bucket=bucket, Key="object", Body=body)
    entry = s3.list_objects_v2(Bucket=bucket)["Contents"][0]
    head = s3.head_object(Bucket=bucket, Key="object")
    get = s3.get_object(Bucket=bucket, Key="object")
    assert entry["ETag"] == head["ETag"] == get["ETag"] == etag_of(body)
    assert entry["Size"] == head["ContentLength"] == get["ContentLength"] == len(body)
    assert head["LastModified"] == get["LastModified"]
    assert entry["LastModified"].replace(microsecond=0) == head["LastModified"]
    assert head["AcceptRanges"] == get["AcceptRanges"] == "bytes"


def test_dates_do_not_change_when_an_object_is_read(s3, bucket):
    s3.put_object(Bucket=bucket, Key="object", Body=b"x")
    first = s3.list_objects_v2(Bucket=bucket)["Contents"][0]["LastModified"]
    read(s3, bucket, "object")
    assert s3.list_objects_v2(Bucket=bucket)["Contents"][0]["LastModified"] == first


def test_read_returns_the_last_overwrite(s3, bucket):
    for version in range(5):
        s3.put_object(Bucket=bucket, Key="object", Body=body_of(100 + version, version))
    assert read(s3, bucket, "object") == body_of(104, 4)
    assert len(keys_of(s3, bucket)) == 1


def test_an_overwrite_replaces_metadata_as_a_whole(s3, bucket):
    s3.put_object(Bucket=bucket, Key="object", Body=b"1", Metadata={"old": "1"}, ContentType="text/plain")
    s3.put_object(Bucket=bucket, Key="object", Body=b"2", Metadata={"new": "2"})
    head = s3.head_object(Bucket=bucket, Key="object")
    assert head["Metadata"] == {"new": "2"}
    assert head["ContentType"] != "text/plain"


def test_deleted_object_is_absent_from_get_head_and_list(s3, bucket):
    s3.put_object(Bucket=bucket, Key="object", Body=b"x")
    answer = s3.delete_object(Bucket=bucket, Key="object")
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 204
    with refused("NoSuchKey", 404):
        s3.get_object(Bucket=bucket, Key="object")
    with refused("404", 404):
        s3.head_object(Bucket=bucket, Key="object")
    assert keys_of(s3, bucket) == []


def test_delete_of_a_missing_object_succeeds(s3, bucket):
    assert s3.delete_object(Bucket=bucket, Key="never")["ResponseMetadata"]["HTTPStatusCode"] == 204


def test_a_key_can_be_written_again_after_its_delete(s3, bucket):
    s3.put_object(Bucket=bucket, Key="object", Body=b"first")
    s3.delete_object(Bucket=bucket, Key="object")
    s3.put_object(Bucket=bucket, Key="object", Body=b"second")
    assert read(s3, bucket, "object") == b"second"


def test_one_request_deletes_many_keys_and_reports_each(s3, bucket):
    for name in "abc":
        s3.put_object(Bucket=bucket, Key=name, Body=b"x")
    answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": name} for name in ("a", "b", "missing")]})
    assert sorted(entry["Key"] for entry in answer["Deleted"]) == ["a", "b", "missing"]
    assert "Errors" not in answer
    assert keys_of(s3, bucket) == ["c"]


def test_a_quiet_delete_reports_only_errors(s3, bucket):
    s3.put_object(Bucket=bucket, Key="a", Body=b"x")
    answer = s3.delete_objects(Bucket=bucket, Delete={"Quiet": True, "Objects": [{"Key": "a"}]})
    assert "Deleted" not in answer and "Errors" not in answer
    assert keys_of(s3, bucket) == []


def test_one_request_deletes_a_thousand_keys(s3, bucket):
    for number in range(20):
        s3.put_object(Bucket=bucket, Key=f"k{number:04}", Body=b"x")
    keys = [{"Key": f"k{number:04}"} for number in range(1000)]
    assert len(s3.delete_objects(Bucket=bucket, Delete={"Objects": keys})["Deleted"]) == 1000
    assert keys_of(s3, bucket) == []


def test_attributes_name_size_etag_and_storage_class(s3, bucket):
    body = body_of(77)
    s3.put_object(Bucket=bucket, Key="object", Body=body)
    answer = s3.get_object_attributes(
        Bucket=bucket, Key="object", ObjectAttributes=["ETag", "ObjectSize", "StorageClass"]
    )
    assert answer["ObjectSize"] == 77
    assert answer["ETag"].strip('"') == hashlib.md5(body).hexdigest()
    assert answer["StorageClass"] == "STANDARD"


def test_every_answer_has_a_unique_request_id(s3, bucket, s3o_only):
    answers = [s3.list_objects_v2(Bucket=bucket), s3.put_object(Bucket=bucket, Key="a", Body=b"x")]
    answers += [s3.head_object(Bucket=bucket, Key="a"), s3.delete_object(Bucket=bucket, Key="a")]
    ids = {answer["ResponseMetadata"]["HTTPHeaders"]["x-amz-request-id"] for answer in answers}
    assert len(ids) == len(answers)


def test_a_reader_sees_one_whole_version_while_others_overwrite(server, s3, bucket):
    bodies = {etag_of(body_of(200_000, number)): body_of(200_000, number) for number in range(6)}
    s3.put_object(Bucket=bucket, Key="object", Body=body_of(200_000, 0))
    deadline = time.monotonic() + 30
    written, torn, overlapping = itertools.count(1), [], []

    def is_done():
        return len(overlapping) >= OVERLAPPING_READS or time.monotonic() > deadline

    def write():
        while not is_done():
            s3.put_object(Bucket=bucket, Key="object", Body=body_of(200_000, next(written) % 6))

    def check():
        while not is_done():
            answer = s3.get_object(Bucket=bucket, Key="object")
            first = answer["Body"].read(1)
            # After an overwrite, the rest of this version is read while its bytes are being deleted.
            is_replaced = s3.head_object(Bucket=bucket, Key="object")["ETag"] != answer["ETag"]
            if first + answer["Body"].read() != bodies[answer["ETag"]]:
                torn.append(answer["ETag"])
            elif is_replaced:
                overlapping.append(answer["ETag"])

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        for running in [pool.submit(work) for work in (write, check, check)]:
            running.result()
    assert not torn
    assert len(overlapping) >= OVERLAPPING_READS, "too few reads met an overwrite"


def test_disconnected_upload_leaves_the_old_object(s3, raw, bucket):
    s3.put_object(Bucket=bucket, Key="object", Body=b"old")
    target, headers, _ = raw.prepare("PUT", raw.path(bucket, "object"), headers={"Content-Length": "100000"})
    connection = raw.connect()
    raw.start(connection, "PUT", target, headers)
    connection.send(b"n" * 50_000)
    connection.close()
    assert read(s3, bucket, "object") == b"old"
    assert keys_of(s3, bucket) == ["object"]


def test_put_with_expect_gets_100_continue(raw, s3, bucket):
    body = body_of(10_000)
    target, headers, _ = raw.prepare("PUT", raw.path(bucket, "object"), headers={"Content-Length": str(len(body))})
    headers["Expect"] = "100-continue"
    connection = raw.connect()
    raw.start(connection, "PUT", target, headers)
    connection.sock.settimeout(10)
    assert connection.sock.recv(64, 2).startswith(b"HTTP/1.1 100")  # 2 is MSG_PEEK: http.client skips it itself
    connection.send(body)
    assert raw.finish(connection).status == 200
    assert read(s3, bucket, "object") == body


def test_the_operation_name_that_sdks_add_to_the_query_is_accepted(raw, s3, bucket):
    path = raw.path(bucket, "object")
    assert raw.request("PUT", path, query={"x-id": "PutObject"}, body=b"body").status == 200
    answer = raw.request("GET", path, query={"x-id": "GetObject"})
    assert (answer.status, answer.body) == (200, b"body")
