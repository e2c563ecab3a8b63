"""Drain of many objects under load: an instance is killed, one copy is slow, and some objects fit nowhere.

`S3O_DRAIN_OBJECTS` is the number of objects (default 10,000).
"""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import seaweed
from admin_client import admin_request
from catalogs import PostgresCatalog
from holding_proxy import HoldingProxy
from polling import eventually
from s3_checks import body_of
from settled_state import QUICK, files_below, settle, stored_on
from verified_load import BUCKET, LoadResults, Writer

pytestmark = [pytest.mark.alone]

OBJECTS = int(os.environ.get("S3O_DRAIN_OBJECTS", "10000"))
LOADERS, WRITERS = 32, 32
OBJECT_BYTES, SLOW_BYTES = 1_500, 150_000
# Contents in one tick of the worker.
PAGE = 1000
# Sorted before all other keys, so that it is in the first page of every pass.
SLOW_KEY = "a-slow"
STOP_SECONDS = 5
DRAIN_SECONDS = 60 + OBJECTS / 50
SETTINGS = {
    **QUICK,
    # Leases that hold on a busy machine.
    "write_path": {"pending_intents": {"min_age": "5s", "reaper_tick": "100ms", "late_write_window": "2s"}},
}


@pytest.fixture
def proxy():
    holding = HoldingProxy(os.environ["S3O_TEST_S3_ENDPOINT"])
    yield holding
    holding.close()


@pytest.fixture
def servers(own_server, proxy, tmp_path):
    """Two instances on two folders, of which the second takes small objects only, and a store behind the proxy."""
    backends = [
        {"name": "old", "kind": "fs", "root": str(tmp_path / "old")},
        {"name": "new", "kind": "fs", "root": str(tmp_path / "new"), "max_object_size": f"{SLOW_BYTES - 1}B"},
        {**seaweed.fresh_bucket(), "endpoint": proxy.endpoint},
    ]
    catalog, made = PostgresCatalog(), []
    for name in ("killed", "other"):
        made.append(own_server(name=name, settings=SETTINGS, catalog=catalog))
        made[-1].config["backends"] = backends
        made[-1].start()
    made[0].s3().create_bucket(Bucket=BUCKET)
    return made


def body_for(key):
    return body_of(SLOW_BYTES if key == SLOW_KEY else OBJECT_BYTES, key)


def store_objects(servers):
    """Stores all objects through both instances, in parallel; returns their keys."""
    keys = [SLOW_KEY] + [f"key-{number:06}" for number in range(OBJECTS - 1)]

    def store_share(loader):
        raw = servers[loader % len(servers)].raw()
        connection = raw.connect()
        for key in keys[loader::LOADERS]:
            answer = raw.request("PUT", f"/{BUCKET}/{key}", body=body_for(key), on=connection)
            assert answer.status == 200, answer

    with ThreadPoolExecutor(LOADERS) as pool:
        list(pool.map(store_share, range(LOADERS)))
    return keys


def assert_readable(server, keys):
    def read_share(loader):
        raw = server.raw()
        connection = raw.connect()
        for key in keys[loader::8]:
            answer = raw.request("GET", f"/{BUCKET}/{key}", on=connection)
            assert (answer.status, answer.body == body_for(key)) == (200, True), (key, answer.status)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(read_share, range(8)))


class NewestWrite(threading.Thread):
    """Watches when the newest write to a backend was announced, by the time in its physical key (UUID version 7)."""

    def __init__(self, server, backend):
        super().__init__(daemon=True)
        tables = ("object_locations", "pending_objects", "cleanup_queue")
        keys = " UNION ALL ".join(
            f"SELECT max(right(physical_key, 32)) AS id FROM {table} WHERE backend_name = '{backend}'"
            for table in tables
        )
        self.server, self.query = server, f"SELECT max(id) FROM ({keys}) AS newest"
        self.stopping, self.newest = threading.Event(), 0.0

    def run(self):
        while not self.stopping.wait(0.3):
            found = self.server.rows(self.query)[0][0]
            self.newest = max(self.newest, int(found[:12], 16) / 1000 if found else 0.0)


