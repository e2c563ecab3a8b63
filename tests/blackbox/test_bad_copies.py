"""Copies that went bad or away under content that a bucket keeps once: what is sent again is stored, and heals all its names."""

import itertools
import json

import pytest

import seaweed
from catalogs import PostgresCatalog
from facts import PART_BYTES_MIN, body_of, keys_of, multipart, read
from gatekeeper import Gatekeeper
from polling import eventually
from rest import QUICK, settle, stored_on
from signing import UNSIGNED
from stores import Store

ONCE = "once"
BUCKETS = {"buckets": [{"name": ONCE, "dedup": True}]}
CACHED = {"cache": {"enabled": True}}
SIZE = 30_000
# How a copy goes bad: what is left of it.
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
    """Where the bytes of an object lie."""
    sql = f"SELECT physical_key FROM object_locations l JOIN objects o ON o.content_id = l.content_id WHERE o.key = '{key}'"
    ((physical_key,),) = server.rows(sql)
    return physical_key


def spoil(server, key, left):
    store, physical_key = Store(server), copy_under(server, key)
    store.remove(physical_key)
    if left is not None:
        store.write(physical_key, left)


def empty(server):
    """Deletes everything, and shows that nothing is left."""
    s3 = server.s3()
    for key in keys_of(s3, ONCE):
        s3.delete_object(Bucket=ONCE, Key=key)
    settle(server)
    assert all(stored_on(backend) == set() for backend in server.config["backends"])


@pytest.mark.parametrize("seen", [False, True], ids=["unseen", "seen"])
def test_what_is_sent_again_heals_all_its_names(server, seen):
    for how, digest, key in itertools.product(DAMAGE, DIGESTS, KEYS):
        case = f"{how}/{digest}/{key}"
        body = body_of(SIZE, case)
        send(server, f"{case}/first", body, "signed")
        send(server, f"{case}/second", body, "signed")
        spoil(server, f"{case}/first", DAMAGE[how])
        if seen and how != "longer":
            assert fetch(server, f"{case}/first") in (500, 503), case
        send(server, f"{case}/{key}", body, digest)
        for name in {"first", "second", key}:
            assert fetch(server, f"{case}/{name}") == body, (case, name)
    settle(server)
    assert len(stored_on(server.config["backends"][0])) == len(DAMAGE) * len(DIGESTS) * len(KEYS), "each is stored once"
    empty(server)


def test_what_a_read_found_rotten_is_healed_by_what_is_sent_again(cached_server):
    server = cached_server
    for digest, key in itertools.product(DIGESTS, KEYS):
        case = f"{digest}/{key}"
        body = body_of(SIZE, case)
        send(server, f"{case}/first", body, "unsigned")
        send(server, f"{case}/second", body, "unsigned")
        settle(server)
        spoil(server, f"{case}/first", bytes(SIZE))
        assert fetch(server, f"{case}/second") == 500, "it is not what was written"
        send(server, f"{case}/{key}", body, digest)
        for name in {"first", "second", key}:
            assert fetch(server, f"{case}/{name}") == body, (case, name)
    empty(server)


def test_a_part_that_is_sent_again_heals_the_object_that_has_it(server):
    s3 = server.s3()
    parts = [body_of(PART_BYTES_MIN, "part"), b"end"]
    multipart(s3, ONCE, "one", parts)
    rows = server.rows(f"SELECT physical_key FROM object_locations WHERE size_bytes = {PART_BYTES_MIN}")
    Store(server).remove(rows[0][0])
    assert fetch(server, "one") == 500
    multipart(s3, ONCE, "two", parts)
    assert read(s3, ONCE, "one") == read(s3, ONCE, "two") == b"".join(parts)
    empty(server)


@pytest.fixture(params=["away", "away on postgres", "another folder"])
def unplugged(request, own_server):
    """A server with two disks, and what takes the first one away and brings it back."""
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
def shut(own_server):
    """A server with a store behind a gate and a disk, and what shuts the gate and opens it."""
    gate = Gatekeeper(seaweed.fresh_bucket()["endpoint"])
    backend = {**seaweed.fresh_bucket(), "endpoint": gate.endpoint}
    server = own_server(backend=backend, settings={**QUICK, **BUCKETS})
    server.config["backends"].append({"name": "second", "kind": "fs", "root": str(server.folder / "second")})
    (server.folder / "second").mkdir()
    yield server.start(), gate.shut, gate.open
    if not gate.is_shut:
        gate.shut()


def backends_of(server):
    """The backends as the status shows them."""
    status, body = server.admin("GET", "/admin/api/status")
    assert status == 200
    return json.loads(body)["backends"]


def sent_while_away(server, leave, come_back):
    """What is acknowledged while the only other copy is away is readable there and then, and ever after."""
    body = body_of(SIZE)
    send(server, "first", body, "signed")
    send(server, "second", body, "signed")
    leave()
    eventually(lambda: fetch(server, "first") in (500, 503), message="it is still there")
    raw = server.raw()
    for digest, payload_hash in DIGESTS.items():
        for key in (f"new-{digest}", "second"):
            ask = lambda: raw.request("PUT", f"/{ONCE}/{key}", body=body, payload_hash=payload_hash)
            # The first one may find a connection that still stands, and its body is gone before anybody knows.
            eventually(lambda: ask().status == 200, 10, message=f"{key} is not stored")
            assert fetch(server, key) == body, (digest, key)
    come_back()
    assert server.rows("SELECT state FROM object_locations WHERE state <> 'present'") == [], "nothing is held against it"
    eventually(lambda: fetch(server, "first") == body, message="it is not back")
    # Another folder at the path was frozen: the right one is compared before it is relied upon again.
    eventually(lambda: not any(backend["frozen"] for backend in backends_of(server)), 30, message="it stays frozen")
    send(server, "joined", body, "signed")
    assert copy_under(server, "joined") == copy_under(server, "first"), "and it is shared again"
    for key in ("first", "second", "joined", "new-signed", "new-unsigned"):
        assert fetch(server, key) == body, key
    empty(server)


def test_what_is_acknowledged_while_a_disk_is_away_lies_elsewhere(unplugged):
    sent_while_away(*unplugged)


def test_what_is_acknowledged_while_a_store_is_away_lies_elsewhere(shut):
    sent_while_away(*shut)
