"""Two instances, a database and three stores under random faults: acknowledged objects stay, other bytes are deleted.

All random choices follow from a seed, which is printed. `S3O_CHAOS_SEED` repeats the requests and faults of a run, not
their timing. `S3O_CHAOS_SECONDS` is the duration of the load.
"""

import json
import os
import threading
import time
from collections import Counter

import psycopg
import pytest

import seaweed
from catalogs import PostgresCatalog
from chaos_client import ChaosClient
from chaos_faults import COMMIT_KINDS, HOST_KINDS, STORE_KINDS, Chaos
from chaos_outcomes import Outcome, OwnKey, SharedKey
from chaos_requests import BUCKET
from database_proxy import DatabaseProxy
from fault_proxy import FaultProxy
from polling import eventually
from settled_state import settle
from test_kill import delete_all
from test_verify import verify

SECONDS = float(os.environ.get("S3O_CHAOS_SECONDS", "18"))
SEED = int(os.environ.get("S3O_CHAOS_SEED", "7"))
CLIENTS = 6
KEYS_PER_CLIENT = 5
SHARED_KEYS = 3
SETTLE_SECONDS = 60
EXTRA_SECONDS_MAX = 60
# Audit events that must never occur.
NEVER = {"quota_audit.repaired", "cleanup_queue.dead_lettered", "backend.frozen"}
# Errors of a stopped database or of closed connections.
DATABASE_FAULTS = ("catalog unavailable: ", "the outcome of a commit is unknown: ")
STARTED = "s3o serves S3 on"
SETTINGS = {
    "write_path": {"pending_intents": {"min_age": "2s", "reaper_tick": "100ms", "late_write_window": "4s"}},
    "cleanup_queue": {
        "interval": "100ms",
        "claim_grace_period": "2s",
        "backoff_min": "50ms",
        "backoff_max": "200ms",
        "reader_grace": "3s",
    },
    "circuit_breaker": {"open_timeout": "1s"},
}


class Model:
    """The history of every key, and counters."""

    def __init__(self):
        self.ending = threading.Event()
        self.shared = [f"shared/key-{number}" for number in range(SHARED_KEYS)]
        self.histories = {key: SharedKey(key) for key in self.shared}
        for client in range(CLIENTS):
            self.histories |= {key: OwnKey(key) for key in self.keys_of(f"c{client}")}
        self.counts = Counter()
        self.lock = threading.Lock()

    def keys_of(self, name):
        return [f"{name}/key-{number}" for number in range(KEYS_PER_CLIENT)]

    def history(self, key):
        return self.histories[key]

    def count(self, operation, outcome):
        with self.lock:
            self.counts[operation, outcome] += 1

    def summary(self):
        operations = {}
        for (operation, outcome), count in sorted(self.counts.items()):
            operations.setdefault(operation, []).append(f"{count} {outcome}")
        return "; ".join(f"{operation}: {', '.join(counts)}" for operation, counts in operations.items())


@pytest.fixture
def store_proxies():
    """Two fault proxies in front of a real S3 server."""
    proxies = [FaultProxy(os.environ["S3O_TEST_S3_ENDPOINT"]) for _ in range(2)]
    yield proxies
    for proxy in proxies:
        if not proxy.is_down:
            proxy.stop()


@pytest.fixture
def database_proxies(own_postgres):
    """One database proxy per instance."""
    made = [DatabaseProxy(own_postgres.url) for _ in range(2)]
    yield made
    for proxy in made:
        proxy.close()


@pytest.fixture
def servers(own_server, own_postgres, store_proxies, database_proxies, tmp_path):
    """Two instances on a small folder, a small bucket and a large one, so that writes use all three."""
    disk = {"name": "disk", "kind": "fs", "root": str(tmp_path / "disk"), "quota": "150KiB"}
    buckets = [
        {**seaweed.fresh_bucket(), "endpoint": proxy.endpoint, "put_bytes_max": "5MiB"} for proxy in store_proxies
    ]
    buckets[0] |= {"name": "small", "quota": "300KiB"}
    buckets[1] |= {"name": "large"}
    catalog = PostgresCatalog(own_postgres.url)
    without_fsync(own_postgres)
    made = []
    for name, proxy in zip(("one", "two"), database_proxies):
        made.append(own_server(name=name, settings=SETTINGS, catalog=catalog, backend=disk))
        made[-1].config["backends"] += buckets
        made[-1].config["database"] |= {"url": proxy.proxied_url(catalog.url), "lock_timeout": "2s"}
        made[-1].start()
    made[0].s3().create_bucket(Bucket=BUCKET)
    return made


def without_fsync(database):
    """Turns fsync off: the machine stays up, so written data survives a crash of PostgreSQL, and recovery is fast."""
    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET fsync = off")
        connection.execute("SELECT pg_reload_conf()")


