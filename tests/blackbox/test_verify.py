"""`s3o verify`: it reports damage by invariant, ignores work in progress, and fails if a check could not run."""

import json
import random
import subprocess
import threading
import time
import uuid

import pytest

import seaweed
from catalogs import PostgresCatalog
from conftest import KINDS
from kill_load import BUCKET, Loader
from kill_model import Model
from s3_checks import PART_BYTES_MIN, body_of, multipart
from server_process import ADMIN_TOKEN, binary
from settled_state import QUICK, settle
from stores import Store
from test_damage import hide_objects

COMMAND_SECONDS = 60
LOAD_SECONDS = 10
LOADERS = 4
WRITERS = 4
# Short worker intervals, but leases that do not expire on a busy machine.
LONG_LEASES = {
    "write_path": {"pending_intents": {"min_age": "5s", "reaper_tick": "100ms", "late_write_window": "5s"}},
    "cleanup_queue": QUICK["cleanup_queue"],
}


def stray_key():
    return f"bucket/stray~{uuid.uuid4().hex}"


def verify(server, *arguments):
    """Runs the command and returns its exit code and report."""
    admin = ["--admin", f"http://127.0.0.1:{server.admin_port}", "--token", ADMIN_TOKEN]
    command = [binary(), "verify", *arguments, "--json", *admin]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def broken(report):
    """The numbers of violated invariants, each with its first samples."""
    found = {}
    for check in report["checks"]:
        if check["violations"]:
            assert len(check["samples"]) == min(check["violations"], 10)
            found.setdefault(check["invariant"], []).extend(check["samples"])
    return found


def assert_holds(server):
    for arguments in ([], ["--deep"]):
        code, report = verify(server, *arguments)
        assert (code, broken(report), report["unchecked"]) == (0, {}, []), report
        assert report["holds"] is True


def assert_found(server, numbers, named, deep=True):
    """Checks that exactly these invariants are violated and that each sample names the cause."""
    code, report = verify(server, *(["--deep"] if deep else []))
    found = broken(report)
    assert code == 1 and report["holds"] is False
    assert set(found) == set(numbers), report
    assert named in " ".join(found[numbers[0]]), found


@pytest.fixture(params=KINDS)
def healthy_server(request, own_server):
    """An idle, healthy server with a few objects, one of them a multipart object."""
    backend = seaweed.fresh_bucket() if request.param == "s3" else None
    catalog = PostgresCatalog() if request.param == "postgres" else None
    server = own_server(backend=backend, settings=QUICK, catalog=catalog).start()
    s3 = server.s3()
    s3.create_bucket(Bucket="bucket")
    for number in range(3):
        s3.put_object(Bucket="bucket", Key=f"folder/key-{number}", Body=body_of(1000, number))
    s3.copy_object(Bucket="bucket", Key="copy", CopySource={"Bucket": "bucket", "Key": "folder/key-0"})
    multipart(s3, "bucket", "joined", [body_of(PART_BYTES_MIN), b"end"])
    settle(server)
    assert_holds(server)
    return server


def located(server):
    return server.rows("SELECT physical_key FROM object_locations ORDER BY size_bytes DESC LIMIT 1")[0][0]


def test_missing_file_is_found(healthy_server):
    key = located(healthy_server)
    Store(healthy_server).remove(key)
    assert_found(healthy_server, ["I2", "I7"], key)


def test_a_truncated_file_is_found(healthy_server):
    key = located(healthy_server)
    Store(healthy_server).write(key, b"short")
    assert_found(healthy_server, ["I1", "I7"], key)


def test_stray_file_is_found_and_foreign_file_is_ignored(healthy_server):
    store, key = Store(healthy_server), stray_key()
    store.write("bucket/holiday.jpg", b"not ours")
    assert_holds(healthy_server)
    assert verify(healthy_server, "--deep")[1]["backends"][0]["foreign"] == 1
    store.write(key, b"ours")
    assert_found(healthy_server, ["I3", "I7"], key)


@pytest.mark.parametrize("healthy_server", ["fs", "postgres"], indirect=True)
def test_a_temporary_file_is_found(healthy_server):
    name = uuid.uuid4().hex
    Store(healthy_server).write(f".s3o/tmp/{name}", b"half")
    assert_found(healthy_server, ["I3", "I7"], name)


@pytest.mark.parametrize("healthy_server", ["s3"], indirect=True)
def test_an_unfinished_backend_upload_is_found(healthy_server):
    store, key = Store(healthy_server), stray_key()
    upload = store.client.create_multipart_upload(Bucket=store.bucket, Key=key)["UploadId"]
    assert_found(healthy_server, ["I3"], upload)
    store.client.abort_multipart_upload(Bucket=store.bucket, Key=key, UploadId=upload)
    assert_holds(healthy_server)


def test_a_wrong_count_of_references_is_found(healthy_server):
    content = healthy_server.rows("SELECT id FROM contents WHERE ref_count = 2")[0][0]
    healthy_server.database.change(f"UPDATE contents SET ref_count = 3 WHERE id = '{content}'")
    assert_found(healthy_server, ["I6"], content, deep=False)


