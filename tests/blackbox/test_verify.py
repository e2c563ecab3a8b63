"""`s3o verify`: damage is found by the number of what it breaks, work is not damage, and not looking is not sound."""

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
from facts import PART_BYTES_MIN, body_of, multipart
from kill_load import BUCKET, Loader
from kill_model import Model
from rest import QUICK, settle
from running import ADMIN_TOKEN, binary
from stores import Store

COMMAND_SECONDS = 60
LOAD_SECONDS = 10
LOADERS = 4
CHURNERS = 4
# Workers as quick as ever, but leases that a busy machine cannot miss.
PATIENT = {
    "write_path": {"pending_intents": {"min_age": "5s", "reaper_tick": "100ms", "late_write_window": "5s"}},
    "cleanup_queue": QUICK["cleanup_queue"],
}


def stray_key():
    return f"bucket/stray~{uuid.uuid4().hex}"


def verify(server, *arguments):
    """Runs the command; returns its exit code and its report."""
    admin = ["--admin", f"http://127.0.0.1:{server.admin_port}", "--token", ADMIN_TOKEN]
    command = [binary(), "verify", *arguments, "--json", *admin]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def broken(report):
    """The numbers that are broken, each with its first samples."""
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
    """Exactly these invariants are broken, and each of them names what breaks it."""
    code, report = verify(server, *(["--deep"] if deep else []))
    found = broken(report)
    assert code == 1 and report["holds"] is False
    assert set(found) == set(numbers), report
    assert named in " ".join(found[numbers[0]]), found


@pytest.fixture(params=KINDS)
def sound(request, own_server):
    """A server at rest with a few objects, one of them joined, and nothing wrong with it."""
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


def test_a_removed_file_is_found(sound):
    key = located(sound)
    Store(sound).remove(key)
    assert_found(sound, ["I2", "I7"], key)


def test_a_truncated_file_is_found(sound):
    key = located(sound)
    Store(sound).write(key, b"short")
    assert_found(sound, ["I1", "I7"], key)


def test_a_stray_file_is_found_and_a_strangers_is_not(sound):
    store, key = Store(sound), stray_key()
    store.write("bucket/holiday.jpg", b"not ours")
    assert_holds(sound)
    assert verify(sound, "--deep")[1]["backends"][0]["foreign"] == 1
    store.write(key, b"ours")
    assert_found(sound, ["I3", "I7"], key)


@pytest.mark.parametrize("sound", ["fs", "postgres"], indirect=True)
def test_a_temporary_file_is_found(sound):
    name = uuid.uuid4().hex
    Store(sound).write(f".s3o/tmp/{name}", b"half")
    assert_found(sound, ["I3", "I7"], name)


@pytest.mark.parametrize("sound", ["s3"], indirect=True)
def test_an_unfinished_backend_upload_is_found(sound):
    store, key = Store(sound), stray_key()
    upload = store.client.create_multipart_upload(Bucket=store.bucket, Key=key)["UploadId"]
    assert_found(sound, ["I3"], upload)
    store.client.abort_multipart_upload(Bucket=store.bucket, Key=key, UploadId=upload)
    assert_holds(sound)


def test_a_wrong_count_of_references_is_found(sound):
    content = sound.rows("SELECT id FROM contents WHERE ref_count = 2")[0][0]
    sound.database.change(f"UPDATE contents SET ref_count = 3 WHERE id = '{content}'")
    assert_found(sound, ["I6"], content, deep=False)


def test_a_drifted_counter_is_found(sound):
    sound.database.change("UPDATE backend_quotas SET used_bytes = used_bytes + 1 WHERE stripe = 0")
    assert_found(sound, ["I7"], "used bytes", deep=False)


def test_a_lost_location_is_found(sound):
    content = sound.rows("SELECT content_id FROM object_locations ORDER BY size_bytes DESC LIMIT 1")[0][0]
    sound.database.change(f"UPDATE object_locations SET state = 'lost' WHERE content_id = '{content}'")
    assert_found(sound, ["I2"], content, deep=False)


