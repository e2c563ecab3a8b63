"""Two copies on three S3 stores, under load: each store stops, hangs, fails, is wiped, and returns; nothing is lost.

`S3O_STORE_FAULT_SECONDS` is the duration of each fault, `S3O_STORE_FAULT_INSTANCES=2` runs two instances on PostgreSQL.
"""

import os
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from admin_client import admin_request
from catalogs import PostgresCatalog
from faulty_store import CUTS, ERRORS, HANGS, STOPS, WRITES_FAIL, FaultyStore
from polling import eventually
from s3_checks import PART_BYTES_MIN, body_of, multipart
from settled_state import QUICK, settle
from test_verify import verify
from verified_load import BUCKET, LoadResults, Reader, Writer

SECONDS = float(os.environ.get("S3O_STORE_FAULT_SECONDS", "1"))
INSTANCES = int(os.environ.get("S3O_STORE_FAULT_INSTANCES", "1"))
WRITERS, READERS, FIXED_OBJECTS = 3, 2, 12
# Other instances compare the identity of an accepted store within half a minute.
RECOVERY_SECONDS = 60 * INSTANCES
FIRST_BYTE_SECONDS = 2
# How long a write waits for a store that does not answer.
STALL_SECONDS = 10
# On top of the slowest GET without a fault: the machine schedules a GET and its timer among the load.
SLACK_SECONDS = 0.5
SETTINGS = {
    **QUICK,
    # Leases that hold on a busy machine.
    "write_path": {"pending_intents": {"min_age": "5s", "reaper_tick": "100ms", "late_write_window": "2s"}},
    "replication": {"factor": 2, "write_copies": 2, "interval": "200ms", "over_replication_interval": "200ms"},
    "identity": {"probe_interval": "300ms"},
}
# Copies that count, per content.
COUNTING = (
    "SELECT c.id, sum(CASE WHEN l.state = 'present' AND b.draining = 0 AND b.unhealthy_since IS NULL "
    "AND coalesce(l.verified_at, 0) >= coalesce(b.trust_from, 0) THEN 1 ELSE 0 END) FROM contents c "
    "LEFT JOIN object_locations l ON l.content_id = c.id LEFT JOIN backends b ON b.name = l.backend_name "
    "WHERE c.kind = 'whole' AND c.state = 'live' GROUP BY c.id"
)


@pytest.fixture
def stores():
    made = [FaultyStore(name) for name in ("one", "two", "three")]
    yield made
    for store in made:
        store.close()


@pytest.fixture
def servers(own_server, stores):
    catalog = PostgresCatalog() if INSTANCES > 1 else None
    made = []
    for number in range(INSTANCES):
        made.append(own_server(name=f"instance-{number}", settings=SETTINGS, catalog=catalog))
        made[-1].config["backends"] = [store.backend for store in stores]
        made[-1].start()
    made[0].s3().create_bucket(Bucket=BUCKET)
    return made


class StoreFaultRun:
    """The load, the objects that do not change, and the faults."""

    def __init__(self, servers, stores):
        self.servers, self.stores = servers, stores
        self.results, self.stopping = LoadResults(), threading.Event()
        # Number of requests that met each fault.
        self.met = Counter()
        self.fixed = self.store_fixed_objects()
        shared = (servers, self.results, self.stopping)
        self.writers = [Writer(f"writer-{number}", *shared) for number in range(WRITERS)]
        readers = [Reader(self.fixed, f"reader-{number}", *shared) for number in range(READERS)]
        self.clients = self.writers + readers

    def store_fixed_objects(self):
        s3, bodies = self.servers[0].s3(), {}
        for number in range(FIXED_OBJECTS):
            key = f"fixed-{number}"
            bodies[key] = body_of((3_000, 60_000, 400_000)[number % 3], key)
            s3.put_object(Bucket=BUCKET, Key=key, Body=bodies[key])
        parts = [body_of(PART_BYTES_MIN, "first"), body_of(200_000, "last")]
        multipart(s3, BUCKET, "fixed-joined", parts)
        return bodies | {"fixed-joined": b"".join(parts)}

    def __enter__(self):
        for client in self.clients:
            client.start()
        return self

    def __exit__(self, *failure):
        self.stopping.set()
        for store in self.stores:
            store.resumed.set()
        for client in self.clients:
            client.join(60)
            assert not client.is_alive(), f"{client.name} did not end"

    def run_phase(self, phase, seconds):
        self.results.phase = phase
        time.sleep(seconds)

    def inject(self, store, mode, seconds):
        """One fault of one store, until all contents have two copies again."""
        phase = f"{store.name} {mode}"
        store.fail(mode)
        self.run_phase(phase, seconds)
        store.recover()
        self.met[mode] += store.failed
        self.recovered(phase)

    def wipe(self, store):
        """The store loses everything and is accepted as it is."""
        self.results.phase = f"{store.name} wiped"
        assert store.wipe() > 0
        path = f"/backends/{store.name}/accept"

        def is_accepted():
            status, shown = admin_request(self.servers[0], "POST", path)
            assert status in (409, 503), shown
            return admin_request(self.servers[0], "POST", f"{path}?found={shown['hash']}")[0] == 200

        time.sleep(SECONDS)
        eventually(is_accepted, RECOVERY_SECONDS, 0.2, f"{store.name} was not accepted")
        self.recovered(f"{store.name} wiped")

    def recovered(self, phase):
        """Waits until every store takes calls and every content has two copies again."""
        self.results.phase = f"{phase}, recovery"
        eventually(self.are_stores_usable, RECOVERY_SECONDS, 0.1, f"{phase}: a store is not used again")
        eventually(self.are_copies_complete, RECOVERY_SECONDS, 0.1, f"{phase}: copies are missing")
        assert not self.results.failures, self.results.failures[:5]

    def are_stores_usable(self):
        expected = {"s3o_backend_up": 1, "s3o_backend_frozen": 0, "s3o_circuit_breaker_state": 0}
        shown = [sample for server in self.servers for sample in server.metrics().items()]
        return all(value == expected.get(name.partition("{")[0], value) for name, value in shown)

    def are_copies_complete(self):
        """True if no content has too few copies; the load may be writing others."""
        return not any(self.servers[0].rows(f"SELECT 1 FROM {table} LIMIT 1") for table in ("copy_work", "copy_review"))


