"""Taking a backend out of service: drain, undrain, remove."""

import json
import threading

from admin_client import admin_request, command
from polling import eventually
from s3_checks import body_of, read
from settled_state import files_below, settle

SECONDS = 60


def put_all(s3, count):
    for number in range(count):
        s3.put_object(Bucket="bucket", Key=f"key-{number}", Body=body_of(2_000, f"key-{number}"))


def assert_all_readable(s3, count):
    for number in range(count):
        assert read(s3, "bucket", f"key-{number}") == body_of(2_000, f"key-{number}"), number


def drained(server, name):
    status, shown = admin_request(server, "GET", f"/backends/{name}/drain")
    assert status == 200, shown
    return shown if shown["complete"] else None


def test_drained_backend_is_emptied_removed_and_not_used_again(disks):
    server = disks(2)
    s3 = server.s3()
    put_all(s3, 50)
    assert admin_request(server, "DELETE", "/backends/disk0")[0] == 409
    status, shown = admin_request(server, "POST", "/backends/disk0/drain")
    assert (status, shown["draining"]) == (200, True)
    assert admin_request(server, "GET", "/status")[1]["backends"][0]["draining"]
    shown = eventually(lambda: drained(server, "disk0"), SECONDS, 0.2)
    assert (shown["remaining"], shown["moved"], shown["stuck"]) == (0, 50, {})
    settle(server)
    # The worker notices it at its next run.
    server.run_worker("drain")
    assert_all_readable(s3, 50)
    assert admin_request(server, "DELETE", "/backends/disk0") == (200, {"backend": "disk0", "removed": True})
    assert files_below(server.folder / "disk0") == set()
    # The configuration still names the backend: it is ignored, also after a restart.
    server.stop()
    s3 = server.start().s3()
    put_all(s3, 60)
    assert_all_readable(s3, 60)
    assert files_below(server.folder / "disk0") == set()
    assert {row[0] for row in server.rows("SELECT backend_name FROM object_locations")} == {"disk1"}
    server.stop()
    del server.config["backends"][0]
    assert_all_readable(server.start().s3(), 60)
    events = [json.loads(line)["event"] for line in (server.folder / "s3o-data/audit.jsonl").read_text().splitlines()]
    assert {"drain.started", "drain.completed", "backend.removed"} <= set(events)


def test_writers_and_readers_see_no_error_during_a_drain(disks):
    server = disks(3, replication={"factor": 2, "write_copies": 2, "interval": "200ms"})
    s3 = server.s3()
    put_all(s3, 60)
    stop, failures, written = threading.Event(), [], {}

    def work(worker):
        client, number = server.s3(), 0
        while not stop.is_set():
            key, body = f"worker-{worker}-{number % 9}", body_of(3_000, f"{worker}-{number}")
            try:
                client.put_object(Bucket="bucket", Key=key, Body=body)
                written[key] = body
                if read(client, "bucket", f"key-{number % 60}") != body_of(2_000, f"key-{number % 60}"):
                    failures.append(f"wrong body of key-{number % 60}")
            except Exception as error:
                failures.append(repr(error))
            number += 1

    workers = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for worker in workers:
        worker.start()
    try:
        assert admin_request(server, "POST", "/backends/disk0/drain")[0] == 200
        eventually(lambda: drained(server, "disk0"), SECONDS, 0.2)
    finally:
        stop.set()
        for worker in workers:
            worker.join()
    assert failures == []
    assert admin_request(server, "DELETE", "/backends/disk0")[0] == 200
    assert files_below(server.folder / "disk0") == set()
    assert_all_readable(s3, 60)
    for key, body in written.items():
        assert read(s3, "bucket", key) == body


def test_drain_is_refused_if_too_few_backends_remain(disks):
    server = disks(2, replication={"factor": 2})
    status, refusal = admin_request(server, "POST", "/backends/disk0/drain")
    assert (status, refusal["error"]["code"]) == (409, "too_few_backends")
    assert admin_request(server, "POST", "/backends/unknown/drain")[0] == 404
    assert admin_request(server, "GET", "/backends/disk0/drain")[1]["draining"] is False


def test_cancelled_drain_takes_writes_again(disks):
    server = disks(2)
    s3 = server.s3()
    put_all(s3, 5)
    assert command(server, "backend", "drain", "disk0").returncode == 0
    eventually(lambda: drained(server, "disk0"), SECONDS, 0.2)
    shown = command(server, "backend", "drain", "disk0", "--show")
    assert "drained, it can be removed" in shown.stdout
    assert command(server, "backend", "undrain", "disk0").returncode == 0
    s3.put_object(Bucket="bucket", Key="new", Body=b"x")
    assert ("disk0",) in server.rows("SELECT backend_name FROM object_locations")
    refused = command(server, "backend", "remove", "disk0")
    assert refused.returncode == 1 and "drain it first" in refused.stderr


def test_what_fits_nowhere_is_reported_and_the_rest_is_moved(disks):
    server = disks(1)
    s3 = server.s3()
    put_all(s3, 20)
    server.stop()
    root = str(server.folder / "small")
    server.config["backends"].append({"name": "small", "kind": "fs", "root": root, "quota": "10000B"})
    s3 = server.start().s3()
    assert admin_request(server, "POST", "/backends/disk0/drain")[0] == 200

    def is_stuck():
        shown = admin_request(server, "GET", "/backends/disk0/drain")[1]
        return shown if shown["stuck"] and shown["moved"] == 5 else None

    shown = eventually(is_stuck, SECONDS, 0.2)
    assert (shown["remaining"], sum(shown["stuck"].values())) == (15, 15)
    assert admin_request(server, "DELETE", "/backends/disk0")[0] == 409
    assert_all_readable(s3, 20)
