"""A store that is away when a write begins: the write goes to the next one that has room, and nothing is left behind."""

import pytest

import seaweed
from facts import PART_BYTES_MIN, body_of, multipart, read, refused
from gatekeeper import Gatekeeper
from polling import eventually
from rest import QUICK, settle

KEY = "moved"


@pytest.fixture
def gate():
    keeper = Gatekeeper(seaweed.fresh_bucket()["endpoint"])
    yield keeper
    if not keeper.is_shut:
        keeper.shut()


@pytest.fixture
def server(own_server, gate):
    """A store behind the gate, and a small disk behind that."""
    backend = {**seaweed.fresh_bucket(), "endpoint": gate.endpoint}
    server = own_server(backend=backend, settings=QUICK)
    server.config["backends"].append({"name": "disk", "kind": "fs", "root": str(server.folder / "disk"), "quota": "6MiB"})
    server.start().s3().create_bucket(Bucket="bucket")
    return server


def homes(server):
    return {row[0] for row in server.rows("SELECT backend_name FROM object_locations")}


def test_a_write_goes_elsewhere_while_its_store_is_away(server, gate):
    s3, store = server.s3(), server.config["backends"][0]["name"]
    s3.put_object(Bucket="bucket", Key="before", Body=body_of(1000, "before"))
    assert homes(server) == {store}
    gate.shut()
    raw = server.raw()
    assert raw.request("PUT", f"/bucket/{KEY}", body=body_of(1000, KEY)).status == 200
    # A large one may find a connection that still stands, and its body is gone before anybody knows.
    # Probes and workers hold connections of their own, so several writes in a row have to find none.
    def put_large():
        return raw.request("PUT", "/bucket/large", body=body_of(140_000)).status == 200

    eventually(lambda: all(put_large() for _ in range(3)), 20, 0.2)
    multipart(s3, "bucket", "joined", [body_of(PART_BYTES_MIN), b"end"])
    assert read(s3, "bucket", KEY) == body_of(1000, KEY)
    assert homes(server) == {store, "disk"}
    gate.open()
    assert read(s3, "bucket", "joined") == body_of(PART_BYTES_MIN) + b"end"
    settle(server)


def test_what_fits_nowhere_else_is_not_refused_for_good(server, gate):
    """The store that is away might have had room: the client is to ask again."""
    gate.shut()
    with refused("ServiceUnavailable", 503):
        server.s3().put_object(Bucket="bucket", Key="large", Body=body_of(7 * 1024 * 1024))
    gate.open()
    server.s3().put_object(Bucket="bucket", Key="large", Body=body_of(7 * 1024 * 1024))
    settle(server)


def test_a_write_goes_elsewhere_while_its_disk_is_away(own_server):
    """Whatever its size: a small body is kept, and for a large one the disk is visited before any of it is taken."""
    server = own_server(settings=QUICK)
    server.config["backends"].append({"name": "second", "kind": "fs", "root": str(server.folder / "second")})
    s3 = server.start().s3()
    s3.create_bucket(Bucket="bucket")
    s3.put_object(Bucket="bucket", Key="before", Body=b"before")
    assert homes(server) == {"disk"}
    away = server.root.rename(server.root.with_suffix(".away"))
    raw, sizes = server.raw(), (0, 1, 128 * 1024, 128 * 1024 + 1, 1024 * 1024, 3 * 1024 * 1024)
    for size in sizes:
        assert raw.request("PUT", f"/bucket/{size}", body=body_of(size)).status == 200, size
    multipart(s3, "bucket", "joined", [body_of(PART_BYTES_MIN), b"end"])
    with refused("ServiceUnavailable", 503):
        read(s3, "bucket", "before")
    assert homes(server) == {"disk", "second"}
    away.rename(server.root)
    assert read(s3, "bucket", "before") == b"before"
    for size in sizes:
        assert read(s3, "bucket", str(size)) == body_of(size)
    settle(server)
