"""An untrusted clock: time-based deletes are paused, everything else continues."""

import contextlib
import ctypes
import json
import sqlite3
import time

import pytest

from admin_client import command
from polling import eventually
from settled_state import QUICK

pytestmark = pytest.mark.usefixtures("s3o_only")

TIME_ERROR = 5
AHEAD_SECONDS = 7200
DAY_SECONDS = 86400


def kernel_is_synchronised():
    buffer = ctypes.create_string_buffer(1024)
    return ctypes.CDLL(None).adjtimex(buffer) not in (-1, TIME_ERROR)


def audited(server, event):
    return json.loads(server.admin("GET", f"/admin/api/audit?event={event}")[1])["items"]


def note_a_time(server, seconds_ahead):
    """Replaces the newest time in the catalog."""
    # Closing the connection removes the write-ahead log, which a start would refuse after a clean stop.
    with contextlib.closing(sqlite3.connect(server.catalog)) as catalog, catalog:
        catalog.execute("UPDATE cluster SET noted_at = ?", (int((time.time() + seconds_ahead) * 1000),))


@pytest.mark.skipif(kernel_is_synchronised(), reason="the kernel reports the clock of this machine as synchronised")
def test_clock_behind_the_catalog_pauses_time_based_deletes(own_server):
    server = own_server(settings=QUICK).start()
    server.s3().create_bucket(Bucket="bucket")
    assert server.stop() == 0
    note_a_time(server, AHEAD_SECONDS)
    server.start()
    clock = server.clock()
    assert clock["state"] == "held" and "behind the newest time in the catalog" in clock["reason"], clock
    for worker in ("expiry", "lifecycle", "stale_multipart"):
        report = server.run_worker(worker)
        assert (report["outcome"], report["reason"]) == ("skipped", clock["reason"]), report
    for worker in ("cleanup", "pending_reaper", "quota_audit", "watchdog"):
        assert server.run_worker(worker)["outcome"] == "ok", worker
    # Requests and their deletes continue.
    server.s3().put_object(Bucket="bucket", Key="key", Body=b"x")
    server.s3().delete_object(Bucket="bucket", Key="key")
    eventually(lambda: not server.files(), 20, 0.1, "the bytes were not deleted")
    assert clock["reason"] in command(server, "status").stdout
    assert [line["reason"] for line in audited(server, "clock.frozen")][-1] == clock["reason"]
    status, body = server.admin("POST", "/admin/api/clock/accept")
    assert (status, json.loads(body)) == (200, {"accepted": True, "held": clock["reason"]})
    assert server.clock()["state"] == "ok"
    assert server.run_worker("expiry")["outcome"] == "ok"
    [accepted] = [line for line in audited(server, "clock.accepted") if line["reason"] == clock["reason"]]
    assert accepted["actor"] == "admin" and accepted["request_id"]


@pytest.mark.skipif(kernel_is_synchronised(), reason="the kernel reports the clock of this machine as synchronised")
def test_unsynchronised_clock_pauses_deletes_after_a_long_stop(own_server):
    server = own_server(settings=QUICK).start()
    assert server.clock()["state"] == "ok", "an empty catalog has no object that could expire too early"
    assert server.stop() == 0
    assert server.start().clock()["state"] == "ok", "the stop was short"
    assert server.stop() == 0
    note_a_time(server, -DAY_SECONDS)
    server.start()
    assert "synchronised at the start" in server.clock()["reason"]
    assert server.run_worker("expiry")["outcome"] == "skipped"
    assert server.admin("POST", "/admin/api/clock/accept")[0] == 200
    assert server.run_worker("expiry")["outcome"] == "ok"


@pytest.mark.skipif(not kernel_is_synchronised(), reason="the kernel does not report the clock of this machine as synchronised")
def test_a_synchronised_clock_is_trusted_over_the_catalog(own_server):
    server = own_server(settings=QUICK).start()
    assert server.stop() == 0
    note_a_time(server, AHEAD_SECONDS)
    server.start()
    assert server.clock()["state"] == "ok"
    assert server.run_worker("expiry")["outcome"] == "ok"
