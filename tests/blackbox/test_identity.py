"""A store with an unexpected identity is frozen before the first write, for the instance that finds it."""

import json
import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import seaweed
from admin_client import command
from polling import eventually
from s3_checks import body_of, keys_of, read
from settled_state import QUICK, settle

pytestmark = [pytest.mark.alone, pytest.mark.timeout(150)]

FOUND_SECONDS = 30


def health(server, name="disk"):
    """The status of a backend."""
    status, body = server.admin("GET", "/admin/api/status")
    assert status == 200
    return next(backend for backend in json.loads(body)["backends"] if backend["name"] == name)


def is_frozen(server, name="disk"):
    return health(server, name)["frozen"]


def everything_below(root):
    """Every file below a folder, with its bytes."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def exchange(root, other):
    """Replaces the root by another folder and moves the root aside."""
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
    eventually(lambda: is_frozen(server), FOUND_SECONDS, 0.1, "the backend is not frozen")
    put(server, "new", 503)
    server.run_worker("cleanup")
    server.run_worker("identity")
    assert everything_below(server.root) == before, "something was written or deleted there"

    # The right disk is back: the server continues without intervention.
    exchange(server.root, aside)
    eventually(lambda: not is_frozen(server), FOUND_SECONDS, 0.1, "the backend is still frozen")
    eventually(lambda: server.raw().request("PUT", "/bucket/new", body=b"x").status == 200, FOUND_SECONDS, 0.1)
    assert read(server.s3(), "bucket", "kept-1") == body_of(1000, "kept-1")
    settle(server)


def test_another_bucket_is_frozen_before_the_first_write(own_server):
    right, wrong = seaweed.fresh_bucket(), seaweed.fresh_bucket()
    server = stored(own_server, backend=right, settings=QUICK)
    server.stop()
    server.config["backends"][0]["bucket"] = wrong["bucket"]
    server.start()
    eventually(lambda: is_frozen(server, "store"), FOUND_SECONDS, 0.1, "the backend is not frozen")
    put(server, "new", 503)
    store = seaweed.connect(wrong["endpoint"], wrong["access_key_id"], wrong["secret_access_key"])
    assert "Contents" not in store.list_objects_v2(Bucket=wrong["bucket"])


def write_and_read(server, worker, failures, stop):
    """Writes and reads objects until `stop` is set; collects the answers that are not 200."""
    raw, number = server.raw(), 0
    while not stop.is_set():
        key = f"load-{worker}-{number % 20}"
        answers = [
            raw.request("PUT", f"/bucket/{key}", body=body_of(2000, number)),
            raw.request("GET", f"/bucket/{key}"),
            raw.request("GET", f"/bucket/kept-{number % 50}"),
        ]
        failures.extend(answer for answer in answers if answer.status != 200)
        number += 1


def start_with_wrong_root(one, other):
    """Restarts `other` on an empty folder, which it must freeze; returns the folder."""
    wrong = other.root.with_name("wrong")
    wrong.mkdir()
    other.kill()
    other.config["backends"] = [{"name": "disk", "kind": "fs", "root": str(wrong)}]
    other.start()
    eventually(lambda: is_frozen(other), FOUND_SECONDS, 0.1, "the backend is not frozen")
    records = one.rows("SELECT reason FROM identity_records")
    assert records and records[0][0], records
    return wrong


def assert_no_instance_deletes(one, other, wrong):
    """Deletes stay in the queue, and their bytes on the disk."""
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


def assert_accept_is_refused(one, other):
    """Nothing is accepted while the instances disagree."""
    hash_found = json.loads(other.admin("POST", "/admin/api/backends/disk/accept")[1])["hash"]
    seen = "SELECT count(*) FROM identity_records"
    eventually(lambda: one.rows(seen)[0][0] == 2, 60, 0.2, "the first instance did not record what it found")
    assert command(other, "backend", "accept", "disk", "--found", hash_found).returncode == 1


def start_with_right_root(one, other):
    other.stop()
    other.config["backends"] = one.config["backends"]
    other.start()
    eventually(lambda: not is_frozen(other), FOUND_SECONDS, 0.1, "the backend is still frozen")
    open_records = "SELECT count(*) FROM identity_records WHERE reason IS NOT NULL"
    assert one.rows(open_records)[0][0] == 0, "the record is still open"


def test_instance_with_a_wrong_root_does_not_affect_others(instances):
    one, other = instances(2)
    for number in range(50):
        put(one, f"kept-{number}")
    failures, stop = [], threading.Event()
    with ThreadPoolExecutor(4) as pool:
        clients = [pool.submit(write_and_read, one, worker, failures, stop) for worker in range(4)]
        try:
            wrong = start_with_wrong_root(one, other)
            assert_no_instance_deletes(one, other, wrong)
            assert_accept_is_refused(one, other)
            start_with_right_root(one, other)
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


def test_accept_takes_the_shown_state_and_old_deletes_become_findings(own_server):
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
    # The two objects that the accepted store lacks are lost, once a worker has looked for them twice.
    expected = {("absent_after_accept", "absent after accept"), ("lost_copies", '{"count":2}')}

    def are_lost():
        server.run_worker("replicator")
        return set(server.rows("SELECT kind, detail FROM findings")) == expected

    eventually(are_lost, 30, 0.1, "other findings")
    server.stop()
    server.start()
    assert not is_frozen(server), "the accepted state stays accepted"
    put(server, "new")


def audited(server, event):
    return json.loads(server.admin("GET", f"/admin/api/audit?event={event}")[1])["items"]


def accept_view(server):
    """What an accept without a hash shows; it changes nothing."""
    status, body = server.admin("POST", "/admin/api/backends/disk/accept")
    assert status == 409, body
    return json.loads(body)


def test_accept_on_one_instance_is_applied_by_the_other(instances):
    one, other = instances(2)
    put(one, "kept-0")
    for server in (one, other):
        server.stop()
    exchange(one.root, a_bare_mount_point(one))
    for server in (one, other):
        server.start()
        eventually(lambda server=server: is_frozen(server), FOUND_SECONDS, 0.1, "the backend is not frozen")
    view = accept_view(one)
    # An accept within ten seconds of the first mismatch is refused: an instance might not have recorded what it sees.
    accept = f"/admin/api/backends/disk/accept?found={view['hash']}"
    eventually(lambda: one.admin("POST", accept)[0] == 200, 30, 0.5, "the accept is refused")
    for server in (one, other):
        eventually(lambda server=server: not is_frozen(server), FOUND_SECONDS, 0.1, "the backend is still frozen")
    put(one, "new-0")
    put(other, "new-1")
    assert read(one.s3(), "bucket", "new-1") == body_of(1000, "new-1")
    accepted = [audited(server, "backend.accepted") for server in (one, other)]
    assert [len(lines) for lines in accepted] == [1, 0], accepted


def test_copy_of_a_backup_is_recognised_because_the_backup_raises_the_marks(own_server):
    server = stored(own_server, settings=QUICK)
    backup = server.folder / "backup.db"
    before = server.rows("SELECT mark, mark_sequence FROM backends")
    done = command(server, "catalog", "backup", str(backup))
    assert done.returncode == 0, done
    raised = server.rows("SELECT mark, mark_sequence FROM backends")
    assert raised[0][0] != before[0][0] and raised[0][1] == before[0][1] + 1, (before, raised)
    identity = json.loads((server.root / ".s3o" / "identity.json").read_text())
    assert identity["mark"] == raised[0][0], "the mark was raised on the backend as well"
    server.stop()
    done = command(server, "catalog", "restore", str(backup), "--config", str(server.config_path))
    assert done.returncode == 0, done
    server.start()
    assert server.rows("SELECT mark, mark_sequence FROM backends") == before
    assert "does not know" in (is_frozen(server) or "")
    put(server, "new", 503)


def test_deletes_begin_after_the_delete_delay(own_server):
    server = stored(own_server, settings={**QUICK, "identity": {"delete_delay": "6s"}})
    server.stop()
    server.start()
    began = time.monotonic()
    server.s3().delete_object(Bucket="bucket", Key="kept-0")
    assert len(server.files()) == 3
    eventually(lambda: len(server.files()) == 2, FOUND_SECONDS, 0.1, "deletes never begin")
    assert time.monotonic() - began > 3, "deletes began without the delay"


def test_restored_catalog_is_detected_within_the_hour(own_server):
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
