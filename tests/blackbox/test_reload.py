"""Reload on SIGHUP: the whole file is applied, or none of it."""

import json
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import yaml

from admin_client import admin_request
from polling import eventually
from s3_checks import body_of, read, refused
from server_process import ADMIN_TOKEN, s3_client
from signing import Credentials

SECONDS = 20
NEW = Credentials("rotated", "another secret")


def audited(server, event):
    """Audit lines of this event."""
    lines = map(json.loads, (server.folder / "s3o-data" / "audit.jsonl").read_text().splitlines())
    return [line for line in lines if line["event"] == event]


def reload(server, text=None):
    """Writes the configuration, sends SIGHUP and returns the audit line of the reload."""
    before = len(audited(server, "config.reloaded")) + len(audited(server, "config.refused"))
    server.config_path.write_text(text if text is not None else yaml.safe_dump(server.config, sort_keys=False))
    os.kill(server.process.pid, signal.SIGHUP)

    def answered():
        audited_now = audited(server, "config.reloaded") + audited(server, "config.refused")
        return sorted(audited_now, key=lambda line: line["time"])[before:]

    return eventually(answered, SECONDS, message="no reload was audited")[-1]


def worker(server, name):
    status, listed = admin_request(server, "GET", "/workers")
    assert status == 200
    return next(entry for entry in listed["items"] if entry["name"] == name)


def test_keys_buckets_quotas_and_workers_change_without_a_restart(own_server):
    server = own_server().start()
    old = server.s3()
    old.create_bucket(Bucket="first")
    server.config["access_keys"] = [
        {"access_key_id": NEW.access_key, "secret_access_key": NEW.secret_key, "access": "admin"}
    ]
    server.config["buckets"] = [{"name": "configured"}]
    server.config["backends"][0]["quota"] = "100KiB"
    server.config["cleanup_queue"] = {"interval": "17s"}
    server.config["server"]["max_object_size"] = "64KiB"
    assert reload(server)["event"] == "config.reloaded"

    with refused("InvalidAccessKeyId"):
        old.list_buckets()
    new = s3_client(server.endpoint, NEW)
    assert {entry["Name"] for entry in new.list_buckets()["Buckets"]} == {"first", "configured"}
    new.put_object(Bucket="first", Key="fits", Body=body_of(60_000))
    with refused("EntityTooLarge"):
        new.put_object(Bucket="first", Key="large", Body=body_of(70_000))
    with refused("InsufficientStorage", 507):
        new.put_object(Bucket="first", Key="too large", Body=body_of(60_000))
    assert worker(server, "cleanup")["interval_seconds"] == 17

    del server.config["backends"][0]["quota"]
    server.config["backends"][0]["max_object_size"] = "10KiB"
    reload(server)
    with refused("EntityTooLarge", 400):
        new.put_object(Bucket="first", Key="too large for every backend", Body=body_of(10_241))
    del server.config["backends"][0]["max_object_size"]
    reload(server)
    new.put_object(Bucket="first", Key="too large", Body=body_of(60_000))
    assert read(new, "first", "fits") == body_of(60_000)


def test_reload_applies_a_shorter_worker_interval_at_once(own_server):
    server = own_server(settings={"watchdog": {"interval": "300h"}}).start()
    server.config["watchdog"] = {"interval": "200ms"}
    reload(server)
    eventually(lambda: (worker(server, "watchdog")["last_run"] or {}).get("outcome") == "ok", SECONDS, message="no run")


def test_invalid_file_changes_nothing_and_every_error_is_reported(own_server):
    server = own_server().start()
    server.s3().create_bucket(Bucket="first")
    before = worker(server, "cleanup")["interval_seconds"]
    bad = {
        **server.config,
        "access_keys": [{"access_key_id": NEW.access_key}],
        "buckets": [{"name": "configured"}, {"name": "NOT A BUCKET"}, {"name": "configured"}],
        "cleanup_queue": {"interval": "17 parsecs"},
        "surprise": 1,
    }
    for text in (yaml.safe_dump(bad), "backends: [", "", None):
        if text is None:
            server.config_path.unlink()
            os.kill(server.process.pid, signal.SIGHUP)
            eventually(lambda: len(audited(server, "config.refused")) == 4, SECONDS, message="not refused")
        else:
            assert reload(server, text)["event"] == "config.refused", text
    first = audited(server, "config.refused")[0]["error"]
    paths = (
        "access_keys[0].secret_access_key",
        "buckets[1].name",
        "buckets[2].name",
        "cleanup_queue.interval",
        "surprise",
    )
    for path in paths:
        assert path in first and path in server.log(), (path, first)
    assert {entry["Name"] for entry in server.s3().list_buckets()["Buckets"]} == {"first"}
    assert worker(server, "cleanup")["interval_seconds"] == before
    assert audited(server, "config.reloaded") == []


def put_while(server, act):
    """Sends PUTs on a separate connection while `act` runs; returns its result and checks that no PUT was delayed."""
    raw, done = server.raw(), threading.Event()
    connection = raw.connect(timeout=SECONDS)

    def put_until_done():
        waits = []
        while not done.is_set():
            began = time.monotonic()
            assert raw.request("PUT", "/first/beside", body=b"x", on=connection).status == 200
            waits.append(time.monotonic() - began)
        return waits

    with ThreadPoolExecutor(1) as pool:
        beside = pool.submit(put_until_done)
        try:
            answer = act()
        finally:
            done.set()
        waits = beside.result(SECONDS)
    assert len(waits) > 5 and max(waits) < 3, waits
    return answer


