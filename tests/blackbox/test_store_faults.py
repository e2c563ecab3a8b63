"""Two copies on three S3 stores, under load: each store stops, hangs, fails, is wiped, and returns; nothing is lost.

`S3O_STORE_FAULT_SECONDS` is the duration of each fault, `S3O_STORE_FAULT_INSTANCES=2` runs all of them with two
instances on PostgreSQL; by default, two instances meet the faults of one store.
"""

import os
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from admin_client import admin_request
from catalogs import PostgresCatalog
from faulty_store import CUTS, ERRORS, HANGS, STALLS, STOPS, WRITES_FAIL, FaultyStore
from polling import eventually
from s3_checks import PART_BYTES_MIN, body_of, multipart
from settled_state import QUICK, settle
from test_verify import verify
from verified_load import BUCKET, LoadResults, Reader, Writer

SECONDS = float(os.environ.get("S3O_STORE_FAULT_SECONDS", "1"))
INSTANCES = int(os.environ.get("S3O_STORE_FAULT_INSTANCES", "1"))
WRITERS, READERS, FIXED_OBJECTS = 3, 2, 12
# Other instances compare the identity of an accepted store within half a minute.
RECOVERY_SECONDS = 120
FIRST_BYTE_SECONDS = 2
# Faults that end no call: each lasts longer than a GET waits for one.
WITHOUT_END = (HANGS, STALLS)
MODES = (STOPS, ERRORS, WRITES_FAIL, CUTS, *WITHOUT_END)
# How long a write waits for a store that does not answer.
STALL_SECONDS = 10
# Reads leave a slow store to the others for a minute.
MEASURED_AGAIN_SECONDS = 90
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
def start(own_server, stores):
    """Starts this many instances on the three stores."""

    def made(count):
        catalog = PostgresCatalog() if count > 1 else None
        servers = []
        for number in range(count):
            servers.append(own_server(name=f"instance-{number}", settings=SETTINGS, catalog=catalog))
            servers[-1].config["backends"] = [store.backend for store in stores]
            servers[-1].start()
        servers[0].s3().create_bucket(Bucket=BUCKET)
        return servers

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

    def inject(self, store, mode, is_last):
        """One fault of one store, until all contents have two copies again. On the last store, some request meets it."""
        phase = f"{store.name} {mode}"
        seconds = SECONDS + (FIRST_BYTE_SECONDS if mode in WITHOUT_END else 0)
        store.fail(mode)
        self.run_phase(phase, seconds)
        if is_last and mode != STOPS and not self.met[mode]:
            eventually(lambda: store.failed, MEASURED_AGAIN_SECONDS, 0.1, f"{phase}: no request met the fault")
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
        """Waits until every store takes calls, every content has two copies again, and no request meets two faults."""
        self.results.phase = f"{phase}, recovery"
        eventually(lambda: not self.is_any_waiting_since(phase), RECOVERY_SECONDS, 0.02, f"{phase}: a request waits")
        eventually(self.are_stores_usable, RECOVERY_SECONDS, 0.1, f"{phase}: a store is not used again")
        eventually(self.are_copies_complete, RECOVERY_SECONDS, 0.1, f"{phase}: copies are missing")
        assert not self.results.failures, self.results.failures[:5]

    def is_any_waiting_since(self, phase):
        return any(client.waiting_since == phase for client in self.clients)

    def are_stores_usable(self):
        expected = {"s3o_backend_up": 1, "s3o_backend_frozen": 0, "s3o_circuit_breaker_state": 0}
        shown = [sample for server in self.servers for sample in server.metrics().items()]
        return all(value == expected.get(name.partition("{")[0], value) for name, value in shown)

    def are_copies_complete(self):
        """True if no content has too few copies; the load may be writing others."""
        return not any(self.servers[0].rows(f"SELECT 1 FROM {table} LIMIT 1") for table in ("copy_work", "copy_review"))


@pytest.mark.alone
@pytest.mark.timeout(300 + 30 * SECONDS)
def test_faults_of_one_store_at_a_time_lose_nothing_and_delay_little(start, stores, capsys):
    drill = run_faults(start(INSTANCES), stores, stores, capsys)
    assert_every_object_has_two_copies(drill)


@pytest.mark.alone
@pytest.mark.timeout(240)
@pytest.mark.skipif(INSTANCES > 1, reason="all faults run with several instances")
def test_faults_of_a_store_of_two_instances_lose_nothing_and_delay_little(start, stores, capsys):
    drill = run_faults(start(2), stores, (), capsys)
    assert_every_object_has_two_copies(drill)


