"""Write-off: a backend that will never come back is removed with everything that it held."""

import shutil

from admin_client import admin_request, command
from polling import eventually
from s3_checks import body_of, read
from settled_state import files_below, settle

SECONDS = 60
COUNT = 30


def put_all(s3, start=0):
    for number in range(start, start + COUNT):
        s3.put_object(Bucket="bucket", Key=f"key-{number}", Body=body_of(2_000, f"key-{number}"))


def assert_readable(s3, numbers):
    for number in numbers:
        assert read(s3, "bucket", f"key-{number}") == body_of(2_000, f"key-{number}"), number


def destroy(server, name):
    """The disk is gone for good."""
    shutil.rmtree(server.folder / name)
    eventually(lambda: server.metrics()[f's3o_backend_up{{backend="{name}"}}'] == 0, SECONDS, 0.1)


def counters(server, name):
    backends = admin_request(server, "GET", "/status")[1]["backends"]
    found = next(backend for backend in backends if backend["name"] == name)
    return found["used"], found["orphan"], found["reserved"]


def findings(server):
    items = admin_request(server, "GET", "/findings?backend=disk0")[1]["items"]
    return {item["kind"]: (item["detail"], item["size_bytes"]) for item in items}


def verified(server):
    assert command(server, "verify", "--deep").returncode == 0
    status, report = admin_request(server, "POST", "/verify?deep=true")
    assert status == 200 and report["holds"], report
    return report


def has_copies(server, number):
    rows = server.rows("SELECT count(*) FROM object_locations WHERE state = 'present' GROUP BY content_id")
    return {int(count) for (count,) in rows} == {number} and not server.rows("SELECT 1 FROM copy_work")


def test_single_copies_are_reported_as_lost(disks):
    server = disks(2)
    s3 = server.s3()
    put_all(s3)
    server.admin("POST", "/admin/api/workers/cleanup/pause")
    s3.delete_object(Bucket="bucket", Key="key-0")
    destroy(server, "disk0")
    refused = command(server, "backend", "remove", "disk0")
    assert refused.returncode == 1
    status, refusal = admin_request(server, "DELETE", "/backends/disk0?write_off=disk1")
    assert (status, refusal["error"]["code"]) == (400, "invalid_write_off")
    assert counters(server, "disk0") == ((COUNT - 1) * 2_000, 2_000, 0)
    removed = command(server, "backend", "remove", "disk0", "--write-off", "disk0")
    assert removed.returncode == 0, removed.stderr
    assert f"{COUNT - 1}, " in removed.stdout and "lost_copies" in removed.stdout
    assert counters(server, "disk0") == (0, 0, 0)
    assert findings(server) == {
        "lost_copies": ('{"count":29}', 29 * 2_000),
        "written_off_cleanups": ('{"count":1}', 2_000),
    }
    assert not (server.folder / "disk0").exists(), "nothing was written there"
    server.admin("POST", "/admin/api/workers/cleanup/resume")
    assert verified(server)["lost"]["contents"] == COUNT - 1
    # A lost object is unreadable until it is written again; it can be deleted.
    assert server.raw().request("GET", "/bucket/key-1").status >= 500
    put_all(s3, 0)
    s3.delete_object(Bucket="bucket", Key="key-5")
    settle(server)
    assert_readable(s3, [number for number in range(COUNT) if number != 5])
    assert verified(server)["lost"]["contents"] == 0
    server.stop()
    del server.config["backends"][0]
    s3 = server.start().s3()
    assert_readable(s3, [1, 2])
    assert verified(server)["lost"]["contents"] == 0


def test_objects_with_another_copy_survive(disks):
    server = disks(3, replication={"factor": 2, "write_copies": 2, "interval": "200ms"})
    s3 = server.s3()
    put_all(s3)
    destroy(server, "disk0")
    status, answer = admin_request(server, "DELETE", "/backends/disk0?write_off=disk0")
    assert (status, answer.get("written_off", [])) == (200, []), answer
    assert counters(server, "disk0") == (0, 0, 0)
    assert_readable(s3, range(COUNT))
    eventually(lambda: has_copies(server, 2), SECONDS, 0.2)
    assert verified(server)["lost"]["contents"] == 0
    assert admin_request(server, "DELETE", "/backends/disk0?write_off=disk0")[0] == 409
    assert admin_request(server, "DELETE", "/backends/unknown?write_off=unknown")[0] == 404
    # The configuration still names the backend: it is ignored, also after a restart.
    server.stop()
    s3 = server.start().s3()
    put_all(s3, COUNT)
    assert_readable(s3, range(2 * COUNT))
    settle(server)


def test_reachable_backend_loses_the_objects_of_s3o_only(disks):
    server = disks(2, replication={"factor": 2, "write_copies": 2, "interval": "200ms"})
    s3 = server.s3()
    put_all(s3)
    before = {path for path in files_below(server.folder / "disk0") if not path.startswith(".s3o/")}
    assert len(before) == COUNT
    assert admin_request(server, "DELETE", "/backends/disk0?write_off=disk0")[0] == 200
    assert files_below(server.folder / "disk0") == before
    assert_readable(s3, range(COUNT))


def test_killed_write_off_continues(disks):
    server = disks(2)
    s3 = server.s3()
    put_all(s3)
    destroy(server, "disk0")
    server.stop()
    # As after a kill between the first step and the second one.
    server.database.change("UPDATE backends SET removing_since = 1 WHERE name = 'disk0'")
    server.start()
    removed = command(server, "backend", "remove", "disk0", "--write-off", "disk0")
    assert removed.returncode == 0, removed.stderr
    assert counters(server, "disk0") == (0, 0, 0)
    assert verified(server)["lost"]["contents"] == COUNT
