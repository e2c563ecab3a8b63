"""Buckets that keep equal content once: what lies on the backend, what is sent to it, and what operators see of it."""

import hashlib
import json

import pytest

import seaweed
from asking import command
from catalogs import PostgresCatalog
from facts import PART_BYTES_MIN, body_of, keys_of, multipart, read, refused
from polling import eventually
from rest import QUICK, settle, stored
from signing import UNSIGNED

BODY = body_of(70_000)
# Everything below is stored in this bucket, unless it is about the other.
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
    """Bytes that were sent to the backend so far."""
    return sum(value for name, value in server.metrics().items() if name.startswith("s3o_backend_ingress_bytes_total"))


def used(server):
    return sum(value for name, value in server.metrics().items() if name.startswith("s3o_quota_bytes_used"))


def saved(server, bucket=ONCE):
    """What the metric, the API and the command say alike."""
    shown = server.metrics()[f's3o_dedup_saved_bytes{{bucket="{bucket}"}}']
    status = json.loads(server.admin("GET", "/admin/api/status")[1])
    (told,) = [entry["saved"] for entry in status["buckets"] if entry["name"] == bucket]
    return shown if shown == told else None


def contents(server):
    return server.rows("SELECT id, ref_count FROM contents WHERE state = 'live' ORDER BY id")


def put_unsigned(server, key, body, bucket=ONCE):
    """A PUT whose body comes without a digest."""
    answer = server.raw().request("PUT", f"/{bucket}/{key}", body=body, payload_hash=UNSIGNED)
    assert answer.status == 200, answer
    return answer


def test_a_hash_that_is_signed_and_known_sends_no_byte_to_the_backend(server, s3):
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


def test_content_that_is_not_announced_is_kept_once_all_the_same(server, s3):
    for number in range(4):
        put_unsigned(server, f"key-{number}", BODY)
    settle(server)
    assert len(stored(server)) == 1 and used(server) == len(BODY)
    assert {read(s3, ONCE, key) for key in keys_of(s3, ONCE)} == {BODY}
    assert server.rows("SELECT ref_count FROM contents WHERE state = 'live'") == [(4,)]


def test_savings_are_shown(server, s3):
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


def test_two_objects_one_content(server, s3):
    """One goes and the bytes stay; the other goes and they go."""
    s3.put_object(Bucket=ONCE, Key="a", Body=BODY)
    s3.put_object(Bucket=ONCE, Key="b", Body=BODY)
    s3.delete_object(Bucket=ONCE, Key="a")
    settle(server)
    assert read(s3, ONCE, "b") == BODY and len(stored(server)) == 1
    s3.delete_object(Bucket=ONCE, Key="b")
    settle(server)
    assert stored(server) == set() and contents(server) == [] and used(server) == 0
    s3.put_object(Bucket=ONCE, Key="a", Body=BODY)
    assert read(s3, ONCE, "a") == BODY, "what comes again is stored again"
    settle(server)


def test_a_body_that_is_not_what_was_signed_changes_nothing(server, s3):
    s3.put_object(Bucket=ONCE, Key="a", Body=BODY)
    forged = bytes(len(BODY))
    answer = server.raw().request("PUT", f"/{ONCE}/b", body=forged, payload_hash=hashlib.sha256(BODY).hexdigest())
    assert (answer.status, b"XAmzContentSHA256Mismatch" in answer.body) == (400, True), answer
    with refused("404"):
        s3.head_object(Bucket=ONCE, Key="b")
    settle(server)
    assert server.rows("SELECT ref_count FROM contents WHERE state = 'live'") == [(1,)]


def test_buckets_do_not_share(server, s3):
    s3.put_object(Bucket=ONCE, Key="a", Body=BODY)
    for key in ("a", "b"):
        s3.put_object(Bucket=APART, Key=key, Body=BODY)
    settle(server)
    assert len(stored(server)) == 3


def test_empty_objects_are_one_content(server, s3):
    for key in ("a", "b", "c"):
        s3.put_object(Bucket=ONCE, Key=key, Body=b"")
    settle(server)
    assert len(contents(server)) == 1 and read(s3, ONCE, "b") == b""


def test_equal_parts_are_kept_once(server, s3):
    parts = [body_of(PART_BYTES_MIN, "part"), body_of(PART_BYTES_MIN, "part"), body_of(1000, "tail")]
    multipart(s3, ONCE, "one", parts)
    settle(server)
    once = PART_BYTES_MIN + 1000
    assert used(server) == once
    before = sent(server)
    multipart(s3, ONCE, "two", parts)
    assert sent(server) == before, "signed parts are known, too"
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


def test_a_setting_that_is_taken_back_harms_nothing(server, s3):
    for key in ("a", "b"):
        s3.put_object(Bucket=ONCE, Key=key, Body=BODY)
    assert server.stop() == 0
    server.config["buckets"][0]["dedup"] = False
    server.start()
    s3.put_object(Bucket=ONCE, Key="c", Body=BODY)
    settle(server)
    assert len(stored(server)) == 2, "from now on contents are kept apart"
    s3.delete_object(Bucket=ONCE, Key="a")
    settle(server)
    assert read(s3, ONCE, "b") == read(s3, ONCE, "c") == BODY
    assert server.stop() == 0
    server.config["buckets"][0]["dedup"] = True
    server.start()
    s3.put_object(Bucket=ONCE, Key="d", Body=BODY)
    settle(server)
    assert len(stored(server)) == 2 and read(s3, ONCE, "d") == BODY


def test_a_killed_server_lets_go_of_what_it_held(server, s3):
    """A pin outlives its process, and the next one lets go of it."""
    s3.put_object(Bucket=ONCE, Key="a", Body=BODY)
    raw = server.raw()
    length = {"Content-Length": str(len(BODY))}
    target, headers, _ = raw.prepare("PUT", f"/{ONCE}/b", None, length, hashlib.sha256(BODY).hexdigest())
    held = raw.connect()
    raw.start(held, "PUT", target, headers)
    held.send(BODY[:1000])
    eventually(lambda: server.rows("SELECT id FROM pending_objects WHERE kind = 'pin'"), message="nothing is pinned")
    s3.delete_object(Bucket=ONCE, Key="a")
    assert [count for _, count in contents(server)] == [1], "the pin keeps it"
    server.kill()
    held.close()
    server.start()
    settle(server)
    assert stored(server) == set() and contents(server) == []
