"""Damaged or unreachable copies of shared content: a new upload is stored and repairs all objects that share it."""

import itertools
import json

import pytest

import seaweed
from catalogs import PostgresCatalog
from polling import eventually
from refusing_proxy import RefusingProxy
from s3_checks import PART_BYTES_MIN, body_of, keys_of, multipart, read
from settled_state import QUICK, settle, stored_on
from signing import UNSIGNED
from stores import Store

ONCE = "once"
BUCKETS = {"buckets": [{"name": ONCE, "dedup": True}]}
CACHED = {"cache": {"enabled": True}}
SIZE = 30_000
# Kinds of damage: the bytes that are left of a copy.
DAMAGE = {"gone": None, "cut": b"short", "longer": bytes(SIZE + 1)}
DIGESTS = {"signed": None, "unsigned": UNSIGNED}
KEYS = ["first", "second", "new"]


def server_of(kind, own_server, settings):
    backend = seaweed.fresh_bucket() if kind == "s3" else None
    catalog = PostgresCatalog() if kind == "postgres" else None
    return own_server(backend=backend, catalog=catalog, settings={**QUICK, **BUCKETS, **settings})


@pytest.fixture(params=["fs", "s3", "postgres"])
def server(request, own_server):
    return server_of(request.param, own_server, {}).start()


@pytest.fixture(params=["fs", "s3", "postgres"])
def cached_server(request, own_server):
    return server_of(request.param, own_server, CACHED).start()


def send(server, key, body, digest):
    answer = server.raw().request("PUT", f"/{ONCE}/{key}", body=body, payload_hash=DIGESTS[digest])
    assert answer.status == 200, answer
    return answer


def fetch(server, key):
    answer = server.raw().request("GET", f"/{ONCE}/{key}")
    return answer.body if answer.status == 200 else answer.status


def copy_under(server, key):
    """Physical key of an object's bytes."""
    sql = (
        "SELECT physical_key FROM object_locations l JOIN objects o ON o.content_id = l.content_id "
        f"WHERE o.key = '{key}'"
    )
    ((physical_key,),) = server.rows(sql)
    return physical_key


def damage_copy(server, key, left):
    store, physical_key = Store(server), copy_under(server, key)
    store.remove(physical_key)
    if left is not None:
        store.write(physical_key, left)


def empty(server):
    """Deletes everything and checks that no bytes are left."""
    s3 = server.s3()
    for key in keys_of(s3, ONCE):
        s3.delete_object(Bucket=ONCE, Key=key)
    settle(server)
    assert all(stored_on(backend) == set() for backend in server.config["backends"])


@pytest.mark.parametrize("seen", [False, True], ids=["unseen", "seen"])
def test_new_upload_repairs_all_objects_that_share_the_content(server, seen):
    for how, digest, key in itertools.product(DAMAGE, DIGESTS, KEYS):
        case = f"{how}/{digest}/{key}"
        body = body_of(SIZE, case)
        send(server, f"{case}/first", body, "signed")
        send(server, f"{case}/second", body, "signed")
        damage_copy(server, f"{case}/first", DAMAGE[how])
        if seen and how != "longer":
            assert fetch(server, f"{case}/first") in (500, 503), case
        send(server, f"{case}/{key}", body, digest)
        for name in {"first", "second", key}:
            assert fetch(server, f"{case}/{name}") == body, (case, name)
    settle(server)
    assert len(stored_on(server.config["backends"][0])) == len(DAMAGE) * len(DIGESTS) * len(KEYS), "each is stored once"
    empty(server)


def test_new_upload_repairs_a_copy_that_a_read_found_damaged(cached_server):
    server = cached_server
    for digest, key in itertools.product(DIGESTS, KEYS):
        case = f"{digest}/{key}"
        body = body_of(SIZE, case)
        send(server, f"{case}/first", body, "unsigned")
        send(server, f"{case}/second", body, "unsigned")
        settle(server)
        damage_copy(server, f"{case}/first", bytes(SIZE))
        assert fetch(server, f"{case}/second") == 500, "the bytes are not those that were written"
        send(server, f"{case}/{key}", body, digest)
        for name in {"first", "second", key}:
            assert fetch(server, f"{case}/{name}") == body, (case, name)
    empty(server)


def test_new_upload_of_a_part_repairs_the_object(server):
    s3 = server.s3()
    parts = [body_of(PART_BYTES_MIN, "part"), b"end"]
    multipart(s3, ONCE, "one", parts)
    rows = server.rows(f"SELECT physical_key FROM object_locations WHERE size_bytes = {PART_BYTES_MIN}")
    Store(server).remove(rows[0][0])
    assert fetch(server, "one") == 500
    multipart(s3, ONCE, "two", parts)
    assert read(s3, ONCE, "one") == read(s3, ONCE, "two") == b"".join(parts)
    empty(server)


