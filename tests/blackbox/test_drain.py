"""Taking a backend out of service: drain, undrain, remove."""

import json
import os
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import yaml

from admin_client import admin_request, command
from polling import eventually
from s3_checks import body_of, multipart, read
from settled_state import QUICK, files_below, settle

SECONDS = 60
FITTING, STUCK = 50, 1000
CALLS_PER_MINUTE_MAX = 10


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


def test_slow_reader_gets_the_whole_body_after_its_bytes_were_moved(disks):
    """Parts that were not read yet are moved, and their old bytes are deleted, while the client reads the first one."""
    server = disks(2)
    parts = [body_of(6 * 1024 * 1024, number) for number in range(5)]
    multipart(server.s3(), "bucket", "joined", parts)
    raw = server.raw()
    connection = raw.connect()
    connection.connect()
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    target, headers, _ = raw.prepare("GET", "/bucket/joined")
    raw.start(connection, "GET", target, headers)
    response = connection.getresponse()
    first = response.read(1000)
    assert admin_request(server, "POST", "/backends/disk0/drain")[0] == 200
    eventually(lambda: drained(server, "disk0"), SECONDS, 0.2)
    assert not [name for name in files_below(server.folder / "disk0") if not name.startswith(".s3o/")]
    assert first + response.read() == b"".join(parts)
    settle(server)


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


def backend_calls(server):
    """Number of calls to all backends so far, by operation."""
    calls = {name: count for name, count in server.metrics().items() if name.startswith("s3o_backend_requests_total")}
    assert calls
    return calls


def stored_in_parallel(server, count, threads=8):
    with ThreadPoolExecutor(threads) as pool:
        raw = server.raw()
        keys = [f"/bucket/key-{number}" for number in range(count)]
        put = lambda key: raw.request("PUT", key, body=body_of(2_000, key.removeprefix("/bucket/"))).status
        assert set(pool.map(put, keys)) == {200}


def test_objects_that_fit_nowhere_cost_no_backend_calls(own_server):
    # A probe of a backend is a call, too, and none of the drain.
    server = own_server(settings={**QUICK, "identity": {"probe_interval": "1h"}}).start()
    server.s3().create_bucket(Bucket="bucket")
    stored_in_parallel(server, FITTING + STUCK)
    server.stop()
    small = {"name": "small", "kind": "fs", "root": str(server.folder / "small"), "quota": f"{FITTING * 2_000}B"}
    server.config["backends"].append(small)
    server.start()
    assert admin_request(server, "POST", "/backends/disk/drain")[0] == 200

    def all_but_stuck_moved():
        shown = admin_request(server, "GET", "/backends/disk/drain")[1]
        holds_only_stuck = (shown["moved"], shown["remaining"], shown["cleanups"]) == (FITTING, STUCK, 0)
        return shown if holds_only_stuck and sum(shown["stuck"].values()) == STUCK else None

    shown = eventually(all_but_stuck_moved, SECONDS, 0.2)
    assert shown["stuck"] == {"no other backend can take it": STUCK}
    before = backend_calls(server)
    began = time.monotonic()
    # The worker makes two passes a minute; these are more, and the others run as well.
    for worker in ("drain", "replicator", "over_replication", "cleanup", "pending_reaper") * 4:
        server.run_worker(worker)
    assert time.monotonic() - began < 60
    calls = sum(backend_calls(server).values()) - sum(before.values())
    assert calls < CALLS_PER_MINUTE_MAX, backend_calls(server)
    # With more capacity, a reload moves the rest.
    server.config["backends"][1]["quota"] = None
    server.config_path.write_text(yaml.safe_dump(server.config, sort_keys=False))
    os.kill(server.process.pid, signal.SIGHUP)

    def is_drained():
        server.run_worker("drain")
        return drained(server, "disk")

    eventually(is_drained, SECONDS, 0.5)
    settle(server)
    assert_all_readable(server.s3(), 100)
