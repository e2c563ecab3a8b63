"""The audit file: one line with the request ID for every change and every wrong signature, none for reads."""

import datetime
import json
import socket

import pytest

from expiry_client import expire, put
from polling import eventually
from s3_checks import PART_BYTES_MIN, body_of, refused

AUDIT_FILE = "s3o-data/audit.jsonl"


def lines_of(server):
    """Every line of the file; each must be complete JSON."""
    path = server.folder / AUDIT_FILE
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def line_of(server, request_id):
    """Waits for the one line of a request."""

    def found():
        return [line for line in lines_of(server) if line.get("request_id") == request_id]

    lines = eventually(found, 5, message=f"no audit line for {request_id}")
    assert len(lines) == 1, lines
    return lines[0]


def id_of(answer):
    return answer["ResponseMetadata"]["RequestId"]


@pytest.fixture
def server(own_server):
    return own_server().start()


def changes(s3):
    """Every mutating operation in an order in which each succeeds, as (operation, key, size, answer)."""
    bucket, source = "audited", {"Bucket": "audited", "Key": "a b/ü"}
    tags = {"TagSet": [{"Key": "a", "Value": "1"}]}
    yield "CreateBucket", None, None, s3.create_bucket(Bucket=bucket)
    yield "PutBucketTagging", None, None, s3.put_bucket_tagging(Bucket=bucket, Tagging=tags)
    yield "DeleteBucketTagging", None, None, s3.delete_bucket_tagging(Bucket=bucket)
    yield "PutBucketAcl", None, None, s3.put_bucket_acl(Bucket=bucket, ACL="private")
    yield "PutObject", "a b/ü", 5, s3.put_object(Bucket=bucket, Key="a b/ü", Body=b"bytes")
    yield "PutObjectTagging", "a b/ü", None, s3.put_object_tagging(Bucket=bucket, Key="a b/ü", Tagging=tags)
    yield "DeleteObjectTagging", "a b/ü", None, s3.delete_object_tagging(Bucket=bucket, Key="a b/ü")
    yield "PutObjectAcl", "a b/ü", None, s3.put_object_acl(Bucket=bucket, Key="a b/ü", ACL="private")
    yield "CopyObject", "copy", None, s3.copy_object(Bucket=bucket, Key="copy", CopySource=source)
    created = s3.create_multipart_upload(Bucket=bucket, Key="joined")
    yield "CreateMultipartUpload", "joined", None, created
    upload = {"Bucket": bucket, "Key": "joined", "UploadId": created["UploadId"]}
    part = body_of(PART_BYTES_MIN)
    first = s3.upload_part(**upload, PartNumber=1, Body=part)
    yield "UploadPart", "joined", len(part), first
    second = s3.upload_part_copy(**upload, PartNumber=2, CopySource=source)
    yield "UploadPartCopy", "joined", None, second
    parts = [
        {"PartNumber": 1, "ETag": first["ETag"]},
        {"PartNumber": 2, "ETag": second["CopyPartResult"]["ETag"]},
    ]
    completed = s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
    yield "CompleteMultipartUpload", "joined", None, completed
    upload["UploadId"] = s3.create_multipart_upload(Bucket=bucket, Key="joined")["UploadId"]
    yield "AbortMultipartUpload", "joined", None, s3.abort_multipart_upload(**upload)
    yield "DeleteObject", "joined", None, s3.delete_object(Bucket=bucket, Key="joined")
    both = {"Objects": [{"Key": "a b/ü"}, {"Key": "copy"}]}
    yield "DeleteObjects", None, None, s3.delete_objects(Bucket=bucket, Delete=both)
    yield "DeleteBucket", None, None, s3.delete_bucket(Bucket=bucket)


def test_every_change_is_audited(server):
    for operation, key, size_bytes, answer in changes(server.s3()):
        line = line_of(server, id_of(answer))
        assert line["event"] == f"s3.{operation}", line
        assert line["actor"] == "admin-key", line
        assert line["bucket"] == "audited", line
        assert line.get("key") == key, line
        assert line["status"] == answer["ResponseMetadata"]["HTTPStatusCode"], line
        assert line.get("size_bytes") == size_bytes, line
        when = datetime.datetime.fromisoformat(line["time"])
        age = datetime.datetime.now(datetime.timezone.utc) - when
        assert abs(age.total_seconds()) < 60, line
        if operation == "DeleteObjects":
            assert line["keys"] == ["a b/ü", "copy"], line
    assert server.metrics()["s3o_audit_dropped_total"] == 0


def test_reads_are_not_audited(server):
    s3 = server.s3()
    s3.create_bucket(Bucket="read")
    s3.put_object(Bucket="read", Key="object", Body=b"bytes")
    eventually(lambda: len(lines_of(server)) == 2, 5)
    s3.get_object(Bucket="read", Key="object")["Body"].read()
    s3.head_object(Bucket="read", Key="object")
    s3.list_objects_v2(Bucket="read")
    s3.list_buckets()
    s3.get_object_tagging(Bucket="read", Key="object")
    with refused("NoSuchKey", 404):
        s3.get_object(Bucket="read", Key="nothing")
    last = s3.delete_object(Bucket="read", Key="object")
    line_of(server, id_of(last))
    events = [line["event"] for line in lines_of(server) if line["event"].startswith("s3.")]
    assert events == ["s3.CreateBucket", "s3.PutObject", "s3.DeleteObject"]


