"""The expiry worker: deletion of expired objects and their bytes."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

import seaweed
from admin_client import command
from catalogs import PostgresCatalog
from clients import Aws
from expiry_client import SETTINGS, expire, expiry_headers, put, seconds_ahead
from polling import eventually
from s3_checks import (
    keys_of,
    multipart,
    read,
    refused,
)
from settled_state import assert_stored_is_located, settle, stored
from test_maintenance_workers import audited, run, status

pytestmark = pytest.mark.usefixtures("s3o_only")


@pytest.fixture(params=["fs", "s3", "postgres"])
def manual_server(request, own_server):
    """A server whose expiry worker only runs manually."""
    backend = seaweed.fresh_bucket() if request.param == "s3" else None
    catalog = PostgresCatalog() if request.param == "postgres" else None
    return own_server(settings=SETTINGS, backend=backend, catalog=catalog).start()


def wait_for_deleted_bytes(server):
    eventually(lambda: not stored(server), 30, message="bytes of expired objects are still stored")


def counts(server):
    return [row[0] for row in server.database.rows("SELECT ref_count FROM contents WHERE state = 'live'")]


def test_default_ttl_applies_to_objects_of_the_bucket(manual_server):
    s3 = manual_server.s3()
    assert 7000 < seconds_ahead(s3.put_object(Bucket="brief", Key="a", Body=b"body")) <= 7200
    assert 7000 < seconds_ahead(multipart(s3, "brief", "joined", [b"only"])) <= 7200
    copy = {"Bucket": "brief", "Key": "copy", "CopySource": {"Bucket": "brief", "Key": "a"}}
    assert 7000 < seconds_ahead(s3.copy_object(**copy)) <= 7200
    assert seconds_ahead(put(s3, "brief", "own", after="1h")) <= 3600
    assert "Expiration" not in s3.copy_object(**{**copy, "Bucket": "bucket"})


def test_shared_bytes_are_deleted_with_the_last_object(manual_server):
    s3 = manual_server.s3()
    put(s3, "bucket", "first")
    with expiry_headers(s3, x_s3o_expires_after="1h"):
        s3.copy_object(Bucket="bucket", Key="second", CopySource={"Bucket": "bucket", "Key": "first"})
    assert counts(manual_server) == [2] and len(stored(manual_server)) == 1
    expire(manual_server, "bucket", "first")
    assert run(manual_server, "expiry") == {"deleted": 1}
    assert read(s3, "bucket", "second") == b"body" and counts(manual_server) == [1]
    expire(manual_server, "bucket", "second")
    assert run(manual_server, "expiry") == {"deleted": 1} and counts(manual_server) == []
    wait_for_deleted_bytes(manual_server)
    lines = audited(manual_server, "expiry.deleted")
    assert sorted((line["bucket"], line["key"], line["size_bytes"]) for line in lines) == [
        ("bucket", "first", 4),
        ("bucket", "second", 4),
    ]
    assert all(line["run_id"] for line in lines)
    assert manual_server.metrics()['s3o_worker_items_total{worker="expiry",outcome="deleted"}'] == 2
    assert run(manual_server, "expiry") == {}
    settle(manual_server)
    assert_stored_is_located(manual_server)


def claimed(server):
    """Sorted keys of objects that a worker has claimed."""
    return [
        row[0]
        for row in server.database.rows(
            "SELECT key FROM objects WHERE deletion_status = 'DELETION_IN_PROGRESS' AND token IS NOT NULL ORDER BY key"
        )
    ]


def kill_after_claiming(server, *keys):
    """A worker claims expired objects, and the process is killed before it deletes any."""
    references = counts(server)
    with server.database.blocked_releases(), ThreadPoolExecutor() as pool:
        run = pool.submit(command, server, "workers", "run", "expiry", "--json")
        eventually(lambda: claimed(server) == sorted(keys), 30, 0.02, "no object was claimed")
        assert not run.done(), "the transaction was not blocked"
        server.kill()
        assert run.result().returncode != 0, "the run must not be reported as done"
    assert claimed(server) == sorted(keys) and counts(server) == references, "the claims must remain after the kill"
    server.start()


def test_claims_of_a_killed_worker_are_deleted_by_the_next_run(manual_server):
    s3 = manual_server.s3()
    for key in ("a", "b"):
        put(s3, "bucket", key)
    s3.put_object(Bucket="bucket", Key="stays", Body=b"stays")
    expire(manual_server, "bucket", "a", "b")
    kill_after_claiming(manual_server, "a", "b")

    def hidden():
        for key in ("a", "b"):
            with refused("NoSuchKey", 404):
                s3.get_object(Bucket="bucket", Key=key)
        return keys_of(s3, "bucket") == ["stays"]

    assert hidden() and run(manual_server, "expiry") == {}, "another worker holds the claims"
    eventually(lambda: run(manual_server, "watchdog") == {"stuck_reset": 2}, 30, 0.2, "the claims were not reset")
    assert hidden(), "a reset makes nothing readable"
    reset = audited(manual_server, "expiry.stuck_reset")
    assert sorted((line["bucket"], line["key"]) for line in reset) == [("bucket", "a"), ("bucket", "b")]
    assert run(manual_server, "expiry") == {"deleted": 2}
    assert hidden() and read(s3, "bucket", "stays") == b"stays"
    eventually(lambda: len(stored(manual_server)) == 1, 30, message="bytes of expired objects are still stored")
    settle(manual_server)
    assert_stored_is_located(manual_server)


def test_object_rewritten_between_selection_and_deletion_survives(manual_server):
    s3 = manual_server.s3()
    for key in ("copied", "gone", "put"):
        put(s3, "bucket", key)
    expire(manual_server, "bucket", "copied", "gone", "put")
    kill_after_claiming(manual_server, "copied", "gone", "put")
    s3.put_object(Bucket="bucket", Key="put", Body=b"new")
    s3.copy_object(Bucket="bucket", Key="copied", CopySource={"Bucket": "bucket", "Key": "put"})
    eventually(lambda: run(manual_server, "watchdog") == {"stuck_reset": 1}, 30, 0.2, "the claims were not reset")
    assert run(manual_server, "expiry") == {"deleted": 1}
    assert keys_of(s3, "bucket") == ["copied", "put"] and read(s3, "bucket", "copied") == b"new"
    settle(manual_server)
    assert_stored_is_located(manual_server)


def test_due_expirations_are_shown_in_metrics_and_status(manual_server):
    s3 = manual_server.s3()
    put(s3, "bucket", "expiring")
    s3.put_object(Bucket="bucket", Key="stays", Body=b"stays")
    expire(manual_server, "bucket", "expiring")
    age = 's3o_oldest_due_seconds{queue="expiry"}'
    eventually(lambda: manual_server.metrics()[age] > 0, 10, message="it is not due")
    seen = status(manual_server)
    assert seen["queues"]["oldest_due_seconds"]["expiry"] > 0
    assert {worker["name"]: worker["kind"] for worker in seen["workers"]}["expiry"] == "shared"
    counted = {bucket["name"]: (bucket["objects"], bucket["bytes"]) for bucket in seen["buckets"]}
    assert counted["bucket"] == (1, 5), "expired objects are not counted"
    assert run(manual_server, "expiry") == {"deleted": 1}
    assert manual_server.metrics()[age] == 0
    eventually(lambda: len(stored(manual_server)) == 1, 30, message="bytes of expired objects are still stored")


class Api(Aws):
    """The aws cli, one operation at a time."""

    def options(self):
        return ["--endpoint-url", self.server.endpoint, "--output", "json", "s3api"]


def test_expired_objects_are_deleted_on_schedule(own_server, tmp_path):
    server = own_server(settings={**SETTINGS, "expiry": {"interval": "100ms"}}).start()
    s3 = server.s3()
    for number in range(30):
        put(s3, "bucket", f"{number:02}", after="2s")
    put(s3, "brief", "lasting")
    shown = json.loads(Api(server, tmp_path).run("head-object", "--bucket", "brief", "--key", "lasting"))
    assert shown["Expiration"].endswith('rule-id="expires-at"')
    eventually(lambda: len(stored(server)) == 1, 30, message="bytes of expired objects are still stored")
    assert len(audited(server, "expiry.deleted")) == 30


def test_instances_share_a_backlog(instances):
    one, other = instances(2, settings={"expiry": {"interval": "50ms", "batch_size": 7}})
    s3 = one.s3()
    for number in range(100):
        put(s3, "bucket", f"{number:03}", after="1s")
    eventually(lambda: not stored(one), 60, message="bytes of expired objects are still stored")
    lines = [line["key"] for server in (one, other) for line in audited(server, "expiry.deleted")]
    assert sorted(lines) == [f"{number:03}" for number in range(100)], "each object is deleted once"
    settle(one)
    assert_stored_is_located(one)