def test_read_through_the_cache_uses_another_copy_instead_of_a_wrong_one(own_server):
    replication = {"factor": 2, "write_copies": 2, "interval": "200ms"}
    cache = {"enabled": True, "max_object_size": "16MiB"}
    server = server_of("fs", own_server, {"replication": replication, "cache": cache})
    server.config["backends"].append({"name": "second", "kind": "fs", "root": str(server.folder / "second")})
    (server.folder / "second").mkdir()
    s3 = server.start().s3()
    send(server, "whole", body_of(SIZE), "signed")
    parts = [body_of(PART_BYTES_MIN, "part"), b"end"]
    multipart(s3, ONCE, "joined", parts)
    # The cache is empty after a start.
    server.stop()
    copies = server.rows("SELECT physical_key, size_bytes FROM object_locations WHERE backend_name = 'disk'")
    assert len(copies) == 3
    for physical_key, size in copies:
        Store(server).remove(physical_key)
        Store(server).write(physical_key, bytes(size))
    server.start()
    assert fetch(server, "whole") == body_of(SIZE)
    assert fetch(server, "joined") == b"".join(parts)
    states = "SELECT DISTINCT backend_name, state FROM object_locations WHERE state <> 'lost'"
    eventually(lambda: set(server.rows(states)) == {("disk", "present"), ("second", "present")}, message="not repaired")
    settle(server)


@pytest.fixture(params=["away", "away on postgres", "another folder"])
def unplugged_disk(request, own_server):
    """A server with two disks, and functions that remove the first one and bring it back."""
    is_replaced = request.param == "another folder"
    server = server_of(request.param.rpartition(" ")[2], own_server, {})
    server.config["backends"].append({"name": "second", "kind": "fs", "root": str(server.folder / "second")})
    (server.folder / "second").mkdir()
    aside = server.folder / "aside"

    def unplug():
        server.root.rename(aside)
        if is_replaced:
            server.root.mkdir()

    def plug():
        if is_replaced:
            server.root.rmdir()
        aside.rename(server.root)

    return server.start(), unplug, plug


@pytest.fixture
def stopped_store(own_server):
    """A server with a store behind a proxy and a disk, and functions that stop and start the proxy."""
    proxy = RefusingProxy(seaweed.fresh_bucket()["endpoint"])
    backend = {**seaweed.fresh_bucket(), "endpoint": proxy.endpoint}
    server = own_server(backend=backend, settings={**QUICK, **BUCKETS})
    server.config["backends"].append({"name": "second", "kind": "fs", "root": str(server.folder / "second")})
    (server.folder / "second").mkdir()
    yield server.start(), proxy.stop, proxy.start
    if not proxy.is_down:
        proxy.stop()


def backends_of(server):
    """The backends in the status."""
    status, body = server.admin("GET", "/admin/api/status")
    assert status == 200
    return json.loads(body)["backends"]


def check_write_while_away(server, leave, come_back):
    """A write that is acknowledged while the other copy is unreachable is readable at once and afterwards."""
    body = body_of(SIZE)
    send(server, "first", body, "signed")
    send(server, "second", body, "signed")
    leave()
    eventually(lambda: fetch(server, "first") in (500, 503), message="the backend is not away yet")
    raw = server.raw()
    for digest, payload_hash in DIGESTS.items():
        for key in (f"new-{digest}", "second"):
            ask = lambda: raw.request("PUT", f"/{ONCE}/{key}", body=body, payload_hash=payload_hash)
            # The first write may use a connection that is still open and lose its body.
            eventually(lambda: ask().status == 200, 10, message=f"{key} is not stored")
            assert fetch(server, key) == body, (digest, key)
    come_back()
    assert server.rows("SELECT state FROM object_locations WHERE state <> 'present'") == [], (
        "the old copy is not suspect"
    )
    eventually(lambda: fetch(server, "first") == body, message="the backend is still away")
    # The other folder at the path was frozen: the identity of the right one is checked before its use.
    eventually(
        lambda: not any(backend["frozen"] for backend in backends_of(server)), 30, message="the backend is still frozen"
    )
    send(server, "joined", body, "signed")
    assert copy_under(server, "joined") == copy_under(server, "first"), "the old copy is shared again"
    for key in ("first", "second", "joined", "new-signed", "new-unsigned"):
        assert fetch(server, key) == body, key
    empty(server)


def test_write_is_stored_on_another_backend_while_the_disk_is_away(unplugged_disk):
    check_write_while_away(*unplugged_disk)


def test_write_is_stored_on_another_backend_while_the_store_is_away(stopped_store):
    check_write_while_away(*stopped_store)