def run_faults(servers, stores, wiped, capsys):
    """Each fault of each store under load, or those of the first store if none is wiped."""
    took = {}
    with StoreFaultRun(servers, stores) as drill:
        drill.run_phase("healthy", 2)
        chosen = wiped or stores[:1]
        for store in chosen:
            for mode in MODES:
                act = partial(drill.inject, store, mode, store is chosen[-1])
                took[f"{store.name} {mode}"] = seconds_of(act)
            if wiped:
                took[f"{store.name} wiped"] = seconds_of(lambda store=store: drill.wipe(store))
        drill.run_phase("healthy", 1)
    with capsys.disabled():
        print_results(drill.results, took)
    assert not drill.results.failures, drill.results.failures[:5]
    assert all(drill.met[mode] > 0 for mode in MODES if mode != STOPS), drill.met
    healthy = drill.results.slowest("GET", lambda phase: phase == "healthy")
    waiting = drill.results.slowest("GET", lambda phase: any(mode in phase for mode in WITHOUT_END))
    assert waiting <= healthy + FIRST_BYTE_SECONDS + SLACK_SECONDS, (waiting, healthy)
    return drill


def print_results(results, took):
    print("\n ", ", ".join(f"{phase} {seconds:.1f} s" for phase, seconds in took.items()))
    print("  requests:", dict(Counter(sample.kind for sample in results.samples)))
    print("  tries of PUTs:", dict(Counter(sample.tries for sample in results.samples if sample.kind == "PUT")))
    for kind in ("GET", "PUT"):
        seen = [phase for phase in ("healthy", *took) if results.count(kind, phase)]
        slowest = {phase: results.slowest(kind, phase.__eq__) for phase in seen}
        print(f"  slowest {kind}:", {phase: round(seconds, 2) for phase, seconds in slowest.items()})


def seconds_of(act):
    began = time.monotonic()
    act()
    return time.monotonic() - began


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


def test_hanging_store_delays_a_joined_object_once(quiet_server, stores):
    """Only the first piece that has its first copy on the store that hangs waits for it."""
    parts = [body_of(PART_BYTES_MIN, number) for number in range(3)]
    multipart(quiet_server.s3(), BUCKET, "joined", parts)
    raw, answers = quiet_server.raw(), []

    def read():
        answers.append(raw.request("GET", f"/{BUCKET}/joined"))

    healthy = max(seconds_of(read) for _ in range(3))
    hanging = []
    for store in stores:
        store.fail(HANGS)
        seconds = seconds_of(read)
        hanging += [seconds] * min(store.failed, 1)
        store.recover()
    assert {(answer.status, answer.body == b"".join(parts)) for answer in answers} == {(200, True)}
    assert FIRST_BYTE_SECONDS <= max(hanging), "no read waited for its first copy"
    assert max(hanging) < healthy + 2 * FIRST_BYTE_SECONDS, "a second piece waited for the store, too"


def test_hanging_store_delays_an_object_that_the_cache_lacks_once(quiet_server, stores):
    """A cached body is read as a whole and verified; its parts do not wait for the store one after the other."""
    quiet_server.config["cache"] = {"enabled": True, "max_object_size": "16MiB"}
    quiet_server.stop()
    s3 = quiet_server.start().s3()
    bodies = {f"small-{number}": body_of(20_000, number) for number in range(3)}
    for key, body in bodies.items():
        s3.put_object(Bucket=BUCKET, Key=key, Body=body)
    parts = [body_of(PART_BYTES_MIN, number) for number in range(3)]
    multipart(s3, BUCKET, "joined", parts)
    bodies["joined"], met = b"".join(parts), 0
    for store in stores:
        # The cache is empty after a start.
        quiet_server.stop()
        raw = quiet_server.start().raw()
        store.fail(HANGS)
        for key, body in bodies.items():
            began = time.monotonic()
            answer = raw.request("GET", f"/{BUCKET}/{key}")
            assert (answer.status, answer.body == body) == (200, True), key
            assert time.monotonic() - began < 2 * FIRST_BYTE_SECONDS, (store.name, key)
        met += store.failed
        store.recover()
    assert met, "no read met a store that hangs"


def test_store_that_stalls_in_a_body_delays_a_read_once(quiet_server, stores):
    """The bytes before the stall come from one store, the others from another one."""
    body, answers, stalled = body_of(400_000), [], []
    raw = quiet_server.raw()
    assert raw.request("PUT", f"/{BUCKET}/stalled", body=body).status == 200

    def read():
        answers.append(raw.request("GET", f"/{BUCKET}/stalled"))

    healthy = max(seconds_of(read) for _ in range(3))
    # One of them has the copy that is read first.
    for store in stores:
        store.fail(STALLS)
        seconds = seconds_of(read)
        stalled += [seconds] * store.failed
        store.recover()
    assert {(answer.status, answer.body == body) for answer in answers} == {(200, True)}
    assert stalled and FIRST_BYTE_SECONDS <= max(stalled) < healthy + FIRST_BYTE_SECONDS + SLACK_SECONDS, stalled


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
