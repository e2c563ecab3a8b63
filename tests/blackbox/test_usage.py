"""Usage limits of backends: proxies count what two instances really send to a store, while Redis has faults."""

import itertools
import os
import signal
import tempfile
import threading
import time

import pytest
import yaml
from botocore.exceptions import ClientError

import seaweed
from admin_client import admin_request, command
from catalogs import PostgresCatalog
from counting_proxy import CountingProxy
from own_redis import OwnRedis
from polling import eventually
from s3_checks import body_of, read, refused
from server_process import s3_client
from settled_state import QUICK

pytestmark = [pytest.mark.alone, pytest.mark.timeout(300)]

KINDS = ("api_requests", "egress_bytes", "ingress_bytes")
LIMIT = 5000
WRITERS = 4
FLUSH = {"usage_flush": {"interval": "1s", "fast_interval": "500ms"}}
# Long leases and no frequent workers: a test of counters needs no traffic of cleanups beside its own.
LEASES = {"write_path": {"pending_intents": {"min_age": "1m", "reaper_tick": "1m"}}}


@pytest.fixture
def redis():
    with tempfile.TemporaryDirectory(prefix="s3o-redis-") as folder:
        server = OwnRedis(folder)
        try:
            yield server
        finally:
            server.kill()


@pytest.fixture
def proxies():
    """One counting proxy for each instance, to one store."""
    store = seaweed.fresh_bucket()
    counting = [CountingProxy(store["endpoint"]) for _ in range(2)]
    yield [(proxy, {**store, "endpoint": proxy.endpoint}) for proxy in counting]
    for proxy in counting:
        proxy.stop()


def start_two(instances, proxies, redis=None, limits=None, **settings):
    """Two instances that reach one store through their proxies."""
    settings = {**FLUSH, **LEASES, **settings}
    if redis:
        settings["redis"] = {"url": redis.url}
    backends = [{**backend, **(limits or {})} for _, backend in proxies]
    return instances(2, settings, backends=backends)


def shown(server):
    """Requests, egress and ingress bytes in the metrics of one instance."""
    metrics = server.metrics()
    return tuple(int(metrics.get(f's3o_usage_{kind}{{backend="store"}}', 0)) for kind in KINDS)


def counted(proxies):
    """The same as counted by all proxies; `None` while a request is in flight."""
    totals = [proxy.totals() for proxy, _ in proxies]
    return None if None in totals else tuple(map(sum, zip(*totals)))


def assert_counters_equal(servers, proxies, seconds=20):
    """Every instance shows what the proxies counted."""
    last = {}

    def equal():
        before = counted(proxies)
        last.update(proxies=before, servers=[shown(server) for server in servers])
        return before is not None and before == counted(proxies) and set(last["servers"]) == {before}

    try:
        eventually(equal, seconds, 0.1)
    except AssertionError:
        raise AssertionError(f"counters differ: {last}") from None
    return last["proxies"]


