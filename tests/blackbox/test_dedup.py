"""Buckets with dedup: what is stored on the backend, what is sent to it, and the savings that operators see."""

import hashlib
import json

import pytest

import seaweed
from admin_client import command
from catalogs import PostgresCatalog
from polling import eventually
from s3_checks import PART_BYTES_MIN, body_of, keys_of, multipart, read, refused
from settled_state import QUICK, settle, stored
from signing import UNSIGNED

BODY = body_of(70_000)
# The bucket of all tests, except those about the other.
ONCE, APART = "once", "apart"


@pytest.fixture(params=["fs", "s3", "postgres"])
def server(request, own_server):
    backend = seaweed.fresh_bucket() if request.param == "s3" else None
    catalog = PostgresCatalog() if request.param == "postgres" else None
    buckets = [{"name": ONCE, "dedup": True}, {"name": APART, "dedup": False}]
    return own_server(backend=backend, catalog=catalog, settings={**QUICK, "buckets": buckets}).start()


@pytest.fixture
def s3(server):
    return server.s3()


def sent(server):
    """Number of bytes sent to the backend so far."""
    return sum(value for name, value in server.metrics().items() if name.startswith("s3o_backend_ingress_bytes_total"))


def used(server):
    return sum(value for name, value in server.metrics().items() if name.startswith("s3o_quota_bytes_used"))


def saved(server, bucket=ONCE):
    """Saved bytes, if metric and API agree."""
    shown = server.metrics()[f's3o_dedup_saved_bytes{{bucket="{bucket}"}}']
    status = json.loads(server.admin("GET", "/admin/api/status")[1])
    (in_status,) = [entry["saved"] for entry in status["buckets"] if entry["name"] == bucket]
    return shown if shown == in_status else None


def contents(server):
    return server.rows("SELECT id, ref_count FROM contents WHERE state = 'live' ORDER BY id")


def put_unsigned(server, key, body, bucket=ONCE):
    """A PUT without a payload digest."""
    answer = server.raw().request("PUT", f"/{bucket}/{key}", body=body, payload_hash=UNSIGNED)
    assert answer.status == 200, answer
    return answer


def test_known_signed_hash_sends_no_byte_to_the_backend(server, s3):
    s3.put_object(Bucket=ONCE, Key="first", Body=BODY)
    before, there = sent(server), stored(server)
    assert before >= len(BODY)
    for number in range(5):
        answer = s3.put_object(Bucket=ONCE, Key=f"again/{number}", Body=BODY, Metadata={"number": str(number)})
        assert answer["ETag"] == f'"{hashlib.md5(BODY).hexdigest()}"'
    s3.put_object(Bucket=ONCE, Key="first", Body=BODY)
    assert sent(server) == before, "nothing was written there"
    assert stored(server) == there
    assert contents(server)[0][1] == 6 and len(contents(server)) == 1
    assert read(s3, ONCE, "again/3") == BODY
    assert s3.head_object(Bucket=ONCE, Key="again/3")["Metadata"] == {"number": "3"}
    settle(server)


def test_body_without_signed_hash_is_stored_once(server, s3):
    for number in range(4):
        put_unsigned(server, f"key-{number}", BODY)
    settle(server)
    assert len(stored(server)) == 1 and used(server) == len(BODY)
    assert {read(s3, ONCE, key) for key in keys_of(s3, ONCE)} == {BODY}
    assert server.rows("SELECT ref_count FROM contents WHERE state = 'live'") == [(4,)]


def test_saved_bytes_are_exported(server, s3):
    for key in ("a", "b", "c"):
        s3.put_object(Bucket=ONCE, Key=key, Body=BODY)
        s3.put_object(Bucket=APART, Key=key, Body=BODY)
    s3.put_object(Bucket=ONCE, Key="other", Body=body_of(500, "other"))
    eventually(lambda: saved(server) == 2 * len(BODY), message="the savings are not shown")
    assert saved(server, APART) == 0
    done = command(server, "status")
    assert done.returncode == 0 and "SAVED" in done.stdout and "136.7 KiB" in done.stdout, done.stdout
    settle(server)
    assert used(server) == 4 * len(BODY) + 500