def test_refused_changes_are_audited(server):
    server.s3().create_bucket(Bucket="granted-x")
    with refused("AccessDenied", 403) as caught:
        server.s3("reader").put_object(Bucket="granted-x", Key="object", Body=b"x")
    line = line_of(server, id_of(caught.value.response))
    assert (line["event"], line["actor"]) == ("s3.PutObject", "reader-key"), line
    assert (line["status"], line["code"]) == (403, "AccessDenied"), line
    with refused("NoSuchBucket", 404) as caught:
        server.s3().put_object(Bucket="nowhere", Key="object", Body=b"x")
    line = line_of(server, id_of(caught.value.response))
    assert (line["status"], line["code"], line["bucket"]) == (404, "NoSuchBucket", "nowhere"), line


def break_signature(headers):
    headers["Authorization"] = headers["Authorization"][:-4] + "0000"


def test_wrong_signatures_are_audited(server):
    server.s3().create_bucket(Bucket="private")
    long_ago = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=2)
    attempts = [
        ("InvalidAccessKeyId", "unknown-key", lambda: server.raw("unknown").request("GET", "/private/object")),
        ("InvalidAccessKeyId", "unknown-key", lambda: server.raw("unknown").request("HEAD", "/private/object")),
        ("SignatureDoesNotMatch", "admin-key", lambda: server.raw().request("PUT", "/private/object", alter=break_signature)),
        ("RequestTimeTooSkewed", "admin-key", lambda: server.raw().request("GET", "/private", when=long_ago)),
        ("AccessDenied", "anonymous", lambda: server.raw("anonymous").request("DELETE", "/private/object")),
        ("AccessDenied", "anonymous", lambda: server.raw("anonymous").request("GET", "/private/object")),
    ]
    for code, actor, attempt in attempts:
        answer = attempt()
        assert (answer.status, answer.code or code) == (403, code)
        line = line_of(server, answer.headers["x-amz-request-id"])
        assert (line["event"], line["actor"], line["code"]) == ("s3.AuthFailure", actor, code), line
        assert line["path"].startswith("/private"), line


def test_expired_presigned_urls_are_audited(server):
    url = server.s3().generate_presigned_url("get_object", {"Bucket": "private", "Key": "object"}, ExpiresIn=1)
    target = url.removeprefix(server.endpoint)

    def expired():
        answer = server.raw("anonymous").send("GET", target, {"Host": f"127.0.0.1:{server.port}"})
        return answer if answer.status == 403 else None

    answer = eventually(expired, 10, 0.2, "the URL does not expire")
    line = line_of(server, answer.headers["x-amz-request-id"])
    assert (line["event"], line["actor"], line["code"]) == ("s3.AuthFailure", "admin-key", "AccessDenied"), line
    assert "Signature" not in line["path"], line


def test_changes_of_disconnected_clients_are_audited(server):
    server.s3().create_bucket(Bucket="left")
    raw = server.raw()
    target, headers, _ = raw.prepare("PUT", "/left/object", headers={"Content-Length": "100000"})
    connection = raw.connect()
    raw.start(connection, "PUT", target, headers)
    connection.send(b"x" * 50_000)
    eventually(lambda: server.rows("SELECT 1 FROM pending_objects"), 10, message="the upload has no intent")
    connection.sock.shutdown(socket.SHUT_RDWR)
    connection.close()

    def found():
        return [line for line in lines_of(server) if line["event"] == "s3.PutObject"]

    (line,) = eventually(found, 10, message="no line for a disconnected client")
    assert (line["bucket"], line["key"]) == ("left", "object"), line
    assert line["status"] is None or line["status"] >= 400, line


def test_worker_runs_with_items_are_audited(server):
    s3 = server.s3()
    s3.create_bucket(Bucket="worked")
    s3.put_object(Bucket="worked", Key="object", Body=b"bytes")
    s3.delete_object(Bucket="worked", Key="object")

    def runs():
        server.run_worker("cleanup")
        return [line for line in lines_of(server) if line["event"] == "worker.run" and line["worker"] == "cleanup"]

    line = eventually(runs, 10, 0.2, "no line for a run with items")[0]
    assert line["run_id"] and line["actor"] == "cleanup" and line["outcome"] == "ok", line
    assert sum(line["items"].values()) >= 1, line

    def asked():
        return [line for line in lines_of(server) if line["event"] == "admin.workers.run"]

    line = eventually(asked, 5, message="no line for the admin call that ran the worker")[0]
    assert line["actor"] == "admin" and line["name"] == "cleanup", line


def test_no_audit_line_is_lost_at_a_stop(server):
    s3 = server.s3()
    s3.create_bucket(Bucket="stopped")
    ids = {id_of(s3.put_object(Bucket="stopped", Key=f"{number}", Body=b"x")) for number in range(50)}
    assert server.stop() == 0
    assert ids <= {line.get("request_id") for line in lines_of(server)}


def test_audit_file_is_readable_by_its_owner_only(server):
    assert (server.folder / AUDIT_FILE).stat().st_mode & 0o777 == 0o600


def test_audit_lines_of_an_answered_run_survive_a_kill(own_server):
    """The process is killed as soon as the report of the run is answered."""
    server = own_server(settings={"expiry": {"interval": "1h", "batch_size": 20}, "buckets": [{"name": "bucket"}]})
    for round_number in range(3):
        s3, keys = server.start().s3(), {f"{round_number}-{number}" for number in range(50)}
        for key in keys:
            put(s3, "bucket", key)
        expire(server, "bucket", *keys)
        report = server.run_worker("expiry")
        server.kill()
        lines = [line for line in lines_of(server) if line.get("run_id") == report["run_id"]]
        assert report["items"] == {"deleted": 50}
        assert {line["key"] for line in lines if line["event"] == "expiry.deleted"} == keys
        assert [line["items"] for line in lines if line["event"] == "worker.run"] == [report["items"]]