class Load:
    """Writes, reads and, if asked, deletes objects through both instances until it is stopped."""

    def __init__(self, servers, deletes=True):
        self.servers, self.deletes = servers, deletes
        self.done, self.refusals, self.errors = 0, [], []
        self.ending = threading.Event()
        self._numbers = itertools.count()
        self._threads = [threading.Thread(target=self._run, args=(writer,)) for writer in range(WRITERS)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ending.set()
        for thread in self._threads:
            thread.join()

    def _run(self, writer):
        server = self.servers[writer % len(self.servers)]
        s3 = s3_client(server.endpoint, server.keys["admin"])
        while not self.ending.is_set():
            self._round(s3, f"key-{next(self._numbers)}")

    def _round(self, s3, key):
        body = body_of(100 + hash(key) % 5000, key)
        try:
            s3.put_object(Bucket="bucket", Key=key, Body=body)
            assert read(s3, "bucket", key) == body
            if self.deletes:
                s3.delete_object(Bucket="bucket", Key=key)
            self.done += 1
        except ClientError as refusal:
            error = refusal.response["Error"]
            if error["Code"] == "SlowDown":
                self.refusals.append((time.monotonic(), error["Message"]))
                time.sleep(0.01)
            else:
                self.errors.append(error)
        except Exception as error:  # noqa: BLE001
            if not self.ending.is_set():
                self.errors.append(error)

    def wait_until(self, done, seconds=60):
        eventually(lambda: self.done >= done, seconds, message=f"{done} rounds were not done")


def suspend_redis(redis):
    redis.suspend()
    yield
    redis.resume()


def kill_redis(redis):
    redis.kill()
    yield
    redis.restart()


def empty_redis(redis):
    assert redis.run("FLUSHALL") == b"OK"
    yield
    assert redis.run("FLUSHALL") == b"OK"


def leave_redis(redis):
    assert redis.run("KEYS", "s3o:*:usage:*"), "totals are shared"
    yield


@pytest.mark.parametrize("fault", [leave_redis, suspend_redis, kill_redis, empty_redis])
def test_counters_equal_what_proxies_count(instances, proxies, redis, fault):
    servers = start_two(instances, proxies, redis, **QUICK)
    with Load(servers) as load:
        load.wait_until(100)
        time.sleep(1.5)
        steps = fault(redis)
        next(steps)
        load.wait_until(load.done + 200)
        next(steps, None)
        load.wait_until(load.done + 100)
    assert not load.errors and not load.refusals, (load.errors[:3], load.refusals[:3])
    requests, egress, ingress = assert_counters_equal(servers, proxies)
    assert requests > 800 and egress > 100_000 and ingress > 100_000
    rows = servers[0].rows("SELECT month, instance, requests FROM backend_usage")
    assert len({month for month, _, _ in rows}) == 1, "each request is in one month"
    print(f"\n{fault.__name__}: {requests} requests, {egress} bytes out, {ingress} bytes in, {load.done} rounds")


@pytest.mark.parametrize("fault", [suspend_redis, kill_redis, empty_redis, None])
def test_limit_is_exceeded_by_at_most_one_second(instances, proxies, redis, fault):
    with_redis = redis if fault else None
    servers = start_two(instances, proxies, with_redis, {"api_request_limit": LIMIT})
    steps = fault(redis) if fault else iter(())

    def last_request():
        return max(at for proxy, _ in proxies for at, _ in proxy.requests)

    with Load(servers, deletes=False) as load:
        load.wait_until(200)
        next(steps, None)
        # The share of an instance may be used up before the limit is, so the load goes on until nothing is sent.
        eventually(lambda: load.refusals and time.monotonic() - last_request() > 8, 180, 0.2, "the limit is not reached")
    next(steps, None)
    assert not load.errors, load.errors[:3]
    sent = sum(len(proxy.requests) for proxy, _ in proxies)
    a_second = sum(proxy.busiest_second() for proxy, _ in proxies)
    name = fault.__name__ if fault else "no redis"
    print(f"\n{name}: {sent} requests of {LIMIT}, {a_second} in the busiest second, {len(load.refusals)} refusals")
    assert sent <= LIMIT + WRITERS + a_second
    assert sent >= LIMIT * 0.98, "the limit is not used up"
    assert any(f"backend store has reached its api_request_limit of {LIMIT}" in why for _, why in load.refusals)
    assert_counters_equal(servers, proxies)


@pytest.mark.parametrize("with_redis", [False, True])
def test_killed_instance_loses_at_most_one_flush(instances, proxies, redis, with_redis):
    flush = {"usage_flush": {"interval": "2s", "adaptive": False}}
    killed, other = start_two(instances, proxies, redis if with_redis else None, **flush)
    with Load([killed], deletes=False) as load:
        load.wait_until(300)
        time.sleep(2.5)
        moment = time.monotonic()
        killed.kill()
    sent = counted(proxies)[0]
    # One second of Redis or one flush of two seconds, and a second for the jitter of the timers.
    lost_max = proxies[0][0].since(moment - (2 if with_redis else 3))

    def known():
        requests = shown(other)[0]
        return requests if sent - lost_max <= requests <= sent else None

    requests = eventually(known, 20, message=f"{shown(other)} of {sent} requests are known, {lost_max} may be lost")
    print(f"\nredis {with_redis}: {requests} of {sent} requests are known after SIGKILL, {lost_max} may be lost")
    recorded = sum(count for (count,) in other.rows("SELECT requests FROM backend_usage"))
    assert recorded >= sent - lost_max or with_redis
    eventually(
        lambda: sum(count for (count,) in other.rows("SELECT requests FROM backend_usage")) >= sent - lost_max,
        20,
        message="the totals of the killed instance are not recorded",
    )


def reload(server):
    server.config_path.write_text(yaml.safe_dump(server.config, sort_keys=False))
    os.kill(server.process.pid, signal.SIGHUP)


def usage_of(server, name):
    backends = admin_request(server, "GET", "/status")[1]["backends"]
    return next(backend["usage"] for backend in backends if backend["name"] == name)


def test_over_a_limit_writes_use_other_backends_and_deletes_continue(own_server, proxies):
    proxy, store = proxies[0]
    server = own_server(settings={**QUICK, **FLUSH}, backend={**store, "ingress_byte_limit": "100KiB"})
    disk = {"name": "disk", "kind": "fs", "root": str(server.folder / "disk")}
    server.config["backends"].append(disk)
    s3 = server.start().s3()
    s3.create_bucket(Bucket="bucket")
    for number in range(20):
        s3.put_object(Bucket="bucket", Key=f"key-{number}", Body=body_of(20_000, number))
    rows = dict(server.rows("SELECT backend_name, count(*) FROM object_locations GROUP BY backend_name"))
    assert 1 <= rows["store"] <= 5 and rows["disk"] == 20 - rows["store"], rows
    assert proxy.ingress_bytes <= 100 * 1024 + 20_000
    assert all(read(s3, "bucket", f"key-{number}") == body_of(20_000, number) for number in range(20))

    # Reads need no ingress; a limit of requests or egress stops them.
    server.config["backends"][0] |= {"ingress_byte_limit": 0, "api_request_limit": 1}
    reload(server)
    eventually(lambda: usage_of(server, "store")["reads_stopped_by"] == "api_request_limit", 10)
    with refused("SlowDown", 503) as caught:
        s3.get_object(Bucket="bucket", Key="key-0")
    assert "backend store has reached its api_request_limit of 1 for this month" in str(caught.value)
    s3.put_object(Bucket="bucket", Key="other", Body=b"on disk")
    assert read(s3, "bucket", "other") == b"on disk"
    usage = usage_of(server, "store")
    assert usage["api_requests"]["limit"] == 1 and usage["writes_stopped_by"] and usage["background_stopped"]
    text = command(server, "status").stdout
    assert "reads by api_request_limit, writes by api_request_limit, background work" in text, text

    # Deletes go on.
    for number in range(20):
        s3.delete_object(Bucket="bucket", Key=f"key-{number}")
    stored = seaweed.connect(store["endpoint"], store["access_key_id"], store["secret_access_key"])

    def is_empty():
        listed = stored.list_objects_v2(Bucket=store["bucket"]).get("Contents", [])
        return not [entry for entry in listed if not entry["Key"].startswith(".s3o/")]

    eventually(is_empty, 20, 0.2, "bytes stay on a store over its limit")

    server.config["backends"][0]["api_request_limit"] = 0
    reload(server)
    eventually(lambda: usage_of(server, "store")["writes_stopped_by"] is None, 10)
    s3.put_object(Bucket="bucket", Key="again", Body=b"on the store")
    [(name,)] = server.rows("SELECT backend_name FROM object_locations ORDER BY verified_at DESC LIMIT 1")
    assert name == "store"


def test_no_backend_within_its_limit_is_a_slow_down(own_server, proxies):
    _, store = proxies[0]
    server = own_server(settings={**QUICK, **FLUSH}, backend={**store, "ingress_byte_limit": "64KiB"})
    s3 = server.start().s3()
    s3.create_bucket(Bucket="bucket")
    with refused("SlowDown", 503) as caught:
        s3.put_object(Bucket="bucket", Key="large", Body=body_of(100_000))
    assert "ingress_byte_limit of 65536" in str(caught.value)
    # A body that fits into what is left is stored, even if it is larger than the share of this instance was.

    def fits():
        try:
            return s3.put_object(Bucket="bucket", Key="fits", Body=body_of(50_000))
        except ClientError as refusal:
            assert refusal.response["Error"]["Code"] == "SlowDown"
            return None

    eventually(fits, 10, 0.2, "a body that fits is refused")
    assert read(s3, "bucket", "fits") == body_of(50_000)


def test_unlimited_instance_counts_a_folder_and_survives_a_restart(own_server):
    server = own_server(settings={**QUICK, **FLUSH}, catalog=PostgresCatalog()).start()
    s3 = server.s3()
    s3.create_bucket(Bucket="bucket")
    s3.put_object(Bucket="bucket", Key="key", Body=b"12345")
    assert read(s3, "bucket", "key") == b"12345"
    before = {kind: usage_of(server, "disk")[kind]["used"] for kind in KINDS}
    assert before["ingress_bytes"] >= 5 and before["egress_bytes"] >= 5 and before["api_requests"] >= 2
    assert server.stop() == 0
    server.start()
    after = {kind: usage_of(server, "disk")[kind]["used"] for kind in KINDS}
    assert all(after[kind] >= before[kind] for kind in KINDS), (before, after)
