"""Bodies at hand, in memory and in a Redis that instances share: they spare the store, and nobody is ever served what was
deleted, replaced or past its time, whatever happens to that Redis."""

import tempfile
import time

import pytest

from asking import ask, command
from cache_load import Key, Load
from cache_load import body_of as load_body
from facts import body_of
from own_redis import OwnRedis
from polling import eventually
from running import binary

pytestmark = [pytest.mark.alone, pytest.mark.timeout(300)]

# A busy machine must not let a lease run out.
PATIENT = {"write_path": {"pending_intents": {"min_age": "1m", "reaper_tick": "1m"}}}
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
    return {"cache": {"enabled": True, "shared": "redis", **settings}, "redis": {"url": redis.url}, **PATIENT}


def connected(servers):
    for server in servers:
        eventually(lambda: ask(server, "GET", "/status")[1]["cache"]["shared"] == "ok", 60, message="no Redis")
    return servers


def asked(servers):
    """What the tiers were asked, over all instances: {(tier, outcome): count}."""
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


def told(load, servers, began, what):
    counts, took = asked(servers), time.monotonic() - began
    ratio = hit_ratio(counts)
    print(
        f"\n{what}: {load.checked} checks and {load.changes} changes in {took:.0f} s, "
        f"{ratio:.1%} of the reads from memory, {counts['redis', 'hit']} from Redis, "
        f"{store_reads(servers):.0f} reads of the store, {len(load.unavailable)} answers of 503"
    )
    return ratio, counts


def test_nobody_is_served_what_is_gone(instances, redis):
    servers = connected(instances(2, shared(redis)))
    began = time.monotonic()
    load = Load(servers, CHECKS).run()
    ratio, counts = told(load, servers, began, "healthy")
    assert load.checked >= CHECKS and not load.unavailable, load.unavailable[:3]
    assert ratio > 0.5 and counts["redis", "hit"] > 0
    assert store_reads(servers) < load.checked / 10


def kill_and_restart(redis, load):
    load.wait_until(0.2)
    redis.kill()
    load.wait_until(0.6)
    redis.restart()


def freeze_and_thaw(redis, load):
    for share in (0.2, 0.6):
        load.wait_until(share)
        redis.freeze()
        load.wait_until(share + 0.2)
        redis.thaw()


def fill_with_nonsense(redis, load):
    """Values that are empty, foreign, cut, or those of another."""
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
        (freeze_and_thaw, ("error", "skipped")),
        (fill_with_nonsense, ("corrupt",)),
    ],
    ids=["killed", "frozen", "nonsense"],
)
def test_whatever_happens_to_redis_nobody_is_served_what_is_gone(instances, redis, fault, outcomes):
    # Bodies leave the memory soon, so that Redis is asked again and again.
    servers = connected(instances(2, shared(redis, ttl="200ms")))
    began = time.monotonic()
    load = Load(servers, CHECKS_UNDER_FAULTS)
    load.run(lambda load: fault(redis, load))
    _, counts = told(load, servers, began, fault.__name__)
    assert load.checked >= CHECKS_UNDER_FAULTS and not load.unavailable, load.unavailable[:3]
    for outcome in outcomes:
        assert counts["redis", outcome] > 0, (outcome, counts)
    connected(servers)


def test_one_instance_finds_what_another_has_read(instances, redis):
    first, second = connected(instances(2, shared(redis)))
    body = body_of(5000)
    first.s3().put_object(Bucket="bucket", Key="key", Body=body)
    assert first.s3().get_object(Bucket="bucket", Key="key")["Body"].read() == body
    eventually(redis.bodies, 10, message="the body was not shared")
    assert second.s3().get_object(Bucket="bucket", Key="key", Range="bytes=10-19")["Body"].read() == body[10:20]
    assert store_reads([second]) == 0 and asked([second])["redis", "hit"] == 1
    [key] = redis.bodies()
    assert 0 < redis.run("PTTL", key) <= 300_000


def test_what_was_condemned_leaves_redis_in_one_round_trip(instances, redis):
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


def test_a_redis_that_is_away_at_the_start_is_found_later(own_server, redis):
    redis.kill()
    server = own_server(settings=shared(redis)).start()
    server.s3().create_bucket(Bucket="bucket")
    server.s3().put_object(Bucket="bucket", Key="key", Body=b"body")
    began = time.monotonic()
    for _ in range(20):
        assert server.s3().get_object(Bucket="bucket", Key="key")["Body"].read() == b"body"
    assert time.monotonic() - began < 5
    assert "the shared cache is away" in command(server, "status").stdout
    redis.restart()
    connected([server])


def test_every_outcome_is_there_before_it_happens(own_server, redis):
    server = own_server(settings=shared(redis)).start()
    expected = {("memory", outcome) for outcome in ("hit", "shared", "miss", "bypass")}
    expected |= {("redis", outcome) for outcome in ("hit", "miss", "error", "corrupt", "skipped")}
    assert asked([server]) == dict.fromkeys(expected, 0)


def test_memory_alone_needs_no_redis(own_server):
    server = own_server(settings={"cache": {"enabled": True}}).start()
    s3 = server.s3()
    s3.create_bucket(Bucket="bucket")
    for body in (b"first", b"second"):
        s3.put_object(Bucket="bucket", Key="key", Body=body)
        for _ in range(3):
            assert s3.get_object(Bucket="bucket", Key="key")["Body"].read() == body
    assert store_reads([server]) == 2
    cache = ask(server, "GET", "/status")[1]["cache"]
    assert (cache["entries"], cache["hits"], cache["misses"], cache["shared"]) == (1, 4, 2, "none")
    assert "cache: 1 bodies" in command(server, "status").stdout


def test_without_a_word_there_is_no_cache(own_server):
    server = own_server().start()
    assert ask(server, "GET", "/status")[1]["cache"] is None
    assert not any(name.startswith("s3o_cache") for name in server.metrics())


def test_sharing_without_a_redis_is_refused(own_server):
    server = own_server(settings={"cache": {"enabled": True, "shared": "redis"}})
    server.spawn()
    assert server.process.wait(30) == 2
    assert "redis.url: is required by cache.shared: redis" in server.log(), binary()


def test_the_load_would_notice():
    key = Key("key")
    first = key.begin(True)
    key.end(first)
    old = load_body("key", first)
    assert key.judge(first, 200, old) is None
    second = key.begin(True)
    assert key.judge(first, 200, old) is None, "the change was not answered when the reader asked"
    key.end(second)
    assert key.judge(second, 200, old), "a body that was replaced"
    assert key.judge(second, 200, load_body("key", second)[:-1]), "a body that was cut"
    assert key.judge(second, 200, load_body("other", second)), "the body of another key"
    assert key.judge(second, 404, b""), "an object that is there"
    key.end(key.begin(False))
    assert key.judge(3, 200, load_body("key", second)), "an object that is gone"
    assert key.judge(3, 404, b"") is None
