"""A backend that no instance can use for long is unhealthy, and its copies are replaced. One that a single instance
cannot use, or most backends failing at once, cause no copies."""

import json
import time
from pathlib import Path

import psycopg
import pytest

import seaweed
from polling import eventually
from refusing_proxy import RefusingProxy
from settled_state import QUICK, settle
from test_copies import all_usable, assert_all_readable, copies, put_all, wait_for_copies

pytestmark = pytest.mark.timeout(240)

AFTER_SECONDS = 2
# An instance waits 13 seconds for the answers of the others, and reads their views every 4 seconds.
JUDGED_SECONDS = 3 * AFTER_SECONDS + 13 + 2 * 4
SECONDS = 60
# Longer than the wait for the answers of the others, so that a store cannot be unhealthy earlier for that reason.
RESTART_AFTER_SECONDS = 20
REPLICATION = {
    "factor": 2,
    "write_copies": 2,
    "interval": "200ms",
    "over_replication_interval": "200ms",
    "unhealthy_after": f"{AFTER_SECONDS}s",
}
OBJECTS = 20


def unhealthy(server):
    return [name for (name,) in server.rows("SELECT name FROM backends WHERE unhealthy_since IS NOT NULL")]


def places(server):
    return set(server.rows("SELECT backend_name, physical_key FROM object_locations"))


def shown_as_unhealthy(server):
    backends = json.loads(server.admin("GET", "/admin/api/status")[1])["backends"]
    return [backend["name"] for backend in backends if backend["unhealthy_since"]]


def assert_nothing_is_copied(server, seconds):
    before, end = places(server), time.monotonic() + seconds
    while time.monotonic() < end:
        assert unhealthy(server) == [] and places(server) == before
        time.sleep(0.5)


@pytest.fixture
def proxied(instances):
    """Two instances on three stores; each reaches each store through a proxy of its own."""
    stores = [{**seaweed.fresh_bucket(), "name": f"store{number}"} for number in range(3)]
    proxies = [[RefusingProxy(store["endpoint"]) for store in stores] for _ in range(2)]
    behind = [
        [{**store, "endpoint": proxy.endpoint} for store, proxy in zip(stores, row, strict=True)] for row in proxies
    ]
    settings = {**QUICK, "replication": REPLICATION, "identity": {"probe_interval": "500ms"}}
    servers = instances(2, settings, all_backends=behind)
    yield servers, proxies
    for row in proxies:
        for proxy in row:
            if not proxy.is_down:
                proxy.stop()


def test_store_that_one_of_two_instances_cannot_reach_causes_no_copies(proxied):
    (cut_off, other), proxies = proxied
    put_all(other.s3(), OBJECTS)
    assert set(copies(other)) == {2}
    proxies[0][0].stop()
    assert_nothing_is_copied(other, JUDGED_SECONDS)
    assert_all_readable(cut_off.s3(), OBJECTS)

    # Now no instance can reach it: its copies are replaced on the third store.
    proxies[1][0].stop()
    store = other.config["backends"][0]["name"]
    eventually(lambda: unhealthy(other) == [store], SECONDS, 0.5)
    eventually(lambda: shown_as_unhealthy(other) == [store], 10, 0.5)

    def is_replaced():
        contents = "SELECT content_id FROM object_locations"
        kept = other.rows(f"{contents} WHERE backend_name <> '{store}' GROUP BY content_id HAVING count(*) = 2")
        return len(kept) == OBJECTS

    eventually(is_replaced, SECONDS, 0.5, "the copies were not replaced")
    # No copy is removed there: it may be the last one if another store is lost, too.
    assert {name for name, _ in places(other)} == {backend["name"] for backend in other.config["backends"]}

    for row in proxies:
        row[0].start()
    eventually(lambda: unhealthy(other) == [] and all_usable(other) and all_usable(cut_off), SECONDS, 0.5)
    wait_for_copies(other, 2)
    settle(other)
    assert_all_readable(other.s3(), OBJECTS)


def test_restart_after_a_long_stop_causes_no_copies_at_once(proxied):
    """What the instances saw before they were stopped does not count, nor does the time in which none ran."""
    servers, proxies = proxied
    put_all(servers[0].s3(), OBJECTS)
    for server in servers:
        assert server.stop() == 0
        server.config["replication"] = {**REPLICATION, "unhealthy_after": f"{RESTART_AFTER_SECONDS}s"}
    store = servers[0].config["backends"][0]["name"]
    for row in proxies:
        row[0].stop()
    # Both instances had been unable to use the store for a while, most of an hour ago.
    with psycopg.connect(servers[0].database.url, autocommit=True) as connection:
        columns = "backend_name, instance, failing_ms, since, seen_at"
        view = f"INSERT INTO backend_views ({columns}) VALUES (%s, %s, %s, %s, %s)"
        earlier = int(time.time() - 3000) * 1000
        for instance in ("1", "2"):
            connection.execute(view, (store, instance * 32, 600_000, earlier, earlier))
    before, began = places(servers[0]), time.monotonic()
    for server in servers:
        server.start()

    def is_unhealthy():
        if unhealthy(servers[1]) == [store]:
            return True
        assert places(servers[1]) == before, "a copy was made before the store was unhealthy"
        return False

    eventually(is_unhealthy, SECONDS, 0.3, "the store is not unhealthy")
    assert time.monotonic() - began >= RESTART_AFTER_SECONDS, "the time before the start was counted"
    eventually(lambda: places(servers[1]) != before, SECONDS, 0.3, "the copies were not replaced")
    assert_all_readable(servers[1].s3(), OBJECTS)


@pytest.fixture
def five_disks(instances, tmp_path):
    """Two instances on five folders."""
    backends = [{"name": f"disk{number}", "kind": "fs", "root": str(tmp_path / f"disk{number}")} for number in range(5)]
    settings = {**QUICK, "replication": REPLICATION, "identity": {"probe_interval": "200ms"}}
    return instances(2, settings, all_backends=[backends, backends]), [Path(each["root"]) for each in backends]


def test_most_backends_failing_at_once_cause_no_copies(five_disks):
    (server, other), roots = five_disks
    s3 = server.s3()
    put_all(s3, OBJECTS)
    away = roots[:3]
    for root in away:
        root.rename(root.with_suffix(".away"))
    assert_nothing_is_copied(server, JUDGED_SECONDS)

    # Two come back: one of five is away, and its copies are replaced.
    for root in away[1:]:
        root.with_suffix(".away").rename(root)
    eventually(lambda: unhealthy(server) == ["disk0"], SECONDS, 0.5)
    assert_all_readable(other.s3(), OBJECTS)
    away[0].with_suffix(".away").rename(away[0])
    eventually(lambda: unhealthy(server) == [] and all_usable(server) and all_usable(other), SECONDS, 0.5)
    wait_for_copies(server, 2)
    settle(server)