class Load:
    """Writers on all instances."""

    def __init__(self, servers):
        self.results, self.stopping = LoadResults(), threading.Event()
        shared = (servers, self.results, self.stopping)
        self.writers = [Writer(f"writer-{number}", *shared, sizes=(500, 3_000)) for number in range(WRITERS)]

    def __enter__(self):
        for writer in self.writers:
            writer.pause_seconds = 0.5
            writer.start()
        return self

    def __exit__(self, *failure):
        self.stopping.set()
        for writer in self.writers:
            writer.join(60)
            assert not writer.is_alive(), f"{writer.name} did not end"


def progress(server, name="old"):
    status, shown = admin_request(server, "GET", f"/backends/{name}/drain")
    assert status == 200, shown
    return shown


def moved_at_least(server, count):
    shown = progress(server)
    assert not shown["complete"], "the backend was emptied too early for this test"
    return shown if shown["moved"] >= count else None


@pytest.mark.timeout(300 + OBJECTS / 20)
def test_drain_is_completed_by_another_instance_while_clients_write(servers, proxy, capsys):
    killed, other = servers
    old = killed.config["backends"][0]
    began = time.monotonic()

    def note(what):
        with capsys.disabled():
            print(f"\n  {time.monotonic() - began:6.1f} s  {what}", end="")

    keys = store_objects(servers)
    note(f"{len(keys)} objects stored")
    assert len(stored_on(old)) == len(keys)
    proxy.hold("PUT", SLOW_KEY)
    watch = NewestWrite(other, "old")
    with Load(servers) as load:
        eventually(lambda: load.results.count("PUT", "healthy") > 100, 30, 0.1)
        drained_at = time.time()
        assert admin_request(killed, "POST", "/backends/old/drain")[0] == 200
        note("drain started")
        watch.start()
        refused = admin_request(other, "DELETE", "/backends/old")
        assert (refused[0], refused[1]["error"]["code"]) == (409, "not_empty"), refused
        assert proxy.held.wait(30), progress(killed)
        # The other copies of the page are made while the slow one is under way.
        shown = eventually(lambda: moved_at_least(killed, PAGE // 2), 30, 0.1)
        killed.kill()
        proxy.discard_held()
        note(f"instance killed during the slow copy, {shown['moved']} moved, {shown['remaining']} remain")
        # The other instance follows within the interval of the worker, and meets the same slow store.
        eventually(lambda: moved_at_least(other, PAGE // 2), 60, 0.2, "no other instance continued")
        note("continued by the other instance")
        assert admin_request(other, "DELETE", "/backends/old")[0] == 409
        proxy.release()
        eventually(lambda: progress(other)["complete"], DRAIN_SECONDS, 0.2)
        note("drain complete")
        assert not load.results.failures, load.results.failures[:5]
    watch.stopping.set()
    watch.join(30)
    note(f"newest write to the drained backend: {watch.newest - drained_at:.2f} s after the drain began")
    assert 0 < watch.newest < drained_at + STOP_SECONDS
    assert stored_on(old) == set()
    assert admin_request(other, "DELETE", "/backends/old") == (200, {"backend": "old", "removed": True})
    assert files_below(old["root"]) == set()
    note("removed")
    assert_old_configuration_brings_nothing_back(killed, old)
    assert_readable(other, keys[:: max(1, len(keys) // 1000)])
    note("read")
    settle(other, 60)
    note("settled")


def assert_old_configuration_brings_nothing_back(server, old):
    """The killed instance starts with its configuration, which still names the removed backend."""
    server.start()
    for number in range(20):
        assert server.raw().request("PUT", f"/{BUCKET}/later-{number}", body=b"later").status == 200
    assert server.rows("SELECT count(*) FROM object_locations WHERE backend_name = 'old'") == [(0,)]
    assert files_below(old["root"]) == set()
