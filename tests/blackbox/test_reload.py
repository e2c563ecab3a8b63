"""Settings that are read again at a hang-up: all of the file, or none of it."""

import json
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import yaml

from asking import ask
from facts import body_of, read, refused
from polling import eventually
from running import ADMIN_TOKEN, s3_client
from signing import Credentials

SECONDS = 20
NEW = Credentials("rotated", "another secret")


def told(server, event):
    """The events of this name in the audit file."""
    lines = map(json.loads, (server.folder / "s3o-data" / "audit.jsonl").read_text().splitlines())
    return [line for line in lines if line["event"] == event]


def hang_up(server, text=None):
    """Writes the settings and says so; returns what the audit trail says of it."""
    before = len(told(server, "config.reloaded")) + len(told(server, "config.refused"))
    server.config_path.write_text(text if text is not None else yaml.safe_dump(server.config, sort_keys=False))
    os.kill(server.process.pid, signal.SIGHUP)

    def answered():
        told_now = told(server, "config.reloaded") + told(server, "config.refused")
        return sorted(told_now, key=lambda line: line["time"])[before:]

    return eventually(answered, SECONDS, message="the settings were not read again")[-1]


def worker(server, name):
    status, listed = ask(server, "GET", "/workers")
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
    assert hang_up(server)["event"] == "config.reloaded"

    with refused("InvalidAccessKeyId"):
        old.list_buckets()
    new = s3_client(server.endpoint, NEW)
    assert {entry["Name"] for entry in new.list_buckets()["Buckets"]} == {"first", "configured"}
    new.put_object(Bucket="first", Key="fits", Body=body_of(60_000))
    with refused("EntityTooLarge"):
        new.put_object(Bucket="first", Key="large", Body=body_of(70_000))
    with refused("InsufficientStorage", 507):
        new.put_object(Bucket="first", Key="no room", Body=body_of(60_000))
    assert worker(server, "cleanup")["interval_seconds"] == 17

    del server.config["backends"][0]["quota"]
    hang_up(server)
    new.put_object(Bucket="first", Key="no room", Body=body_of(60_000))
    assert read(new, "first", "fits") == body_of(60_000)


def test_a_worker_that_would_have_slept_for_long_follows_its_new_interval(own_server):
    server = own_server(settings={"watchdog": {"interval": "300h"}}).start()
    server.config["watchdog"] = {"interval": "200ms"}
    hang_up(server)
    eventually(lambda: (worker(server, "watchdog")["last_run"] or {}).get("outcome") == "ok", SECONDS, message="no run")


def test_a_bad_file_changes_nothing_and_every_fault_is_named(own_server):
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
            eventually(lambda: len(told(server, "config.refused")) == 4, SECONDS, message="not refused")
        else:
            assert hang_up(server, text)["event"] == "config.refused", text
    first = told(server, "config.refused")[0]["error"]
    paths = ("access_keys[0].secret_access_key", "buckets[1].name", "buckets[2].name", "cleanup_queue.interval", "surprise")
    for path in paths:
        assert path in first and path in server.log(), (path, first)
    assert {entry["Name"] for entry in server.s3().list_buckets()["Buckets"]} == {"first"}
    assert worker(server, "cleanup")["interval_seconds"] == before
    assert told(server, "config.reloaded") == []


def put_while(server, act):
    """PUTs on a connection of their own until `act` is done; returns its answer, and says that none of them waited."""
    raw, done = server.raw(), threading.Event()
    connection = raw.connect(timeout=SECONDS)

    def go_on():
        waits = []
        while not done.is_set():
            began = time.monotonic()
            assert raw.request("PUT", "/first/beside", body=b"x", on=connection).status == 200
            waits.append(time.monotonic() - began)
        return waits

    with ThreadPoolExecutor(1) as pool:
        beside = pool.submit(go_on)
        try:
            answer = act()
        finally:
            done.set()
        waits = beside.result(SECONDS)
    assert len(waits) > 5 and max(waits) < 3, waits
    return answer


