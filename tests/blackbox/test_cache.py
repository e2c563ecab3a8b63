"""The cache in memory and in a shared Redis: it saves backend reads and never serves a deleted, replaced or expired
object, whatever faults Redis has."""

import tempfile
import time

import pytest

from admin_client import admin_request, command
from cache_load import Key, Load
from cache_load import body_of as load_body
from own_redis import OwnRedis
from polling import eventually
from s3_checks import body_of
from server_process import binary

pytestmark = [pytest.mark.alone, pytest.mark.timeout(300)]

# Long leases, so that they do not expire on a busy machine.
LONG_LEASES = {"write_path": {"pending_intents": {"min_age": "1m", "reaper_tick": "1m"}}}
CHECKS = 100_000
CHECKS_UNDER_FAULTS = 15_000


@pytest.fixture
def redis():
    with tempfile.TemporaryDirectory(prefix="s3o-redis-") as folder:
        server = OwnRedis(folder)
        try:
            yield server
        finally:
            server.kill()


def shared(redis, **settings):
    return {"cache": {"enabled": True, "shared": "redis", **settings}, "redis": {"url": redis.url}, **LONG_LEASES}


def connected(servers):
    for server in servers:
        eventually(
            lambda: admin_request(server, "GET", "/status")[1]["cache"]["shared"] == "ok", 60, message="no Redis"
        )
    return servers


def cache_requests(servers):
    """Cache requests of all instances: {(tier, outcome): count}."""
    counts = {}
    for server in servers:
        for name, value in server.metrics().items():
            if name.startswith("s3o_cache_requests_total{"):
                labels = dict(part.split("=") for part in name[name.index("{") + 1 : -1].split(","))
                pair = (labels["tier"].strip('"'), labels["outcome"].strip('"'))
                counts[pair] = counts.get(pair, 0) + int(value)
    return counts


def hit_ratio(counts):
    memory = {outcome: count for (tier, outcome), count in counts.items() if tier == "memory"}
    return (memory["hit"] + memory["shared"]) / sum(memory.values())


def store_reads(servers):
    name = 's3o_backend_requests_total{backend="disk",operation="get",outcome="ok"}'
    return sum(server.metrics().get(name, 0) for server in servers)


def summary(load, servers, began, what):
    counts, took = cache_requests(servers), time.monotonic() - began
    ratio = hit_ratio(counts)
    print(
        f"\n{what}: {load.checked} checks and {load.changes} changes in {took:.0f} s, "
        f"{ratio:.1%} of the reads from memory, {counts['redis', 'hit']} from Redis, "
        f"{store_reads(servers):.0f} reads of the store, {len(load.unavailable)} answers of 503"
    )
    return ratio, counts


def test_cache_never_serves_deleted_or_replaced_objects(instances, redis):
    servers = connected(instances(2, shared(redis)))
    began = time.monotonic()
    load = Load(servers, CHECKS).run()
    ratio, counts = summary(load, servers, began, "healthy")
    assert load.checked >= CHECKS and not load.unavailable, load.unavailable[:3]
    assert ratio > 0.5 and counts["redis", "hit"] > 0
    assert store_reads(servers) < load.checked / 10


def kill_and_restart(redis, load):
    load.wait_until(0.2)
    redis.kill()
    load.wait_until(0.6)
    redis.restart()


def suspend_and_resume(redis, load):
    for share in (0.2, 0.6):
        load.wait_until(share)
        redis.suspend()
        load.wait_until(share + 0.2)
        redis.resume()


def fill_with_invalid_values(redis, load):
    """Stores values that are empty, foreign, truncated, or of another content."""
    while not load.ended.is_set():
        keys = redis.bodies()
        values = [redis.run("GET", key) or b"" for key in keys]
        for number, key in enumerate(keys):
            nonsense = (b"", b"nonsense", values[number][:-1], values[number - 1], values[number][:-1] + b"?")
            redis.run("SET", key, nonsense[number % len(nonsense)], "PX", 60_000)


@pytest.mark.parametrize(
    ("fault", "outcomes"),
    [
        (kill_and_restart, ("skipped",)),
        (suspend_and_resume, ("error", "skipped")),
        (fill_with_invalid_values, ("corrupt",)),
    ],
    ids=["killed", "frozen", "nonsense"],
)
def test_redis_faults_never_serve_deleted_or_replaced_objects(instances, redis, fault, outcomes):
    # Entries expire from memory quickly, so that Redis is queried often.
    servers = connected(instances(2, shared(redis, ttl="200ms")))
    began = time.monotonic()
    load = Load(servers, CHECKS_UNDER_FAULTS)
    load.run(lambda load: fault(redis, load))
    _, counts = summary(load, servers, began, fault.__name__)
    assert load.checked >= CHECKS_UNDER_FAULTS and not load.unavailable, load.unavailable[:3]
    for outcome in outcomes:
        assert counts["redis", outcome] > 0, (outcome, counts)
    connected(servers)


