"""The audit trail: every change leaves its line with its request id, refusals of signatures too, reads leave none."""

import datetime
import json
import signal
import socket
import unicodedata

import pytest
import yaml

from facts import PART_BYTES_MIN, body_of, refused
from polling import eventually
from test_expiry import pass_away, put

AUDIT_FILE = "s3o-data/audit.jsonl"


def lines_of(server):
    """Every line of the file, each of which is whole."""
    path = server.folder / AUDIT_FILE
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def line_of(server, request_id):
    """The one line of a request, once it was written."""

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


def test_every_change_leaves_its_line(server):
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


def test_reads_leave_no_line(server):
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


def test_a_refused_change_leaves_its_line(server):
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


def spoil(headers):
    headers["Authorization"] = headers["Authorization"][:-4] + "0000"


def test_a_signature_that_does_not_hold_leaves_its_line(server):
    server.s3().create_bucket(Bucket="private")
    long_ago = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=2)
    attempts = [
        ("InvalidAccessKeyId", "nobody-key", lambda: server.raw("nobody").request("GET", "/private/object")),
        ("InvalidAccessKeyId", "nobody-key", lambda: server.raw("nobody").request("HEAD", "/private/object")),
        ("SignatureDoesNotMatch", "admin-key", lambda: server.raw().request("PUT", "/private/object", alter=spoil)),
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


def test_an_expired_url_leaves_its_line(server):
    url = server.s3().generate_presigned_url("get_object", {"Bucket": "private", "Key": "object"}, ExpiresIn=1)
    target = url.removeprefix(server.endpoint)

    def expired():
        answer = server.raw("anonymous").send("GET", target, {"Host": f"127.0.0.1:{server.port}"})
        return answer if answer.status == 403 else None

    answer = eventually(expired, 10, 0.2, "the URL does not expire")
    line = line_of(server, answer.headers["x-amz-request-id"])
    assert (line["event"], line["actor"], line["code"]) == ("s3.AuthFailure", "admin-key", "AccessDenied"), line
    assert "Signature" not in line["path"], line


def test_a_change_whose_client_left_leaves_its_line(server):
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

    (line,) = eventually(found, 10, message="no line for a client that left")
    assert (line["bucket"], line["key"]) == ("left", "object"), line
    assert line["status"] is None or line["status"] >= 400, line


def test_a_run_that_did_something_leaves_its_line(server):
    s3 = server.s3()
    s3.create_bucket(Bucket="worked")
    s3.put_object(Bucket="worked", Key="object", Body=b"bytes")
    s3.delete_object(Bucket="worked", Key="object")

    def runs():
        server.run_worker("cleanup")
        return [line for line in lines_of(server) if line["event"] == "worker.run" and line["worker"] == "cleanup"]

    line = eventually(runs, 10, 0.2, "no line for a run that cleaned up")[0]
    assert line["run_id"] and line["actor"] == "cleanup" and line["outcome"] == "ok", line
    assert sum(line["items"].values()) >= 1, line

    def asked():
        return [line for line in lines_of(server) if line["event"] == "admin.workers.run"]

    line = eventually(asked, 5, message="no line for whoever asked for the run")[0]
    assert line["actor"] == "admin" and line["name"] == "cleanup", line


def test_nothing_is_lost_at_a_stop(server):
    s3 = server.s3()
    s3.create_bucket(Bucket="stopped")
    ids = {id_of(s3.put_object(Bucket="stopped", Key=f"{number}", Body=b"x")) for number in range(50)}
    assert server.stop() == 0
    assert ids <= {line.get("request_id") for line in lines_of(server)}


def test_the_file_is_for_its_owner_alone(server):
    assert (server.folder / AUDIT_FILE).stat().st_mode & 0o777 == 0o600


def test_what_an_answered_run_did_is_in_the_file_whatever_comes_next(own_server):
    """The process is killed the moment that the report is there."""
    server = own_server(settings={"expiry": {"interval": "1h", "batch_size": 20}, "buckets": [{"name": "bucket"}]})
    for round_number in range(3):
        s3, keys = server.start().s3(), {f"{round_number}-{number}" for number in range(50)}
        for key in keys:
            put(s3, "bucket", key)
        pass_away(server, "bucket", *keys)
        report = server.run_worker("expiry")
        server.kill()
        lines = [line for line in lines_of(server) if line.get("run_id") == report["run_id"]]
        assert report["items"] == {"deleted": 50}
        assert {line["key"] for line in lines if line["event"] == "expiry.deleted"} == keys
        assert [line["items"] for line in lines if line["event"] == "worker.run"] == [report["items"]]


def test_authentication_failures_answered_with_400_leave_their_line(server):
    server.s3().create_bucket(Bucket="private")
    raw = server.raw()
    presigned = server.s3().generate_presigned_url("get_object", {"Bucket": "private", "Key": "object"})
    target = presigned.partition(f":{server.port}")[2]
    host = {"Host": f"127.0.0.1:{server.port}"}

    def authorization(value):
        return lambda headers: headers.update({"Authorization": value})

    attempts = [
        lambda: raw.request("GET", "/private/object", alter=authorization("AWS admin-key:signature")),
        lambda: raw.request("PUT", "/private/object", alter=authorization("AWS4-HMAC-SHA256 Credential=admin-key/x")),
        lambda: raw.request("GET", "/private/object", alter=lambda headers: headers.update({"x-amz-date": "2026111 T120000Z"})),
        lambda: raw.request("GET", "/private/object", headers={"x-amz-security-token": "token"}),
        lambda: raw.send("GET", target.replace("X-Amz-Expires=3600", "X-Amz-Expires=9999999"), host),
        lambda: raw.send("GET", target.replace("X-Amz-Date=", "X-Amz-Datum="), host),
    ]
    for attempt in attempts:
        answer = attempt()
        assert answer.status in (400, 403), answer
        line = line_of(server, answer.headers["x-amz-request-id"])
        assert (line["event"], line["status"], line["code"]) == ("s3.AuthFailure", answer.status, answer.code), line
        assert line["path"].startswith("/private"), line


def test_a_bad_request_with_a_good_signature_is_no_authentication_failure(server):
    server.s3().create_bucket(Bucket="private")
    for answer in (
        server.raw().request("GET", "/private/object", headers={"Range": "bytes=0-1"}),
        server.raw().request("GET", "/private", query={"max-keys": "-1"}),
        server.raw().request("GET", "/Not-A-Bucket/object"),
    ):
        assert answer.status in (400, 404), answer
    last = server.s3().put_object(Bucket="private", Key="object", Body=b"x")
    line_of(server, id_of(last))
    assert "s3.AuthFailure" not in {line["event"] for line in lines_of(server)}


DECEPTIVE = "a\u202eb\x1b[2J\x7f\u2066c\x9bd\u2028e"


def test_control_and_bidirectional_characters_are_escaped_in_the_audit_file(server):
    s3 = server.s3()
    s3.create_bucket(Bucket="audited")
    line = line_of(server, id_of(s3.put_object(Bucket="audited", Key=DECEPTIVE, Body=b"x")))
    assert line["key"] == DECEPTIVE
    text = (server.folder / AUDIT_FILE).read_text()
    assert r"a\u202eb\u001b[2J\u007f\u2066c\u009bd\u2028e" in text
    assert not [character for character in text if deceptive(character)]


def deceptive(character):
    """Whether a terminal would act on this character instead of showing it."""
    return character != "\n" and (unicodedata.category(character) in ("Cc", "Zl", "Zp") or character in "\u202e\u2066")


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_control_and_bidirectional_characters_are_escaped_in_the_log(own_server, log_format):
    server = own_server()
    server.spawn(arguments=("--log", "debug", "--log-format", log_format))
    eventually(server.is_ready, 30)
    s3 = server.s3()
    s3.create_bucket(Bucket="audited")
    s3.put_object(Bucket="audited", Key=DECEPTIVE, Body=b"x")
    s3.delete_object(Bucket="audited", Key=DECEPTIVE + "\nforged line")
    # The name of an unknown setting is logged as it stands in the file.
    server.config[DECEPTIVE + "\nforged line"] = 1
    server.config_path.write_text(yaml.safe_dump(server.config))
    server.process.send_signal(signal.SIGHUP)
    eventually(lambda: "is not a known setting" in server.log(), 10)
    assert server.stop() == 0
    text = server.log_path.read_bytes().decode("utf-8")
    assert not [character for character in text if deceptive(character)]
    assert "\nforged line" not in text