def test_a_cleanup_of_living_bytes_is_found(own_server):
    server = own_server().start()
    server.s3().create_bucket(Bucket="bucket")
    server.s3().put_object(Bucket="bucket", Key="key", Body=b"x")
    soon = int(time.time() * 1000) + 600_000
    server.database.change(
        "INSERT INTO cleanup_queue (backend_name, physical_key, size_bytes, stripe, reason, due, created_at) "
        f"SELECT backend_name, physical_key, 0, stripe, 'delete', {soon}, 0 FROM object_locations"
    )
    assert_found(server, ["I4"], located(server), deep=False)
    # No setting puts a cleanup off for so long: a clock was ahead when it was written.
    server.database.change(f"UPDATE cleanup_queue SET due = {2**60}")
    assert_found(server, ["I4", "I11"], located(server), deep=False)


def test_a_backend_that_is_away_could_not_be_checked(own_server):
    server = own_server(settings=QUICK).start()
    server.root.rename(server.root.with_name("unmounted"))
    code, report = verify(server, "--deep")
    assert code == 1 and broken(report) == {}
    assert [left["what"] for left in report["unchecked"]] == ["backend disk"]
    assert verify(server)[0] == 0, "the catalog alone is sound"


def test_a_server_that_is_away_is_not_sound(own_server):
    server = own_server()
    command = [binary(), "verify", "--admin", f"http://127.0.0.1:{server.admin_port}", "--token", ADMIN_TOKEN]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS)
    assert done.returncode == 1 and done.stderr


def test_people_see_a_table(sound):
    admin = ["--admin", f"http://127.0.0.1:{sound.admin_port}", "--token", ADMIN_TOKEN]
    done = subprocess.run([binary(), "verify", "--deep", *admin], capture_output=True, text=True, timeout=COMMAND_SECONDS)
    assert done.returncode == 0 and "I7" in done.stdout and "VIOLATIONS" in done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_a_system_at_work_raises_no_alarm(kind, own_server):
    # Slow bodies go through backend uploads, so that there are unfinished ones to look at.
    backend = {**seaweed.fresh_bucket(), "put_bytes_max": "150KiB"} if kind == "s3" else None
    catalog = PostgresCatalog() if kind == "postgres" else None
    server = own_server(backend=backend, settings=PATIENT, catalog=catalog).start()
    server.s3().create_bucket(Bucket=BUCKET)
    model, stopping, faults = Model(), threading.Event(), []

    def work(loader):
        try:
            loader.run(stopping)
        except BaseException as fault:
            faults.append(fault)

    def churn(name):
        s3 = server.s3()
        while not stopping.is_set():
            for number in range(4):
                s3.put_object(Bucket=BUCKET, Key=f"{name}/{number}", Body=b"short-lived")
            for number in range(4):
                s3.delete_object(Bucket=BUCKET, Key=f"{name}/{number}")

    loaders = [Loader(f"t{number}", server.raw(), model, random.random()) for number in range(LOADERS)]
    threads = [threading.Thread(target=work, args=(loader,)) for loader in loaders]
    threads += [threading.Thread(target=churn, args=(f"churn-{number}",)) for number in range(CHURNERS)]
    for thread in threads:
        thread.start()
    looks, deadline = 0, time.monotonic() + LOAD_SECONDS
    try:
        while time.monotonic() < deadline:
            code, report = verify(server, "--deep")
            assert code == 0, [check for check in report["checks"] if check["violations"]] + report["unchecked"]
            looks += 1
    finally:
        stopping.set()
        for thread in threads:
            thread.join(30)
    assert not faults, faults
    assert looks >= 3 and model.counts.get(("PUT", "acknowledged"), 0) >= 20, (looks, model.summary())
    settle(server)
    assert_holds(server)