def test_a_drifted_counter_is_found(healthy_server):
    healthy_server.database.change("UPDATE backend_quotas SET used_bytes = used_bytes + 1 WHERE stripe = 0")
    assert_found(healthy_server, ["I7"], "used bytes", deep=False)


def test_a_lost_location_is_found(healthy_server):
    content = healthy_server.rows("SELECT content_id FROM object_locations ORDER BY size_bytes DESC LIMIT 1")[0][0]
    healthy_server.database.change(f"UPDATE object_locations SET state = 'lost' WHERE content_id = '{content}'")
    assert_found(healthy_server, ["I2"], content, deep=False)


def test_cleanup_of_live_bytes_is_found(own_server):
    server = own_server().start()
    server.s3().create_bucket(Bucket="bucket")
    server.s3().put_object(Bucket="bucket", Key="key", Body=b"x")
    soon = int(time.time() * 1000) + 600_000
    server.database.change(
        "INSERT INTO cleanup_queue (backend_name, physical_key, size_bytes, stripe, reason, due, created_at) "
        f"SELECT backend_name, physical_key, 0, stripe, 'delete', {soon}, 0 FROM object_locations"
    )
    assert_found(server, ["I4"], located(server), deep=False)
    # No setting delays a cleanup for so long: the clock was ahead when the row was written.
    server.database.change(f"UPDATE cleanup_queue SET due = {2**60}")
    assert_found(server, ["I4", "I11"], located(server), deep=False)


def test_damaged_index_is_found_by_the_database(own_server):
    server = own_server(settings=QUICK).start()
    server.s3().create_bucket(Bucket="bucket")
    server.s3().put_object(Bucket="bucket", Key="key", Body=b"x")
    settle(server)
    code, report = verify(server, "--catalog")
    assert (code, broken(report), report["unchecked"]) == (0, {}, []), report
    hide_objects(server.catalog)
    code, report = verify(server, "--catalog")
    assert code == 1 and report["holds"] is False, report
    assert "objects_content" in " ".join(broken(report)["I1"]), report
    status = json.loads(server.admin("GET", "/admin/api/status")[1])
    assert status["catalog"]["state"] == "degraded", "damage that was reported is served as healthy"


def test_unreachable_backend_is_reported_as_unchecked(own_server):
    server = own_server(settings=QUICK).start()
    server.root.rename(server.root.with_name("unmounted"))
    code, report = verify(server, "--deep")
    assert code == 1 and broken(report) == {}
    assert [left["what"] for left in report["unchecked"]] == ["backend disk"]
    assert verify(server)[0] == 0, "the catalog alone is consistent"


def test_verify_fails_without_a_server(own_server):
    server = own_server()
    command = [binary(), "verify", "--admin", f"http://127.0.0.1:{server.admin_port}", "--token", ADMIN_TOKEN]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS)
    assert done.returncode == 1 and done.stderr


def test_verify_prints_a_table(healthy_server):
    admin = ["--admin", f"http://127.0.0.1:{healthy_server.admin_port}", "--token", ADMIN_TOKEN]
    done = subprocess.run(
        [binary(), "verify", "--deep", *admin], capture_output=True, text=True, timeout=COMMAND_SECONDS
    )
    assert done.returncode == 0 and "I7" in done.stdout and "VIOLATIONS" in done.stdout


def write_and_delete(server, stopping, name):
    """Writes and deletes objects until `stopping` is set."""
    s3 = server.s3()
    while not stopping.is_set():
        for number in range(4):
            s3.put_object(Bucket=BUCKET, Key=f"{name}/{number}", Body=b"short-lived")
        for number in range(4):
            s3.delete_object(Bucket=BUCKET, Key=f"{name}/{number}")


@pytest.mark.parametrize("kind", KINDS)
def test_verify_reports_no_violation_under_load(kind, own_server):
    # Slow bodies use backend uploads, so that unfinished ones exist.
    backend = {**seaweed.fresh_bucket(), "put_bytes_max": "150KiB"} if kind == "s3" else None
    catalog = PostgresCatalog() if kind == "postgres" else None
    server = own_server(backend=backend, settings=LONG_LEASES, catalog=catalog).start()
    server.s3().create_bucket(Bucket=BUCKET)
    model, stopping, faults = Model(), threading.Event(), []

    def work(loader):
        try:
            loader.run(stopping)
        except BaseException as fault:
            faults.append(fault)

    loaders = [Loader(f"t{number}", server.raw(), model, random.random()) for number in range(LOADERS)]
    threads = [threading.Thread(target=work, args=(loader,)) for loader in loaders]
    threads += [
        threading.Thread(target=write_and_delete, args=(server, stopping, f"writer-{number}")) for number in range(WRITERS)
    ]
    for thread in threads:
        thread.start()
    checks_done, deadline = 0, time.monotonic() + LOAD_SECONDS
    try:
        while time.monotonic() < deadline:
            code, report = verify(server, "--deep")
            assert code == 0, [check for check in report["checks"] if check["violations"]] + report["unchecked"]
            checks_done += 1
    finally:
        stopping.set()
        for thread in threads:
            thread.join(30)
    assert not faults, faults
    assert checks_done >= 3 and model.counts.get(("PUT", "acknowledged"), 0) >= 20, (checks_done, model.summary())
    settle(server)
    assert_holds(server)