@pytest.mark.alone
@pytest.mark.timeout(180 + 2 * SECONDS)
def test_random_faults_lose_nothing_acknowledged_and_leak_no_bytes(
    servers, own_postgres, store_proxies, database_proxies, capsys
):
    model = Model()
    chaos = Chaos(SEED, servers, own_postgres, store_proxies, database_proxies)
    clients = [ChaosClient(f"c{number}", servers, model, SEED) for number in range(CLIENTS)]
    with capsys.disabled():
        print(f"\nchaos test: S3O_CHAOS_SEED={SEED} S3O_CHAOS_SECONDS={SECONDS:g}")
    for thread in (*clients, chaos):
        thread.start()
    model.ending.wait(SECONDS)
    # On a busy machine the rarer faults take longer to occur.
    deadline = time.monotonic() + EXTRA_SECONDS_MAX
    while missed(chaos) and time.monotonic() < deadline and not model.ending.wait(0.5):
        pass
    chaos.end()
    model.ending.set()
    join_all(clients)
    with capsys.disabled():
        print(f"  faults: {', '.join(f'{kind} {count}' for kind, count in sorted(chaos.fired.items()))}")
        print(f"  {sum(model.counts.values())} requests: {model.summary()}")
    assert not missed(chaos), f"these faults never happened: {missed(chaos)}"
    began = time.monotonic()
    for server in servers:
        eventually(server.is_ready, 30, 0.05, "an instance did not recover")
    settle(servers[0], SETTLE_SECONDS)
    resolved = {name: count for name, count in events(servers).items() if name.startswith("pending_reaper.")}
    with capsys.disabled():
        print(f"  settled {time.monotonic() - began:.1f} s after the last fault; {resolved}; {located(servers[0])}")
    assert_model_holds(servers, model, clients)
    assert_quota_accounting_is_exact(servers)
    delete_all(servers[1], BUCKET)
    settle(servers[1], SETTLE_SECONDS)
    assert servers[0].rows("SELECT count(*) FROM object_locations") == [(0,)]
    assert_quota_accounting_is_exact(servers)


def test_model_allows_a_read_to_see_the_state_before_a_concurrent_change():
    history = OwnKey("key")
    there = Outcome("PUT", '"one"')
    history.acknowledged(history.begin(there))
    gone = history.begin(Outcome("DELETE"))
    history.detached(gone)
    before = history.begin_read()
    history.completed_late(gone, "acknowledged")
    history.observe(before, lambda outcome: outcome == there, "a read that began before")
    with pytest.raises(AssertionError, match="impossible"):
        history.observe(history.begin_read(), lambda outcome: outcome == there, "a read that began afterwards")


def test_model_allows_a_late_promotion_before_the_next_write():
    history = OwnKey("key")
    first, second = (Outcome("PUT", etag, is_declared=True) for etag in ('"one"', '"two"'))
    history.unknown(history.begin(first))
    history.observe(history.begin_read(), lambda outcome: outcome.etag is None, "the first write has not happened yet")
    history.unknown(history.begin(second))
    history.observe(history.begin_read(), lambda outcome: outcome == first, "the first write was finished")
    history.observe(history.begin_read(), lambda outcome: outcome == second, "the second write was finished after it")
    with pytest.raises(AssertionError, match="impossible"):
        history.observe(history.begin_read(), lambda outcome: outcome == first, "the second write ended the first")


def missed(chaos):
    """The kinds of faults that have not occurred yet."""
    return [kind for kind in (*HOST_KINDS, *STORE_KINDS, *COMMIT_KINDS) if not chaos.fired[kind]]


def join_all(clients):
    """Waits for every client and for every request that it abandoned."""
    for client in clients:
        client.join(90)
        assert not client.is_alive(), "a client did not end"
        for completion in client.late_completions:
            completion.join(90)
    faults = [client.fault for client in clients if client.fault]
    if faults:
        raise AssertionError(f"seed {SEED}: {faults[0]}") from faults[0]


def assert_model_holds(servers, model, clients):
    """Every instance shows the same state, which the model allows."""
    for server in servers:
        raw = server.raw()
        for key in model.histories:
            client = clients[0]
            client.raws = [raw]
            client.get(key)
        for client in clients:
            client.raws = [raw]
            client.list(None)
    assert model.counts["PUT", "acknowledged"] >= 20, "too little load for a meaningful result"


def assert_quota_accounting_is_exact(servers):
    """Used bytes equal the locations, no bytes are orphaned or reserved, and no audit repaired anything."""
    quotas = servers[0].rows(
        "SELECT backend_name, sum(used_bytes), sum(orphan_bytes), sum(reserved_bytes), sum(repairs) "
        "FROM backend_quotas GROUP BY backend_name"
    )
    held = dict(servers[0].rows("SELECT backend_name, sum(size_bytes) FROM object_locations GROUP BY backend_name"))
    expected = {name: (held.get(name, 0), 0, 0, 0) for name in ("disk", "small", "large")}
    assert {name: tuple(map(int, numbers)) for name, *numbers in quotas} == expected
    for server in servers:
        code, report = verify(server, "--deep")
        assert code == 0, report
        assert server.metrics()["s3o_audit_dropped_total"] == 0
        assert "panicked" not in server.log()
        assert_orphans_were_queued(audited(server), server.log())
    assert not set(events(servers)) & NEVER, events(servers)


def assert_orphans_were_queued(lines, log):
    """Only a database fault prevents a cleanup from being queued; the process queues it later, unless it is killed."""
    for line in lines:
        if line["event"] != "storage.OrphanEnqueueFailed":
            continue
        assert line["error"].startswith(DATABASE_FAULTS), line
        named = f'physical_key="{line["physical_key"]}"'
        failed = [text for text in log.splitlines() if "cannot queue bytes for deletion" in text and named in text]
        assert failed, f"{line} is not in the log"
        later = log.split(failed[-1])[1]
        queued = any("bytes queued on retry" in text and named in text for text in later.splitlines())
        assert queued or STARTED in later, f"{line} was not queued again"


def located(server):
    """Number of copies on each backend."""
    return dict(server.rows("SELECT backend_name, count(*) FROM object_locations GROUP BY backend_name"))


def audited(server):
    """Lines of an instance's audit file."""
    return [json.loads(line) for line in (server.folder / "s3o-data/audit.jsonl").read_text().splitlines()]


def events(servers):
    """Number of audit lines per event, of all instances."""
    return Counter(line["event"] for server in servers for line in audited(server))