def test_instances_share_cached_bodies_in_redis(instances, redis):
    first, second = connected(instances(2, shared(redis)))
    body = body_of(5000)
    first.s3().put_object(Bucket="bucket", Key="key", Body=body)
    assert first.s3().get_object(Bucket="bucket", Key="key")["Body"].read() == body
    eventually(redis.bodies, 10, message="the body was not shared")
    assert second.s3().get_object(Bucket="bucket", Key="key", Range="bytes=10-19")["Body"].read() == body[10:20]
    assert store_reads([second]) == 0 and cache_requests([second])["redis", "hit"] == 1
    [key] = redis.bodies()
    assert 0 < redis.run("PTTL", key) <= 300_000


def test_condemned_content_is_dropped_from_redis_in_one_round_trip(instances, redis):
    [server] = connected(instances(1, shared(redis)))
    keys = [f"key-{number}" for number in range(200)]
    for key in keys:
        server.s3().put_object(Bucket="bucket", Key=key, Body=key.encode())
        server.s3().get_object(Bucket="bucket", Key=key)["Body"].read()
    eventually(lambda: len(redis.bodies()) == len(keys), 10, message="not all bodies were shared")
    server.s3().delete_objects(Bucket="bucket", Delete={"Objects": [{"Key": key} for key in keys]})
    eventually(lambda: not redis.bodies(), 10, message="bodies of deleted objects stay in Redis")
    calls = redis.run("INFO", "commandstats").decode()
    assert "cmdstat_unlink:calls=1," in calls, calls
    assert server.metrics()['s3o_cache_invalidations_total{tier="redis",outcome="ok"}'] == len(keys)


def test_redis_that_is_unreachable_at_start_is_used_later(own_server, redis):
    redis.kill()
    server = own_server(settings=shared(redis)).start()
    server.s3().create_bucket(Bucket="bucket")
    server.s3().put_object(Bucket="bucket", Key="key", Body=b"body")
    began = time.monotonic()
    for _ in range(20):
        assert server.s3().get_object(Bucket="bucket", Key="key")["Body"].read() == b"body"
    assert time.monotonic() - began < 5
    assert "the shared cache is unreachable" in command(server, "status").stdout
    redis.restart()
    connected([server])


def test_every_cache_outcome_is_exported_before_it_occurs(own_server, redis):
    server = own_server(settings=shared(redis)).start()
    expected = {("memory", outcome) for outcome in ("hit", "shared", "miss", "bypass")}
    expected |= {("redis", outcome) for outcome in ("hit", "miss", "error", "corrupt", "skipped")}
    assert cache_requests([server]) == dict.fromkeys(expected, 0)


def test_memory_cache_needs_no_redis(own_server):
    server = own_server(settings={"cache": {"enabled": True}}).start()
    s3 = server.s3()
    s3.create_bucket(Bucket="bucket")
    for body in (b"first", b"second"):
        s3.put_object(Bucket="bucket", Key="key", Body=body)
        for _ in range(3):
            assert s3.get_object(Bucket="bucket", Key="key")["Body"].read() == body
    assert store_reads([server]) == 2
    cache = admin_request(server, "GET", "/status")[1]["cache"]
    assert (cache["entries"], cache["hits"], cache["misses"], cache["shared"]) == (1, 4, 2, "none")
    assert "cache: 1 bodies" in command(server, "status").stdout


def test_cache_is_disabled_by_default(own_server):
    server = own_server().start()
    assert admin_request(server, "GET", "/status")[1]["cache"] is None
    assert not any(name.startswith("s3o_cache") for name in server.metrics())


def test_shared_cache_without_redis_url_is_refused(own_server):
    server = own_server(settings={"cache": {"enabled": True, "shared": "redis"}})
    server.spawn()
    assert server.process.wait(30) == 2
    assert "redis.url: is required by cache.shared: redis" in server.log(), binary()


def test_load_checker_detects_stale_and_wrong_bodies():
    key = Key("key")
    first = key.begin(True)
    key.end(first)
    old = load_body("key", first)
    assert key.check(first, 200, old) is None
    second = key.begin(True)
    assert key.check(first, 200, old) is None, "the change was not answered before the read began"
    key.end(second)
    assert key.check(second, 200, old), "a replaced body is an error"
    assert key.check(second, 200, load_body("key", second)[:-1]), "a truncated body is an error"
    assert key.check(second, 200, load_body("other", second)), "the body of another key is an error"
    assert key.check(second, 404, b""), "404 for an existing object is an error"
    key.end(key.begin(False))
    assert key.check(3, 200, load_body("key", second)), "the body of a deleted object is an error"
    assert key.check(3, 404, b"") is None