@pytest.mark.alone
@pytest.mark.timeout(240 + 30 * SECONDS)
def test_faults_of_one_store_at_a_time_lose_nothing_and_delay_little(servers, stores, capsys):
    took = {}
    with StoreFaultRun(servers, stores) as drill:
        drill.run_phase("healthy", 2)
        for store in stores:
            for mode in (STOPS, ERRORS, WRITES_FAIL, CUTS, HANGS):
                began = time.monotonic()
                drill.inject(store, mode, SECONDS + (FIRST_BYTE_SECONDS if mode == HANGS else 0))
                took[f"{store.name} {mode}"] = time.monotonic() - began
            began = time.monotonic()
            drill.wipe(store)
            took[f"{store.name} wiped"] = time.monotonic() - began
        drill.run_phase("healthy", 1)
    results = drill.results
    with capsys.disabled():
        print("\n ", ", ".join(f"{phase} {seconds:.1f} s" for phase, seconds in took.items()))
        print("  requests:", dict(Counter(sample.kind for sample in results.samples)))
        print("  tries of PUTs:", dict(Counter(sample.tries for sample in results.samples if sample.kind == "PUT")))
        for kind in ("GET", "PUT"):
            seen = [phase for phase in ("healthy", *took) if results.count(kind, phase)]
            slowest = {phase: results.slowest(kind, phase.__eq__) for phase in seen}
            print(f"  slowest {kind}:", {phase: round(seconds, 2) for phase, seconds in slowest.items()})
    assert not results.failures, results.failures[:5]
    assert all(drill.met[mode] > 0 for mode in (ERRORS, WRITES_FAIL, CUTS, HANGS)), drill.met
    healthy = results.slowest("GET", lambda phase: phase == "healthy")
    hanging = results.slowest("GET", lambda phase: HANGS in phase)
    assert hanging <= healthy + FIRST_BYTE_SECONDS + SLACK_SECONDS, (hanging, healthy)
    assert_every_object_has_two_copies(drill)


def assert_every_object_has_two_copies(drill):
    server = drill.servers[0]
    eventually(drill.are_copies_complete, RECOVERY_SECONDS, 0.1)
    settle(server)
    assert {int(count) for _, count in server.rows(COUNTING)} == {2}
    expected = {key: [body] for key, body in drill.fixed.items()}
    for writer in drill.writers:
        expected |= {key: bodies for key, bodies in writer.bodies.items() if bodies}
    for instance in drill.servers:
        for key, bodies in expected.items():
            assert instance.raw().request("GET", f"/{BUCKET}/{key}").body in bodies, key
    for instance in drill.servers:
        code, report = verify(instance, "--deep")
        assert (code, report["unchecked"]) == (0, []), report


@pytest.fixture
def quiet_server(own_server, stores):
    """A server without load on the three stores, whose idle backends are not probed, as by default."""
    settings = {**SETTINGS, "identity": {}, "circuit_breaker": {"failure_threshold": 3, "open_timeout": "1m"}}
    server = own_server(settings=settings)
    server.config["backends"] = [store.backend for store in stores]
    server.start().s3().create_bucket(Bucket=BUCKET)
    return server


def seconds_of(act):
    began = time.monotonic()
    act()
    return time.monotonic() - began


def test_hanging_store_delays_a_joined_object_once(quiet_server, stores):
    """Every piece has its first copy on the store that hangs; only the first piece waits for it."""
    parts = [body_of(PART_BYTES_MIN, number) for number in range(3)]
    multipart(quiet_server.s3(), BUCKET, "joined", parts)
    raw, answers = quiet_server.raw(), []

    def read():
        answers.append(raw.request("GET", f"/{BUCKET}/joined"))

    healthy = max(seconds_of(read) for _ in range(3))
    stores[0].fail(HANGS)
    hanging = seconds_of(read)
    assert stores[0].failed > 0, "the first copies are on the first store"
    assert {(answer.status, answer.body == b"".join(parts)) for answer in answers} == {(200, True)}
    assert hanging < healthy + 2 * FIRST_BYTE_SECONDS, "a second piece waited for the store, too"


def test_hanging_store_is_skipped_after_a_few_writes(quiet_server, stores):
    """A write leaves out a store that does not answer, and later writes do not wait for it."""
    raw = quiet_server.raw()

    def put(key):
        assert raw.request("PUT", f"/{BUCKET}/{key}", body=body_of(20_000, key)).status == 200

    put("healthy")
    stores[0].fail(HANGS)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(put, ["first", "second", "third"]))
    assert stores[0].failed >= 3
    assert seconds_of(lambda: put("next")) < STALL_SECONDS / 2
    assert set(quiet_server.rows(COUNTING.replace("c.id, sum", "DISTINCT sum"))) == {(2,)}
    stores[0].recover()
