"""Rebalancing: a dry run shows exactly what a run moves, and the used shares end up close to each other."""

import json
import os
import signal

import yaml

from admin_client import admin_request, command
from polling import eventually
from s3_checks import body_of, read
from settled_state import settle

SECONDS = 60
QUOTAS = (400_000, 800_000, 400_000)
SIZES = (3_000, 1_500, 700)


def uneven(disks, count, **settings):
    """Three folders with quotas, and objects that were all written to the first one."""
    server = disks(3, **settings)
    server.stop()
    for backend, quota in zip(server.config["backends"], QUOTAS):
        backend["quota"] = f"{quota}B"
    s3 = server.start().s3()
    for number in range(count):
        s3.put_object(Bucket="bucket", Key=f"key-{number}", Body=content(number))
    return server, s3


def content(number):
    return body_of(SIZES[number % len(SIZES)], f"key-{number}")


def shares(server):
    backends = admin_request(server, "GET", "/status")[1]["backends"]
    return {backend["name"]: backend["used"] / backend["limit"] for backend in backends}


def places(server):
    return set(server.rows("SELECT content_id, backend_name FROM object_locations"))


def moved_events(server):
    lines = (server.folder / "s3o-data/audit.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    return [event for event in events if event["event"] == "rebalance.moved"]


def assert_all_readable(s3, count):
    for number in range(count):
        assert read(s3, "bucket", f"key-{number}") == content(number), number


def test_dry_run_shows_exactly_what_a_run_moves(disks):
    server, s3 = uneven(disks, 180)
    before = places(server)
    shown = admin_request(server, "POST", "/workers/rebalancer/run?dry_run=true")
    assert shown[0] == 200 and shown[1]["dry_run"] and shown[1]["plan"]["complete"]
    moves = shown[1]["plan"]["moves"]
    assert len(moves) == shown[1]["items"]["moved"] > 20
    assert places(server) == before and not moved_events(server)
    listed = command(server, "rebalance", "--dry-run")
    assert listed.returncode == 0, listed.stderr
    assert f"{len(moves)} copies" in listed.stdout and moves[0]["physical_key"] in listed.stdout
    run = command(server, "rebalance", "--json")
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["items"] == {"moved": len(moves)}
    planned = {(move["content"], move["physical_key"], move["from"], move["to"], move["size_bytes"]) for move in moves}
    happened = {
        (event["content"], event["from_key"], event["from"], event["backend"], event["size_bytes"])
        for event in moved_events(server)
    }
    assert happened == planned
    gone, new = {(move["content"], move["from"]) for move in moves}, {(move["content"], move["to"]) for move in moves}
    assert places(server) == (before - gone) | new
    final = shares(server)
    assert max(final.values()) - min(final.values()) <= 0.1, final
    settle(server)
    assert_all_readable(s3, 180)
    # Nothing is left to do: moved bytes that wait for deletion do not count.
    assert "nothing to move" in command(server, "rebalance", "--dry-run").stdout
    assert command(server, "verify", "--deep").returncode == 0


def test_rebalance_follows_the_configuration(disks):
    server, s3 = uneven(disks, 180)
    workers = {worker["name"]: worker for worker in admin_request(server, "GET", "/workers")[1]["items"]}
    assert workers["rebalancer"]["enabled"] is False and workers["rebalancer"]["next_due_at"] is None
    assert workers["replicator"]["enabled"] is True
    server.config["rebalance"] = {"enabled": True, "interval": "300ms", "threshold": 0.05, "batch_size": 7}
    reload(server)
    eventually(lambda: max(shares(server).values()) - min(shares(server).values()) <= 0.05, SECONDS, 0.2)
    server.config["rebalance"] = {"enabled": False, "strategy": "pack"}
    reload(server)

    def is_packed():
        assert command(server, "rebalance").returncode == 0
        return shares(server)["disk1"] == shares(server)["disk2"] == 0

    eventually(is_packed, SECONDS, 0.5)
    settle(server)
    assert_all_readable(s3, 180)


def reload(server):
    server.config_path.write_text(yaml.safe_dump(server.config, sort_keys=False))
    os.kill(server.process.pid, signal.SIGHUP)


def test_copies_stay_on_different_backends(disks):
    server, s3 = uneven(disks, 60, replication={"factor": 2, "write_copies": 2, "interval": "200ms"})
    assert shares(server)["disk2"] == 0
    assert command(server, "rebalance").returncode == 0
    final = shares(server)
    assert max(final.values()) - min(final.values()) <= 0.1, final
    pairs = server.rows("SELECT content_id, count(*), count(DISTINCT backend_name) FROM object_locations GROUP BY 1")
    assert {(copies, backends) for _, copies, backends in pairs} == {(2, 2)}
    settle(server)
    assert_all_readable(s3, 60)


def test_objects_that_change_during_a_rebalance_are_intact(disks):
    server, s3 = uneven(disks, 120, rebalance={"enabled": True, "interval": "100ms", "batch_size": 5})
    written = {}
    for number in range(240):
        key = f"key-{number % 120}"
        if number % 7 == 0:
            s3.delete_object(Bucket="bucket", Key=key)
            written[key] = None
        else:
            body = body_of(1_200, f"new-{number}")
            s3.put_object(Bucket="bucket", Key=key, Body=body)
            written[key] = body
    settle(server)
    listed = {entry["Key"] for entry in s3.list_objects_v2(Bucket="bucket")["Contents"]}
    assert listed == {key for key, body in written.items() if body is not None}
    for key, body in written.items():
        assert body is None or read(s3, "bucket", key) == body, key
