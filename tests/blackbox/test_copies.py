"""Several copies of each object: written together, kept at their number, and readable while a disk is away."""

import json
import os
import signal
import threading

import yaml

from polling import eventually
from s3_checks import PART_BYTES_MIN, body_of, multipart, read, refused
from settled_state import settle

SECONDS = 30
TWO_COPIES = {"factor": 2, "write_copies": 2, "interval": "200ms", "over_replication_interval": "200ms"}


def copies(server):
    """Number of present copies of each content."""
    rows = server.rows(
        "SELECT c.id, sum(CASE WHEN l.state = 'present' THEN 1 ELSE 0 END) FROM contents c "
        "LEFT JOIN object_locations l ON l.content_id = c.id WHERE c.kind = 'whole' AND c.state = 'live' GROUP BY c.id"
    )
    return [int(number) for _, number in rows]


def all_usable(server):
    """True if every disk is mounted, has the right identity, and no circuit breaker skips it."""
    expected = {"s3o_backend_up": 1, "s3o_backend_frozen": 0, "s3o_circuit_breaker_state": 0}
    shown = server.metrics().items()
    return all(value == expected.get(name.partition("{")[0], value) for name, value in shown)


def wait_for_copies(server, number):
    def as_wanted():
        waiting = server.rows("SELECT 1 FROM copy_work LIMIT 1") or server.rows("SELECT 1 FROM copy_review LIMIT 1")
        return not waiting and set(copies(server)) == {number}

    eventually(as_wanted, SECONDS, 0.2, f"not every content had {number} copies")


def put_all(s3, count, size=20_000, start=0):
    for number in range(start, start + count):
        s3.put_object(Bucket="bucket", Key=f"key-{number}", Body=body_of(size, f"key-{number}"))


def assert_all_readable(s3, count, size=20_000):
    for number in range(count):
        assert read(s3, "bucket", f"key-{number}") == body_of(size, f"key-{number}"), number


def test_objects_stay_readable_and_writable_while_a_disk_is_away(disks):
    server = disks(3, replication=TWO_COPIES)
    s3 = server.s3()
    put_all(s3, 10)
    multipart(s3, "bucket", "joined", [body_of(PART_BYTES_MIN), b"end"])
    assert set(copies(server)) == {2}
    for number in range(3):
        root = server.folder / f"disk{number}"
        root.rename(server.folder / "unmounted")
        assert_all_readable(s3, 10)
        assert read(s3, "bucket", "joined") == body_of(PART_BYTES_MIN) + b"end"
        # Small bodies are stored on the next disk; a large one has at least the copy that succeeded.
        put_all(s3, 1, start=10 + number)
        s3.put_object(Bucket="bucket", Key="large", Body=body_of(300_000, str(number)))
        assert read(s3, "bucket", "large") == body_of(300_000, str(number))
        (server.folder / "unmounted").rename(root)
        eventually(lambda: all_usable(server), SECONDS, 0.1)
    wait_for_copies(server, 2)
    settle(server)
    assert_all_readable(s3, 13)


def test_write_is_refused_below_write_copies_min(disks):
    server = disks(2, replication={**TWO_COPIES, "write_copies_min": 2})
    s3 = server.s3()
    put_all(s3, 1)
    (server.folder / "disk1").rename(server.folder / "unmounted")
    with refused("ServiceUnavailable", 503):
        s3.put_object(Bucket="bucket", Key="few", Body=b"x")
    (server.folder / "unmounted").rename(server.folder / "disk1")
    eventually(lambda: server.raw().request("PUT", "/bucket/again", body=b"x").status == 200, SECONDS, 0.2)
    wait_for_copies(server, 2)
    settle(server)
    assert server.metrics()["s3o_writes_degraded_total"] == 0


