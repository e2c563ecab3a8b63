"""The scrubber: bytes that change on one disk are replaced; wrong bytes without a good copy are kept and reported."""

import json
import math
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from admin_client import admin_request, command
from polling import eventually
from s3_checks import PART_BYTES_MIN, body_of, multipart, read, refused
from settled_state import settle

SECONDS = 60
CYCLE = {"integrity": {"enabled": True, "scrubber_interval": "300ms", "cycle": "600ms"}}
TWO_COPIES = {
    "replication": {"factor": 2, "write_copies": 2, "interval": "200ms", "over_replication_interval": "200ms"}
}


def files_of(server, key):
    """The files of the copies of an object that is no multipart upload, by backend."""
    rows = server.rows(
        "SELECT l.backend_name, l.physical_key FROM object_locations l JOIN objects o ON o.content_id = l.content_id "
        f"WHERE o.key = '{key}' ORDER BY l.backend_name"
    )
    return {name: Path(server.folder) / name / physical_key for name, physical_key in rows}


def flip(path, offset):
    """Changes one byte of a file in place."""
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))


def events(server, name):
    lines = (server.folder / "s3o-data/audit.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == name]


def test_bytes_flipped_on_different_copies_are_repaired_within_a_cycle(disks):
    server = disks(2, **TWO_COPIES, **CYCLE)
    s3 = server.s3()
    bodies = {f"key-{number}": body_of(1000 + number) for number in range(20)}
    for key, body in bodies.items():
        s3.put_object(Bucket="bucket", Key=key, Body=body)
    flipped = []
    for number, key in enumerate(bodies):
        if number % 3 < 2:
            path = files_of(server, key)[f"disk{number % 3}"]
            flip(path, number * 10)
            flipped.append(path.name)
    eventually(lambda: len(events(server, "scrub.repaired")) == len(flipped), SECONDS, 0.2)
    mismatches = events(server, "scrub.mismatch")
    assert sorted(Path(event["physical_key"]).name for event in mismatches) == sorted(flipped)
    settle(server)
    for key, body in bodies.items():
        assert read(s3, "bucket", key) == body
        assert {path.read_bytes() for path in files_of(server, key).values()} == {body}
    assert command(server, "verify", "--deep").returncode == 0


def test_object_without_a_good_copy_is_lost_and_both_files_are_kept(disks):
    server = disks(2, **TWO_COPIES)
    s3 = server.s3()
    for key in ("lost", "kept"):
        s3.put_object(Bucket="bucket", Key=key, Body=body_of(5000, key))
    paths = list(files_of(server, "lost").values())
    for offset, path in enumerate(paths):
        flip(path, offset)
    report = json.loads(command(server, "scrub", "--json").stdout)
    assert report["outcome"] == "ok" and report["items"]["mismatches"] == 2 and report["items"]["lost"] == 1, report
    for extra in ({}, {"Range": "bytes=2000-2999"}):
        with refused("InternalError", 500):
            s3.get_object(Bucket="bucket", Key="lost", **extra)
    assert read(s3, "bucket", "kept") == body_of(5000, "kept")
    for worker in ("replicator", "over_replication", "cleanup"):
        admin_request(server, "POST", f"/workers/{worker}/run")
    assert all(path.exists() for path in paths)
    assert any("are lost" in warning for warning in admin_request(server, "GET", "/status")[1]["warnings"])
    verified = command(server, "verify", "--deep")
    assert verified.returncode == 0 and "lost" in verified.stdout, verified.stdout
    flip(paths[1], 1)
    assert json.loads(command(server, "scrub", "--json").stdout)["items"]["proven"] == 1
    assert read(s3, "bucket", "lost") == body_of(5000, "lost")
    expected = [body_of(5000, "lost")] * 2
    eventually(lambda: [path.read_bytes() for path in files_of(server, "lost").values()] == expected, SECONDS, 0.2)
    settle(server)


def test_flipped_part_is_found_and_the_object_can_be_written_again(disks):
    server = disks(1)
    s3 = server.s3()
    parts = [body_of(PART_BYTES_MIN, "first"), body_of(700, "second")]
    multipart(s3, "bucket", "parts", parts)
    rows = server.rows("SELECT physical_key, size_bytes FROM object_locations ORDER BY size_bytes")
    flip(Path(server.folder) / "disk0" / rows[0][0], 350)
    assert json.loads(command(server, "scrub", "--json").stdout)["items"]["lost"] == 1
    with pytest.raises(ClientError):
        s3.get_object(Bucket="bucket", Key="parts", Range=f"bytes={PART_BYTES_MIN}-")
    assert read(s3, "bucket", "parts", Range="bytes=0-99") == parts[0][:100]
    multipart(s3, "bucket", "parts", parts)
    assert read(s3, "bucket", "parts") == b"".join(parts)
    settle(server)
    assert json.loads(command(server, "verify", "--json").stdout)["lost"]["contents"] == 0


def test_age_of_the_oldest_read_is_exported_and_falls_with_each_pass(disks):
    server = disks(1)
    server.s3().put_object(Bucket="bucket", Key="key", Body=b"body")
    assert math.isnan(server.metrics()["s3o_scrub_oldest_verified_seconds"]), "no pass has begun"
    assert command(server, "scrub").returncode == 0
    assert 0 <= server.metrics()["s3o_scrub_oldest_verified_seconds"] < 60
    workers = {worker["name"]: worker for worker in admin_request(server, "GET", "/workers")[1]["items"]}
    assert workers["scrubber"]["enabled"] is False and workers["scrubber"]["last_run"]["items"]["read"] == 1