def test_shared_bytes_are_deleted_with_the_last_object(server, s3):
    """Deleting one object keeps the bytes; deleting the other deletes them."""
    s3.put_object(Bucket=ONCE, Key="a", Body=BODY)
    s3.put_object(Bucket=ONCE, Key="b", Body=BODY)
    s3.delete_object(Bucket=ONCE, Key="a")
    settle(server)
    assert read(s3, ONCE, "b") == BODY and len(stored(server)) == 1
    s3.delete_object(Bucket=ONCE, Key="b")
    settle(server)
    assert stored(server) == set() and contents(server) == [] and used(server) == 0
    s3.put_object(Bucket=ONCE, Key="a", Body=BODY)
    assert read(s3, ONCE, "a") == BODY, "a new upload is stored again"
    settle(server)


def test_body_that_differs_from_its_signed_hash_changes_nothing(server, s3):
    s3.put_object(Bucket=ONCE, Key="a", Body=BODY)
    forged = bytes(len(BODY))
    answer = server.raw().request("PUT", f"/{ONCE}/b", body=forged, payload_hash=hashlib.sha256(BODY).hexdigest())
    assert (answer.status, b"XAmzContentSHA256Mismatch" in answer.body) == (400, True), answer
    with refused("404"):
        s3.head_object(Bucket=ONCE, Key="b")
    settle(server)
    assert server.rows("SELECT ref_count FROM contents WHERE state = 'live'") == [(1,)]


def test_buckets_do_not_share_content(server, s3):
    s3.put_object(Bucket=ONCE, Key="a", Body=BODY)
    for key in ("a", "b"):
        s3.put_object(Bucket=APART, Key=key, Body=BODY)
    settle(server)
    assert len(stored(server)) == 3


def test_empty_objects_share_one_content(server, s3):
    for key in ("a", "b", "c"):
        s3.put_object(Bucket=ONCE, Key=key, Body=b"")
    settle(server)
    assert len(contents(server)) == 1 and read(s3, ONCE, "b") == b""


def test_equal_parts_are_stored_once(server, s3):
    parts = [body_of(PART_BYTES_MIN, "part"), body_of(PART_BYTES_MIN, "part"), body_of(1000, "tail")]
    multipart(s3, ONCE, "one", parts)
    settle(server)
    once = PART_BYTES_MIN + 1000
    assert used(server) == once
    before = sent(server)
    multipart(s3, ONCE, "two", parts)
    assert sent(server) == before, "signed parts are deduplicated, too"
    settle(server)
    assert used(server) == once
    eventually(lambda: saved(server) == 3 * PART_BYTES_MIN + 1000)
    assert read(s3, ONCE, "one") == read(s3, ONCE, "two") == b"".join(parts)
    s3.delete_object(Bucket=ONCE, Key="one")
    settle(server)
    assert read(s3, ONCE, "two") == b"".join(parts)
    s3.delete_object(Bucket=ONCE, Key="two")
    settle(server)
    assert stored(server) == set()


def test_switching_dedup_off_keeps_shared_content(server, s3):
    for key in ("a", "b"):
        s3.put_object(Bucket=ONCE, Key=key, Body=BODY)
    assert server.stop() == 0
    server.config["buckets"][0]["dedup"] = False
    server.start()
    s3.put_object(Bucket=ONCE, Key="c", Body=BODY)
    settle(server)
    assert len(stored(server)) == 2, "new content is stored separately"
    s3.delete_object(Bucket=ONCE, Key="a")
    settle(server)
    assert read(s3, ONCE, "b") == read(s3, ONCE, "c") == BODY
    assert server.stop() == 0
    server.config["buckets"][0]["dedup"] = True
    server.start()
    s3.put_object(Bucket=ONCE, Key="d", Body=BODY)
    settle(server)
    assert len(stored(server)) == 2 and read(s3, ONCE, "d") == BODY


def test_pin_of_a_killed_server_is_released(server, s3):
    """A pin survives its process, and the next process releases it."""
    s3.put_object(Bucket=ONCE, Key="a", Body=BODY)
    raw = server.raw()
    length = {"Content-Length": str(len(BODY))}
    target, headers, _ = raw.prepare("PUT", f"/{ONCE}/b", None, length, hashlib.sha256(BODY).hexdigest())
    held = raw.connect()
    raw.start(held, "PUT", target, headers)
    held.send(BODY[:1000])
    eventually(lambda: server.rows("SELECT id FROM pending_objects WHERE kind = 'pin'"), message="nothing is pinned")
    s3.delete_object(Bucket=ONCE, Key="a")
    assert [count for _, count in contents(server)] == [1], "the pin keeps the content"
    server.kill()
    held.close()
    server.start()
    settle(server)
    assert stored(server) == set() and contents(server) == []