def test_write_with_fewer_copies_is_counted_and_completed_later(disks):
    server = disks(2, replication=TWO_COPIES)
    s3 = server.s3()
    (server.folder / "disk1").rename(server.folder / "unmounted")
    s3.put_object(Bucket="bucket", Key="key-0", Body=body_of(20_000, "key-0"))
    metrics = server.metrics()
    assert metrics["s3o_writes_degraded_total"] == 1
    assert metrics["s3o_replication_pending"] == 1
    (server.folder / "unmounted").rename(server.folder / "disk1")
    wait_for_copies(server, 2)
    settle(server)
    assert server.metrics()["s3o_replication_pending"] == 0


def test_factor_is_changed_by_a_reload(disks):
    server = disks(3, replication={**TWO_COPIES, "factor": 1, "write_copies": 1})
    s3 = server.s3()
    put_all(s3, 20)
    multipart(s3, "bucket", "joined", [body_of(PART_BYTES_MIN), b"end"])
    assert set(copies(server)) == {1}
    for factor in (3, 1, 2):
        server.config["replication"]["factor"] = factor
        server.config_path.write_text(yaml.safe_dump(server.config, sort_keys=False))
        os.kill(server.process.pid, signal.SIGHUP)
        wait_for_copies(server, factor)
    settle(server)
    assert_all_readable(s3, 20)
    events = [json.loads(line) for line in (server.folder / "s3o-data/audit.jsonl").read_text().splitlines()]
    names = [event["event"] for event in events]
    assert names.count("replication.copied") >= 20 and names.count("over_replication.removed") >= 20
    copied = next(event for event in events if event["event"] == "replication.copied")
    assert {"backend", "physical_key", "size_bytes", "run_id"} <= copied.keys()


def test_copy_into_a_bucket_with_a_higher_factor_gets_more_copies(disks):
    server = disks(2, replication={**TWO_COPIES, "factor": 1, "write_copies": 1})
    server.stop()
    server.config["buckets"] = [{"name": "important", "replication_factor": 2}]
    s3 = server.start().s3()
    put_all(s3, 1)
    s3.copy_object(Bucket="important", Key="copy", CopySource={"Bucket": "bucket", "Key": "key-0"})
    wait_for_copies(server, 2)
    s3.delete_object(Bucket="important", Key="copy")
    settle(server)
    assert read(s3, "bucket", "key-0") == body_of(20_000, "key-0")


def test_corrupt_copy_is_replaced(disks):
    server = disks(3, replication=TWO_COPIES)
    s3 = server.s3()
    put_all(s3, 1)
    name, key = server.rows("SELECT backend_name, physical_key FROM object_locations ORDER BY backend_name")[0]
    (server.folder / name / key).unlink()
    eventually(lambda: read(s3, "bucket", "key-0") == body_of(20_000, "key-0"), SECONDS)
    wait_for_copies(server, 2)
    settle(server)


def test_requests_and_copies_race_without_loss(disks):
    """Overwrites and deletes run beside a factor that changes; in the end every object has its copies."""
    server = disks(3, replication={**TWO_COPIES, "factor": 1, "write_copies": 1})
    s3 = server.s3()
    stop, written = threading.Event(), {}

    def overwrite():
        number = 0
        while not stop.is_set():
            key, body = f"key-{number % 17}", body_of(5_000, str(number))
            if number % 5 == 4:
                s3.delete_object(Bucket="bucket", Key=key)
                written.pop(key, None)
            else:
                s3.put_object(Bucket="bucket", Key=key, Body=body)
                written[key] = body
            number += 1

    writer = threading.Thread(target=overwrite)
    writer.start()
    try:
        for factor in (3, 1, 2, 3, 2):
            server.config["replication"]["factor"] = factor
            server.config_path.write_text(yaml.safe_dump(server.config, sort_keys=False))
            os.kill(server.process.pid, signal.SIGHUP)
            stop.wait(1.5)
    finally:
        stop.set()
        writer.join()
    wait_for_copies(server, 2)
    settle(server)
    for key, body in written.items():
        assert read(s3, "bucket", key) == body
