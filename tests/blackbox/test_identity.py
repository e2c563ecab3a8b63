"""A store that is not the one that the catalog knows: frozen before the first write, for the instance that sees it."""

import json
import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import seaweed
from asking import command
from facts import body_of, keys_of, read
from polling import eventually
from rest import QUICK, settle

pytestmark = [pytest.mark.alone, pytest.mark.timeout(150)]

FOUND_SECONDS = 30


def health(server, name="disk"):
    """What the status shows of a backend."""
    status, body = server.admin("GET", "/admin/api/status")
    assert status == 200
    return next(backend for backend in json.loads(body)["backends"] if backend["name"] == name)


def is_frozen(server, name="disk"):
    return health(server, name)["frozen"]


def everything_below(root):
    """Every file with its bytes."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def exchange(root, other):
    """Another folder takes the place of the root, which is put aside."""
    aside = root.with_name(f"aside-{time.monotonic_ns()}")
    os.rename(root, aside)
    os.rename(other, root)
    return aside


def put(server, key, status=200):
    answer = server.raw().request("PUT", f"/bucket/{key}", body=body_of(1000, key))
    assert answer.status == status, answer


def stored(own_server, count=3, **options):
    server = own_server(**options).start()
    server.s3().create_bucket(Bucket="bucket")
    for number in range(count):
        put(server, f"kept-{number}")
    return server


def clone(server, name="clone"):
    return shutil.copytree(server.root, server.root.with_name(name))


def a_stale_clone(server):
    copy = clone(server)
    assert server.run_worker("identity")["items"] == {"raised": 1}
    return copy


def a_clone_younger_than_the_last_raise(server):
    assert server.run_worker("identity")["items"] == {"raised": 1}
    copy = clone(server)
    put(server, "newest")
    return copy


def a_bare_mount_point(server):
    bare = server.root.with_name("bare")
    bare.mkdir()
    return bare


@pytest.mark.parametrize("moment", ["while it runs", "before it starts"])
@pytest.mark.parametrize("make", [a_stale_clone, a_clone_younger_than_the_last_raise, a_bare_mount_point])
def test_another_disk_is_frozen_before_the_first_write(own_server, make, moment):
    server = stored(own_server, settings=QUICK)
    other = make(server)
    server.s3().delete_object(Bucket="bucket", Key="kept-0")
    before = everything_below(other)
    if moment == "before it starts":
        server.stop()
    aside = exchange(server.root, other)
    if moment == "before it starts":
        server.start()
    put(server, "new", 503)
    eventually(lambda: is_frozen(server), FOUND_SECONDS, 0.1, "it is not frozen")
    put(server, "new", 503)
    server.run_worker("cleanup")
    server.run_worker("identity")
    assert everything_below(server.root) == before, "something was written or deleted there"

    # The right disk is back: everything goes on by itself.
    exchange(server.root, aside)
    eventually(lambda: not is_frozen(server), FOUND_SECONDS, 0.1, "it stays frozen")
    eventually(lambda: server.raw().request("PUT", "/bucket/new", body=b"x").status == 200, FOUND_SECONDS, 0.1)
    assert read(server.s3(), "bucket", "kept-1") == body_of(1000, "kept-1")
    settle(server)


def test_another_bucket_is_frozen_before_the_first_write(own_server):
    right, wrong = seaweed.fresh_bucket(), seaweed.fresh_bucket()
    server = stored(own_server, backend=right, settings=QUICK)
    server.stop()
    server.config["backends"][0]["bucket"] = wrong["bucket"]
    server.start()
    eventually(lambda: is_frozen(server, "store"), FOUND_SECONDS, 0.1, "it is not frozen")
    put(server, "new", 503)
    store = seaweed.connect(wrong["endpoint"], wrong["access_key_id"], wrong["secret_access_key"])
    assert "Contents" not in store.list_objects_v2(Bucket=wrong["bucket"])


def test_an_instance_with_a_wrong_root_disturbs_no_other(instances):
    one, other = instances(2)
    for number in range(50):
        put(one, f"kept-{number}")
    failures, stop = [], threading.Event()

    def load(worker):
        raw, number = one.raw(), 0
        while not stop.is_set():
            key = f"load-{worker}-{number % 20}"
            answers = [
                raw.request("PUT", f"/bucket/{key}", body=body_of(2000, number)),
                raw.request("GET", f"/bucket/{key}"),
                raw.request("GET", f"/bucket/kept-{number % 50}"),
            ]
            failures.extend(answer for answer in answers if answer.status != 200)
            number += 1

    with ThreadPoolExecutor(4) as pool:
        clients = [pool.submit(load, worker) for worker in range(4)]
        try:
            wrong = other.root.with_name("wrong")
            wrong.mkdir()
            other.kill()
            other.config["backends"] = [{"name": "disk", "kind": "fs", "root": str(wrong)}]
            other.start()
            eventually(lambda: is_frozen(other), FOUND_SECONDS, 0.1, "it is not frozen")
            records = one.rows("SELECT reason FROM identity_records")
            assert records and records[0][0], records

            # Whatever is deleted from now on stays in the queue, and on the disk.
            files = {name for name in one.files() if "/kept-" in name}
            for number in range(0, 50, 2):
                answer = one.raw().request("DELETE", f"/bucket/kept-{number}")
                assert answer.status in (200, 204), answer
            put(other, "new", 503)
            for _ in range(3):
                one.run_worker("cleanup")
                other.run_worker("cleanup")
            assert {name for name in one.files() if "/kept-" in name} == files, "something was deleted"
            assert not list(wrong.iterdir()), "something was written to the wrong root"
            assert not is_frozen(one)

            # Nothing is accepted while the instances disagree.
            hash_found = json.loads(other.admin("POST", "/admin/api/backends/disk/accept")[1])["hash"]
            seen = "SELECT count(*) FROM identity_records"
            eventually(lambda: one.rows(seen)[0][0] == 2, 60, 0.2, "the first instance does not say what it sees")
            assert command(other, "backend", "accept", "disk", "--found", hash_found).returncode == 1

            other.stop()
            other.config["backends"] = one.config["backends"]
            other.start()
            eventually(lambda: not is_frozen(other), FOUND_SECONDS, 0.1, "it stays frozen")
            open_records = "SELECT count(*) FROM identity_records WHERE reason IS NOT NULL"
            assert one.rows(open_records)[0][0] == 0, "the record is still open"
            time.sleep(1)
        finally:
            stop.set()
        for client in clients:
            client.result(60)
    failures = [answer for answer in failures if not (answer.status == 404 and answer.code == "NoSuchKey")]
    assert not failures, failures[:5]
    settle(one)
    assert not any(f"/kept-{number}~" in name for name in one.files() for number in range(0, 50, 2))
    put(other, "new")


def test_what_was_shown_is_accepted_and_old_deletes_become_findings(own_server):
    server = stored(own_server, settings=QUICK)
    server.run_worker("cleanup")
    server.admin("POST", "/admin/api/workers/cleanup/pause")
    server.s3().delete_object(Bucket="bucket", Key="kept-0")
    server.stop()
    exchange(server.root, a_bare_mount_point(server))
    server.start()
    shown = command(server, "backend", "accept", "disk", "--json")
    view = json.loads(shown.stdout)
    assert shown.returncode == 1 and view["found"] is None and view["queued_deletes"] == 1, view
    assert len(view["newest_missing"]) == 2, view
    assert is_frozen(server) and not list(server.root.iterdir())
    assert command(server, "backend", "accept", "disk", "--found", "0" * 16).returncode == 1
    accepted = command(server, "backend", "accept", "disk", "--found", view["hash"])
    assert accepted.returncode == 0, accepted
    assert not is_frozen(server)
    server.admin("POST", "/admin/api/workers/cleanup/resume")
    eventually(lambda: not server.rows("SELECT 1 FROM cleanup_queue"), 20, 0.1, "the old delete still waits")
    found = server.rows("SELECT kind, detail FROM findings")
    assert found == [("absent_after_accept", "absent after accept")], found
    server.stop()
    server.start()
    assert not is_frozen(server), "what was accepted is accepted"
    put(server, "new")


def test_deletes_begin_some_time_after_a_start(own_server):
    server = stored(own_server, settings={**QUICK, "identity": {"delete_delay": "6s"}})
    server.stop()
    server.start()
    began = time.monotonic()
    server.s3().delete_object(Bucket="bucket", Key="kept-0")
    assert len(server.files()) == 3
    eventually(lambda: len(server.files()) == 2, FOUND_SECONDS, 0.1, "deletes never begin")
    assert time.monotonic() - began > 3, "deletes began at once"


def test_a_restored_catalog_is_found_within_the_hour(own_server):
    server = stored(own_server, settings=QUICK)
    server.stop()
    backup = server.folder / "backup.db"
    shutil.copy(server.catalog, backup)
    server.start()
    put(server, "after-the-backup")
    server.stop()
    for suffix in ("", "-wal", "-shm"):
        server.catalog.with_name(server.catalog.name + suffix).unlink(missing_ok=True)
    shutil.copy(backup, server.catalog)
    before = everything_below(server.root)
    server.start()
    assert "does not know" in (is_frozen(server) or "")
    put(server, "new", 503)
    assert everything_below(server.root) == before
    assert keys_of(server.s3(), "bucket") == ["kept-0", "kept-1", "kept-2"]