def test_a_file_that_never_answers_or_never_ends_holds_nobody_up(own_server):
    server = own_server().start()
    server.s3().create_bucket(Bucket="first")
    path = server.config_path

    def refused_as(kind):
        before = len(told(server, "config.refused"))
        path.unlink()
        os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
        os.kill(server.process.pid, signal.SIGHUP)
        time.sleep(0.3)
        return eventually(lambda: told(server, "config.refused")[before:], SECONDS, message="not refused")[-1]["error"]

    for kind in ("pipe", "endless"):
        assert "not a regular file" in put_while(server, lambda kind=kind: refused_as(kind)), kind
    path.unlink()
    assert "larger than 1 MiB" in hang_up(server, "#" * (1024 * 1024 + 1))["error"]
    assert hang_up(server)["event"] == "config.reloaded"
    assert server.stop() == 0


def test_another_order_of_backends_needs_a_restart(own_server):
    server = own_server()
    server.config["backends"].append({"name": "second", "kind": "fs", "root": str(server.folder / "second")})
    server.start().s3().create_bucket(Bucket="first")

    def homes():
        return {row[0] for row in server.rows("SELECT backend_name FROM object_locations")}

    server.config["backends"].reverse()
    assert hang_up(server)["needs_restart"] == ["backends"]
    server.s3().put_object(Bucket="first", Key="k", Body=b"x")
    assert homes() == {"disk"}
    assert server.stop() == 0
    server.start().s3().put_object(Bucket="first", Key="l", Body=b"y")
    assert homes() == {"disk", "second"}


def test_what_needs_a_restart_is_named_and_stays(own_server):
    server = own_server().start()
    server.s3().create_bucket(Bucket="first")
    server.config["server"]["region"] = "eu-north-1"
    server.config["backends"].append({"name": "more", "kind": "fs", "root": str(server.folder / "more")})
    assert hang_up(server)["needs_restart"] == ["server.region", "backends"]
    assert "needs a restart" in server.log()
    assert server.s3().list_buckets()["Buckets"], "the old region still signs"
    assert hang_up(server)["needs_restart"] == ["server.region", "backends"], "they still do"
    assert server.stop() == 0


def test_a_reload_keeps_the_claims_of_an_expiry_tick_that_failed(own_server):
    """Without them, the rows that the tick had claimed wait for the watchdog: two hours."""
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
    given_up = server.rows("SELECT count(*) FROM findings")[0][0]
    assert claimed() == 40 > given_up, "the tick gave up with claims in hand"
    server.database.change("DROP TRIGGER refuses")
    assert hang_up(server)["event"] == "config.reloaded"
    server.run_worker("expiry")
    eventually(lambda: claimed() == given_up, SECONDS, message="the rows of the failed tick were not removed")


def test_the_admin_token_is_rotated(own_server):
    server = own_server().start()
    server.config["admin"]["token"] = "another token"
    hang_up(server)
    assert ask(server, "GET", "/workers", token=ADMIN_TOKEN)[0] == 401
    assert ask(server, "GET", "/workers", token="another token")[0] == 200


def test_the_audit_file_is_opened_again_where_it_was_moved_away(own_server):
    server = own_server().start()
    server.s3().create_bucket(Bucket="first")
    eventually(lambda: told(server, "s3.CreateBucket"), SECONDS, message="not noted")
    path = server.folder / "s3o-data" / "audit.jsonl"
    moved = path.rename(path.with_suffix(".1"))
    path.touch()
    hang_up(server)
    server.s3().create_bucket(Bucket="second")
    eventually(lambda: told(server, "s3.CreateBucket"), SECONDS, message="not noted in the new file")
    assert "second" in path.read_text() and "second" not in moved.read_text()


def test_writes_under_way_outlive_a_lease_that_became_shorter(own_server):
    """Renewal follows the new length at once; by the old one these writes would be taken for dead."""
    server = own_server(settings={"write_path": {"pending_intents": {"min_age": "1h", "reaper_tick": "50ms"}}}).start()
    server.s3().create_bucket(Bucket="first")
    server.config["write_path"] = {"pending_intents": {"min_age": "300ms", "reaper_tick": "50ms"}}
    hang_up(server)
    raw = server.raw()
    target, headers, _ = raw.prepare("PUT", "/first/slow", headers={"Content-Length": "6000"})

    def pieces():
        for _ in range(6):
            yield b"s" * 1000
            time.sleep(0.3)

    assert raw.send("PUT", target, headers, pieces()).status == 200
    assert read(server.s3(), "first", "slow") == b"s" * 6000