def test_unreadable_or_endless_file_delays_no_request(own_server):
    server = own_server().start()
    server.s3().create_bucket(Bucket="first")
    path = server.config_path

    def refused_as(kind):
        before = len(audited(server, "config.refused"))
        path.unlink()
        os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
        os.kill(server.process.pid, signal.SIGHUP)
        time.sleep(0.3)
        return eventually(lambda: audited(server, "config.refused")[before:], SECONDS, message="not refused")[-1][
            "error"
        ]

    for kind in ("pipe", "endless"):
        assert "not a regular file" in put_while(server, lambda kind=kind: refused_as(kind)), kind
    path.unlink()
    assert "larger than 1 MiB" in reload(server, "#" * (1024 * 1024 + 1))["error"]
    assert reload(server)["event"] == "config.reloaded"
    assert server.stop() == 0


def test_new_order_of_backends_needs_a_restart(own_server):
    server = own_server()
    server.config["backends"].append({"name": "second", "kind": "fs", "root": str(server.folder / "second")})
    server.start().s3().create_bucket(Bucket="first")

    def located_on():
        return {row[0] for row in server.rows("SELECT backend_name FROM object_locations")}

    server.config["backends"].reverse()
    assert reload(server)["needs_restart"] == ["backends"]
    server.s3().put_object(Bucket="first", Key="k", Body=b"x")
    assert located_on() == {"disk"}
    assert server.stop() == 0
    server.start().s3().put_object(Bucket="first", Key="l", Body=b"y")
    assert located_on() == {"disk", "second"}


def test_settings_that_need_a_restart_are_named_and_kept(own_server):
    server = own_server().start()
    server.s3().create_bucket(Bucket="first")
    server.config["server"]["region"] = "eu-north-1"
    server.config["backends"].append({"name": "more", "kind": "fs", "root": str(server.folder / "more")})
    assert reload(server)["needs_restart"] == ["server.region", "backends"]
    assert "needs a restart" in server.log()
    assert server.s3().list_buckets()["Buckets"], "signatures for the old region are still valid"
    assert reload(server)["needs_restart"] == ["server.region", "backends"], "the changes still need a restart"
    assert server.stop() == 0


def test_a_reload_keeps_the_claims_of_an_expiry_tick_that_failed(own_server):
    """Without the claims, the rows would wait two hours for the watchdog."""
    server = own_server(settings={"expiry": {"interval": "300h"}, "watchdog": {"interval": "300h"}}).start()
    raw = server.raw()
    server.s3().create_bucket(Bucket="mortal")
    for number in range(40):
        path = f"/mortal/{number}"
        assert raw.request("PUT", path, headers={"x-s3o-expires-after": "1ms"}, body=b"x").status == 200

    def claimed():
        return server.rows("SELECT count(*) FROM objects WHERE deletion_status = 'DELETION_IN_PROGRESS'")[0][0]

    server.database.change(
        "CREATE TRIGGER refuses BEFORE DELETE ON objects BEGIN SELECT RAISE(ABORT, 'refused by the test'); END"
    )
    eventually(lambda: server.run_worker("expiry")["outcome"] == "error", SECONDS, message="the tick did not fail")
    undeletable = server.rows("SELECT count(*) FROM findings")[0][0]
    assert claimed() == 40 > undeletable, "the failed tick must keep its claims"
    server.database.change("DROP TRIGGER refuses")
    assert reload(server)["event"] == "config.reloaded"
    server.run_worker("expiry")
    eventually(lambda: claimed() == undeletable, SECONDS, message="the rows of the failed tick were not deleted")


def test_the_admin_token_is_rotated(own_server):
    server = own_server().start()
    server.config["admin"]["token"] = "another token"
    reload(server)
    assert admin_request(server, "GET", "/workers", token=ADMIN_TOKEN)[0] == 401
    assert admin_request(server, "GET", "/workers", token="another token")[0] == 200


def test_reload_reopens_a_rotated_audit_file(own_server):
    server = own_server().start()
    server.s3().create_bucket(Bucket="first")
    eventually(lambda: audited(server, "s3.CreateBucket"), SECONDS, message="not audited")
    path = server.folder / "s3o-data" / "audit.jsonl"
    moved = path.rename(path.with_suffix(".1"))
    path.touch()
    reload(server)
    server.s3().create_bucket(Bucket="second")
    eventually(lambda: audited(server, "s3.CreateBucket"), SECONDS, message="not audited in the new file")
    assert "second" in path.read_text() and "second" not in moved.read_text()


def test_open_writes_survive_a_reload_with_a_shorter_lease(own_server):
    """Renewals use the new length at once; with the old one the reaper would treat these writes as dead."""
    server = own_server(settings={"write_path": {"pending_intents": {"min_age": "1h", "reaper_tick": "50ms"}}}).start()
    server.s3().create_bucket(Bucket="first")
    server.config["write_path"] = {"pending_intents": {"min_age": "300ms", "reaper_tick": "50ms"}}
    reload(server)
    raw = server.raw()
    target, headers, _ = raw.prepare("PUT", "/first/slow", headers={"Content-Length": "6000"})

    def pieces():
        for _ in range(6):
            yield b"s" * 1000
            time.sleep(0.3)

    assert raw.send("PUT", target, headers, pieces()).status == 200
    assert read(server.s3(), "first", "slow") == b"s" * 6000
