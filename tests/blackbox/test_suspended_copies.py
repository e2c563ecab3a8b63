"""An instance that is suspended in the middle of a copy or of a raise, for longer than its lease: another instance takes
over, and the suspended one adds nothing when it goes on."""

import contextlib
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

import seaweed
from admin_client import command
from holding_proxy import HoldingProxy
from polling import eventually
from s3_checks import body_of, read
from settled_state import QUICK, settle

pytestmark = [pytest.mark.alone, pytest.mark.timeout(120)]

SECONDS = 30
BODY = body_of(30_000)
LEASE_SECONDS = 1
PRESENT = "SELECT backend_name FROM object_locations WHERE state = 'present' ORDER BY backend_name"
SETTINGS = {
    "write_path": {"pending_intents": {**QUICK["write_path"]["pending_intents"], "min_age": f"{LEASE_SECONDS}s"}},
    # Only the runs of this test occur.
    "replication": {"factor": 2, "write_copies": 1, "interval": "1h", "over_replication_interval": "1h"},
    "identity": {"interval": "1h", "probe_interval": "1h"},
}


def pause(server, worker):
    assert server.admin("POST", f"/admin/api/workers/{worker}/pause")[0] == 200


@pytest.fixture
def suspended_and_other(instances, tmp_path):
    """Two instances on a folder and a store, which they reach through proxies."""
    store = seaweed.fresh_bucket()
    folder = {"name": "disk", "kind": "fs", "root": str(tmp_path / "disk")}
    with contextlib.ExitStack() as closing:
        proxies = [closing.enter_context(contextlib.closing(HoldingProxy(store["endpoint"]))) for _ in range(2)]
        backends = [[folder, {**store, "endpoint": proxy.endpoint}] for proxy in proxies]
        servers = instances(2, SETTINGS, all_backends=backends, lock_timeout="1s")
        for server in servers:
            pause(server, "replicator")
            pause(server, "identity")
        yield (servers[0], proxies[0]), servers[1]


@contextlib.contextmanager
def suspended(server):
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.process.pid, signal.SIGCONT)


def copies(server):
    return [name for (name,) in server.rows(PRESENT)]


@pytest.mark.parametrize("taker", ["no instance", "the other instance"])
def test_copy_of_a_suspended_instance_is_not_committed(suspended_and_other, taker):
    (late, proxy), other = suspended_and_other
    other.s3().put_object(Bucket="bucket", Key="a", Body=BODY)
    assert copies(other) == ["disk"]
    with ThreadPoolExecutor(1) as pool:
        proxy.hold("PUT", "/a~")
        run = pool.submit(late.run_worker, "replicator")
        assert proxy.held.wait(SECONDS), "no copy was begun"
        with suspended(late):
            # Its lease ends, and the reaper of the other instance resolves it.
            resolved = lambda: other.run_worker("pending_reaper") and not other.rows("SELECT 1 FROM pending_objects")
            eventually(resolved, SECONDS, message="the copy is not given up")
            if taker == "the other instance":
                eventually(lambda: other.run_worker("replicator") and len(copies(other)) == 2, SECONDS)
            before = other.rows("SELECT physical_key FROM object_locations ORDER BY physical_key")
        # The bytes of the late copy arrive now.
        proxy.release()
        run.result(SECONDS)
    assert other.rows("SELECT physical_key FROM object_locations ORDER BY physical_key")[: len(before)] == before
    eventually(lambda: other.run_worker("replicator") and len(copies(other)) == 2, SECONDS)
    settle(other)
    assert copies(other) == ["disk", "store"]
    assert read(late.s3(), "bucket", "a") == read(other.s3(), "bucket", "a") == BODY
    assert command(other, "verify", "--deep").returncode == 0


def test_mark_of_a_suspended_instance_is_not_believed(suspended_and_other):
    (late, proxy), other = suspended_and_other
    mark = "SELECT mark, mark_sequence, next_mark FROM backends WHERE name = 'store'"
    (_, first, _) = other.rows(mark)[0]
    with ThreadPoolExecutor(1) as pool:
        proxy.hold("PUT", "identity.json")
        run = pool.submit(late.run_worker, "identity")
        assert proxy.held.wait(SECONDS), "no mark was written"
        planned = other.rows(mark)[0][2]
        assert planned is not None
        with suspended(late):
            # As after the end of its lease of 30 seconds.
            other.database.change("UPDATE backends SET mark_planned_until = 1")
            # The suspended instance loses the lock of the worker after a second.
            eventually(lambda: other.run_worker("identity")["outcome"] == "ok", SECONDS, 0.2)
            (confirmed, second, _) = other.rows(mark)[0]
            assert confirmed != planned and second == first + 2, "the open raise and one of its own"
        proxy.release()
        run.result(SECONDS)
    for server in (late, other):
        server.run_worker("identity")
    (last, sequence, left) = other.rows(mark)[0]
    assert last != planned and sequence > second and left is None
    for server in (late, other):
        assert not any(count for name, count in server.metrics().items() if name.startswith("s3o_backend_frozen"))
        server.s3().put_object(Bucket="bucket", Key=f"after-{server.folder.name}", Body=b"goes on")
    settle(other)
