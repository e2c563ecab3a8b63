"""Instances share a backlog: no row is processed twice, and a late settlement changes nothing."""

import contextlib
import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

import seaweed
from holding_proxy import HoldingProxy
from polling import eventually
from s3_checks import body_of
from server_process import KEYS, binary
from settled_state import QUICK, settle

pytestmark = [pytest.mark.alone, pytest.mark.timeout(90)]

OBJECTS = 2000
WRITES = 120
STALE = 50
OBJECT_BYTES = 700


def metric(server, name):
    return server.metrics().get(name, 0)


def processed(server, status):
    return metric(server, f's3o_cleanup_queue_processed_total{{status="{status}"}}')


def pause(server, worker, verb="pause"):
    assert server.admin("POST", f"/admin/api/workers/{worker}/{verb}")[0] == 200


def run_everywhere(servers, worker):
    """Runs a worker on all instances at the same time."""
    with ThreadPoolExecutor(len(servers)) as pool:
        reports = list(pool.map(lambda server: server.run_worker(worker), servers))
    assert {report["outcome"] for report in reports} == {"ok"}, reports
    return reports


def quota_accounting(server):
    """Sums of orphan and reserved bytes, and the difference between used and located bytes."""
    row = server.rows(
        "SELECT sum(orphan_bytes), sum(reserved_bytes), sum(used_bytes) - "
        "(SELECT coalesce(sum(size_bytes), 0) FROM object_locations) FROM backend_quotas"
    )[0]
    return [int(number) for number in row]


def write_and_delete(server, count):
    """Writes and deletes this many objects with the load generator."""
    key = KEYS["admin"]
    arguments = ["bench", "--endpoint", server.endpoint, "--access-key", key.access_key, "--secret-key", key.secret_key]
    arguments += ["--bucket", "bucket", "--workloads", "put", "--sizes", str(OBJECT_BYTES), "--concurrency", "16"]
    arguments += ["--max-ops", str(count), "--duration", "60s"]
    subprocess.run([binary(), *arguments], check=True, capture_output=True, timeout=80)


def test_each_cleanup_is_done_once(instances):
    small_batches = {**QUICK["cleanup_queue"], "batch_size": 50, "claim_grace_period": "1m"}
    # Under load a write may take longer than the short leases.
    patient = {"pending_intents": {"min_age": "1m", "reaper_tick": "1m"}}
    servers = instances(3, {"cleanup_queue": small_batches, "write_path": patient})
    pause(servers[0], "cleanup")
    write_and_delete(servers[0], OBJECTS)
    queued, queued_bytes = servers[0].rows("SELECT count(*), sum(size_bytes) FROM cleanup_queue")[0]
    assert queued >= OBJECTS and quota_accounting(servers[0]) == [queued_bytes, 0, 0]
    run_everywhere(servers, "cleanup")
    assert servers[0].rows("SELECT count(*) FROM cleanup_queue")[0][0] == 0
    # A second delete on a folder reports that the file was absent.
    shares = [processed(server, "success") for server in servers]
    print(f"cleanups done by each instance: {shares}")
    assert sum(shares) == queued and all(shares), shares
    for server in servers:
        assert processed(server, "success_absent") == processed(server, "retry") == 0
        assert metric(server, 's3o_stale_settlements_total{worker="cleanup"}') == 0
    assert quota_accounting(servers[0]) == [0, 0, 0]
    assert servers[0].files() == set()


@contextlib.contextmanager
def unfinished_writes(server, count):
    """Writes whose bodies never end."""
    raw = server.raw()
    with contextlib.ExitStack() as connections:
        for number in range(count):
            connection = connections.enter_context(contextlib.closing(raw.connect()))
            headers = {"Content-Length": str(OBJECT_BYTES)}
            target, headers, _ = raw.prepare("PUT", f"/bucket/unfinished-{number}", headers=headers)
            raw.start(connection, "PUT", target, headers)
            connection.send(b"begun")
        yield


