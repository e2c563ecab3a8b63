"""A folder that is full, read-only or missing: a clear refusal, no partial writes, and no new folder."""

import contextlib
import os
import subprocess

import pytest

from polling import eventually
from raw_client import assert_refused
from s3_checks import PART_BYTES_MIN, body_of, keys_of, multipart, read, refused
from settled_state import QUICK

pytestmark = pytest.mark.timeout(60)


@contextlib.contextmanager
def small_disk(folder, size="8m"):
    """A private tmpfs; the test is skipped where mounting is not allowed."""
    folder.mkdir(parents=True)
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True)
    if made.returncode != 0:
        pytest.skip("mounting a small disk is not allowed here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], capture_output=True)


@pytest.fixture
def disk(tmp_path, own_server):
    """A server on a disk of 8 MiB with one object."""
    with small_disk(tmp_path / "small") as folder:
        server = own_server(backend={"name": "disk", "kind": "fs", "root": str(folder / "root")}).start()
        server.s3().create_bucket(Bucket="bucket")
        server.s3().put_object(Bucket="bucket", Key="kept", Body=body_of(100_000))
        yield server, folder
        server.kill()


def put(server, size_bytes=1000):
    raw = server.raw()
    return raw.request("PUT", "/bucket/new", body=body_of(size_bytes))


def test_a_backend_whose_quota_is_used_up_answers_507(own_server):
    backend = {"name": "disk", "kind": "fs", "quota": "1MiB"}
    server = own_server()
    server.config["backends"] = [{**backend, "root": str(server.root)}]
    server.start()
    server.s3().create_bucket(Bucket="bucket")
    server.s3().put_object(Bucket="bucket", Key="kept", Body=body_of(700_000))
    assert_refused(put(server, 700_000), 507, "InsufficientStorage", "/bucket/new")
    assert keys_of(server.s3(), "bucket") == ["kept"]
    server.s3().delete_object(Bucket="bucket", Key="kept")
    eventually(lambda: server.run_worker("cleanup") and put(server, 700_000).status == 200, 15, 0.1)


def test_507_is_answered_before_the_body_is_read(own_server):
    server = own_server()
    server.config["backends"] = [{"name": "disk", "kind": "fs", "quota": "1MiB", "root": str(server.root)}]
    server.start()
    server.s3().create_bucket(Bucket="bucket")
    raw = server.raw()
    asked = {"Content-Length": str(2 << 20), "Expect": "100-continue"}
    target, headers, _ = raw.prepare("PUT", "/bucket/new", headers=asked)
    with contextlib.closing(raw.connect()) as connection:
        raw.start(connection, "PUT", target, headers)
        # Not a byte of the body was sent.
        assert_refused(raw.finish(connection), 507, "InsufficientStorage", "/bucket/new")
    assert server.rows("SELECT 1 FROM pending_objects") == [] and server.files() == set()


def test_parts_are_stored_on_any_backend_with_free_capacity(own_server):
    server = own_server(settings=QUICK)
    roots = [server.root, server.folder / "second"]
    server.config["backends"] = [
        {"name": f"disk-{number}", "kind": "fs", "root": str(root), "quota": "6MiB"}
        for number, root in enumerate(roots)
    ]
    server.start()
    s3 = server.s3()
    s3.create_bucket(Bucket="bucket")
    s3.put_object(Bucket="bucket", Key="object", Body=b"old")
    parts = [body_of(PART_BYTES_MIN, number) for number in range(2)]
    multipart(s3, "bucket", "object", parts)
    assert read(s3, "bucket", "object") == b"".join(parts)
    located_on = server.rows("SELECT backend_name FROM object_locations WHERE size_bytes > 3 ORDER BY backend_name")
    assert located_on == [("disk-0",), ("disk-1",)]
    # A third part does not fit on any backend; the stored parts stay.
    upload = {"Bucket": "bucket", "Key": "object"}
    upload["UploadId"] = s3.create_multipart_upload(**upload)["UploadId"]
    with refused("InsufficientStorage", 507):
        s3.upload_part(**upload, PartNumber=1, Body=body_of(PART_BYTES_MIN, "third"))
    assert read(s3, "bucket", "object") == b"".join(parts)


def test_full_disk_answers_507_and_keeps_its_objects(disk):
    server, _ = disk
    assert_refused(put(server, 16 * 1024 * 1024), 507, "InsufficientStorage", "/bucket/new")
    assert keys_of(server.s3(), "bucket") == ["kept"]
    assert read(server.s3(), "bucket", "kept") == body_of(100_000)
    assert put(server, 1000).status == 200


def test_a_read_only_disk_refuses_writes_and_serves_reads(disk):
    server, folder = disk
    if subprocess.run(["mount", "-o", "remount,ro", folder], capture_output=True).returncode != 0:
        pytest.skip("remounting is not allowed here")
    assert_refused(put(server), 503, "ServiceUnavailable")
    assert read(server.s3(), "bucket", "kept") == body_of(100_000)
    subprocess.run(["mount", "-o", "remount,rw", folder], check=True)
    eventually(lambda: put(server).status == 200, 15, 0.2, "writes do not work after the remount")


@pytest.mark.parametrize("moment", ["while it runs", "before it starts"])
def test_unmounted_disk_is_not_treated_as_empty(own_server, moment):
    server = own_server().start()
    server.s3().create_bucket(Bucket="bucket")
    server.s3().put_object(Bucket="bucket", Key="kept", Body=b"kept")
    away = server.root.with_name("away")
    if moment == "before it starts":
        server.stop()
    os.rename(server.root, away)
    os.mkdir(server.root)  # the empty mount point of an unmounted disk
    if moment == "before it starts":
        server.spawn()
        eventually(lambda: server.process.poll() is not None or alive(server), 20, message="neither ready nor exited")
    if server.process.poll() is None:
        answer = put(server)
        assert answer.status >= 500, answer
        assert server.files() == set(), "nothing is written to a foreign folder"
        server.stop()
    os.rmdir(server.root)
    os.rename(away, server.root)
    server.start()
    assert read(server.s3(), "bucket", "kept") == b"kept"


def alive(server):
    try:
        return server.admin_get("/health/live")[0] == 200
    except OSError:
        return False
