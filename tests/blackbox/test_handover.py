"""A locked worker runs on one instance at a time; another instance takes the lock of a dead or suspended one."""

import json
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import seaweed
from holding_proxy import HoldingProxy
from polling import eventually

pytestmark = [pytest.mark.alone, pytest.mark.timeout(90)]

ROUNDS = 15
INTERVAL_SECONDS = 0.4
LOCK_SECONDS = 1.0
# Tolerance for a busy machine.
SLACK_SECONDS = 2.0


def millis(seconds):
    return f"{seconds * 1000:.0f}ms"


def locked_workers(server):
    status, body = server.admin("GET", "/admin/api/workers")
    assert status == 200
    found = [worker["name"] for worker in json.loads(body)["items"] if worker["kind"] == "locked"]
    assert "identity" in found
    return found


def instance_of(server):
    """The instance name of this process."""
    run_id = server.run_worker("pending_reaper")["run_id"]
    return server.rows(f"SELECT instance FROM worker_runs WHERE run_id = '{run_id}'")[0][0]


def runs_of(server, worker):
    """Every recorded run as (started, finished, outcome, instance, error), in the order of their starts."""
    return server.rows(
        f"SELECT started_at, finished_at, outcome, instance, error FROM worker_runs WHERE worker = '{worker}' "
        "ORDER BY started_at, finished_at"
    )


def good_runs_of_others(server, worker, instance):
    return [run for run in runs_of(server, worker) if run[2] == "ok" and run[3] != instance]


def assert_apart(runs):
    took_place = [run for run in runs if run[2] != "skipped"]
    for earlier, later in zip(took_place, took_place[1:]):
        assert earlier[1] <= later[0], f"{earlier} and {later} overlap"


def test_a_locked_worker_runs_on_one_instance_at_a_time(instances):
    servers = instances(3)
    names = {instance_of(server) for server in servers}
    assert len(names) == 3
    with ThreadPoolExecutor(3) as pool:
        for worker in locked_workers(servers[0]):
            reports = []
            for _ in range(ROUNDS):
                reports += pool.map(lambda server: server.run_worker(worker), servers)
            runs = runs_of(servers[0], worker)
            assert_apart(runs)
            assert {report["outcome"] for report in reports} == {"ok", "skipped"}, reports
            skipped = [report for report in reports if report["outcome"] == "skipped"]
            holders = {report["holder"] for report in skipped}
            # A lock may be released before its holder is looked up; then no holder is named.
            assert holders & names and holders <= names | {"another instance"}, holders
            recorded = [error for *_, outcome, _, error in runs if outcome == "skipped"]
            assert sorted(recorded) == sorted(f"held by {report['holder']}" for report in skipped)


def test_instances_together_run_a_locked_worker_once_per_interval(instances):
    servers = instances(3, {"identity": {"interval": "200ms"}})
    began = time.monotonic()
    seen = len(runs_of(servers[0], "identity"))
    eventually(
        lambda: len(runs_of(servers[0], "identity")) >= seen + 10, 20, message="the worker does not run on schedule"
    )
    runs = runs_of(servers[0], "identity")
    intervals = (time.monotonic() - began) / 0.2
    assert_apart(runs)
    assert {run[2] for run in runs} == {"ok"}
    assert len(runs) - seen <= 1.5 * intervals + 2, f"{len(runs) - seen} runs in {intervals:.1f} intervals"


class Holder:
    """An instance whose run of `identity` hangs, because its store does not answer."""

    def __init__(self, server, proxy):
        self.server, self.proxy = server, proxy
        self.instance = instance_of(server)
        self.last_report = None
        proxy.hold("PUT", "identity.json")
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        assert proxy.held.wait(10), "no run reached the store"

    def _run(self):
        try:
            # Other instances run it, too; one of these runs gets the lock.
            while not self.proxy.held.is_set():
                self.last_report = self.server.run_worker("identity")
        except (OSError, ValueError):
            self.last_report = None


@pytest.fixture
def holder_and_others(instances):
    """Three instances; the first holds the lock and does not release it."""
    store = seaweed.fresh_bucket()
    proxy = HoldingProxy(store["endpoint"])
    ways = [{**store, "endpoint": proxy.endpoint}, store, store]
    servers = instances(
        3, {"identity": {"interval": millis(INTERVAL_SECONDS)}}, ways, lock_timeout=millis(LOCK_SECONDS)
    )
    yield Holder(servers[0], proxy), servers[1:]
    proxy.close()


def assert_handed_over(holder, others, seconds):
    """Checks that another instance runs the worker within this time; returns how long it took."""
    began = time.monotonic()
    before = len(good_runs_of_others(others[0], "identity", holder.instance))

    def is_handed_over():
        return len(good_runs_of_others(others[0], "identity", holder.instance)) > before

    eventually(is_handed_over, seconds + SLACK_SECONDS, message="no instance took over")
    return time.monotonic() - began


def raises_the_mark(server):
    report = server.run_worker("identity")
    return report["outcome"] == "ok" and report["items"] == {"raised": 1}


def test_other_instances_wait_for_a_live_lock_holder(holder_and_others):
    holder, others = holder_and_others
    before = len(good_runs_of_others(others[0], "identity", holder.instance))
    ending = time.monotonic() + 3 * LOCK_SECONDS
    while time.monotonic() < ending:
        report = others[0].run_worker("identity")
        assert (report["outcome"], report["holder"]) == ("skipped", holder.instance), report
    assert len(good_runs_of_others(others[0], "identity", holder.instance)) == before
    holder.proxy.release()
    holder.thread.join(10)
    assert holder.last_report["outcome"] == "ok", holder.last_report
    assert_handed_over(holder, others, INTERVAL_SECONDS)
    assert_apart(runs_of(others[0], "identity"))


def test_lock_of_a_killed_holder_is_taken_within_an_interval(holder_and_others):
    holder, others = holder_and_others
    holder.server.kill()
    took = assert_handed_over(holder, others, INTERVAL_SECONDS)
    print(f"killed: handed over in {took:.2f} s, interval {INTERVAL_SECONDS} s")
    assert_apart(runs_of(others[0], "identity"))


def test_suspended_holder_loses_its_lock_and_changes_nothing_later(holder_and_others):
    holder, others = holder_and_others
    os.kill(holder.server.process.pid, signal.SIGSTOP)
    try:
        took = assert_handed_over(holder, others, LOCK_SECONDS + INTERVAL_SECONDS)
        print(f"suspended: handed over in {took:.2f} s, lock timeout {LOCK_SECONDS} s, interval {INTERVAL_SECONDS} s")
        # More marks than the catalog keeps.
        assert sum(raises_the_mark(others[0]) for _ in range(40)) > 20
    finally:
        os.kill(holder.server.process.pid, signal.SIGCONT)
    # Its mark arrives after newer ones, and the instance detects that.
    holder.proxy.release()
    holder.thread.join(10)
    assert holder.last_report["outcome"] == "ok", holder.last_report
    for server in (holder.server, *others):
        eventually(lambda: raises_the_mark(server), 10, message="an instance does not continue")
        status, body = server.admin("GET", "/admin/api/status")
        (backend,) = json.loads(body)["backends"]
        assert (status, backend["health"], backend["frozen"]) == (200, "ok", None), backend
        assert server.raw().request("PUT", "/bucket/key", body=b"still written").status == 200
        assert server.raw().request("GET", "/bucket/key").body == b"still written"