def test_each_intent_of_a_dead_instance_is_resolved_once(instances):
    one_by_one = {**QUICK["write_path"]["pending_intents"], "batch_size": 5}
    dead, *others = instances(3, {"write_path": {"pending_intents": one_by_one}})
    pause(dead, "pending_reaper")
    with unfinished_writes(dead, WRITES):
        eventually(lambda: dead.rows("SELECT count(*) FROM pending_objects")[0][0] == WRITES, 20)
        dead.kill()
    expired = "SELECT count(*) FROM pending_objects WHERE lease_until <= extract(epoch FROM now()) * 1000"
    eventually(lambda: others[0].rows(expired)[0][0] == WRITES, 10, message="the leases do not expire")
    reports = run_everywhere(others, "pending_reaper")
    shares = [report["items"].get("dropped", 0) for report in reports]
    print(f"intents resolved by each instance: {shares}")
    assert sum(shares) == WRITES and all(shares), shares
    settle(others[0])
    done = sum(processed(server, status) for server in others for status in ("success", "success_absent"))
    assert done == WRITES
    assert quota_accounting(others[0]) == [0, 0, 0]


@pytest.fixture
def suspended_and_other(instances):
    """Two instances whose store calls can be held, and rows in the cleanup queue."""
    store = seaweed.fresh_bucket()
    proxies = [HoldingProxy(store["endpoint"]) for _ in range(2)]
    short_claims = {"cleanup_queue": {**QUICK["cleanup_queue"], "claim_grace_period": "1s"}}
    servers = instances(2, short_claims, [{**store, "endpoint": proxy.endpoint} for proxy in proxies])
    pause(servers[0], "cleanup")
    for number in range(STALE):
        assert servers[1].raw().request("PUT", f"/bucket/{number}", body=body_of(OBJECT_BYTES, number)).status == 200
    for number in range(STALE):
        assert servers[1].raw().request("DELETE", f"/bucket/{number}").status == 204
    with contextlib.ExitStack() as closing:
        for proxy in proxies:
            closing.enter_context(contextlib.closing(proxy))
            proxy.hold("POST", "delete")
        yield tuple(zip(servers, proxies))


def claimed(server, condition="token IS NOT NULL"):
    return server.rows(f"SELECT count(*) FROM cleanup_queue WHERE {condition}")[0][0]


@pytest.mark.parametrize("moment", ["while the other works on them", "when the other is done"])
def test_suspended_instance_settles_no_row_claimed_by_another(suspended_and_other, moment):
    (frozen, frozen_proxy), (other, other_proxy) = suspended_and_other
    with ThreadPoolExecutor(2) as pool:
        late = pool.submit(frozen.run_worker, "cleanup")
        assert frozen_proxy.held.wait(10) and claimed(other) == STALE
        os.kill(frozen.process.pid, signal.SIGSTOP)
        try:
            free = "claimed_at <= extract(epoch FROM now()) * 1000 - 1000"
            eventually(lambda: claimed(other, free) == STALE, 10, message="the claims do not become stale")
            good = pool.submit(other.run_worker, "cleanup")
            assert other_proxy.held.wait(10), "the other instance did not claim the rows"
            if moment == "when the other is done":
                other_proxy.release()
                assert good.result(30)["items"] == {"recovered": STALE, "success": STALE}
        finally:
            os.kill(frozen.process.pid, signal.SIGCONT)
        before = (claimed(other), quota_accounting(other))
        frozen_proxy.release()
        report = late.result(30)
        assert (report["outcome"], report["items"]) == ("ok", {"stale": STALE})
        assert (claimed(other), quota_accounting(other)) == before, "it changed rows that another instance had claimed"
        other_proxy.release()
        assert good.result(30)["items"] == {"recovered": STALE, "success": STALE}
    assert metric(frozen, 's3o_stale_settlements_total{worker="cleanup"}') == STALE
    assert metric(other, 's3o_stale_settlements_total{worker="cleanup"}') == 0
    assert metric(other, 's3o_cleanup_queue_stale_claims_recovered_total{backend="store"}') == STALE
    assert (processed(frozen, "success"), processed(other, "success")) == (0, STALE)
    assert quota_accounting(other) == [0, 0, 0] and claimed(other, "true") == 0
    for server in (frozen, other):
        assert metric(server, 's3o_quota_orphan_bytes{backend="store"}') == 0
    settle(other)
    assert frozen.raw().request("PUT", "/bucket/after", body=b"goes on").status == 200
    assert other.raw().request("GET", "/bucket/after").body == b"goes on"
