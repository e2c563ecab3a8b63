"""A store that is unreachable when a write begins: the write goes to the next backend, and no bytes are left behind."""

import pytest

import seaweed
from polling import eventually
from refusing_proxy import RefusingProxy
from s3_checks import PART_BYTES_MIN, body_of, multipart, read, refused
from settled_state import QUICK, settle

KEY = "moved"


@pytest.fixture
def proxy():
    refusing = RefusingProxy(seaweed.fresh_bucket()["endpoint"])
    yield refusing
    if not refusing.is_down:
        refusing.stop()


@pytest.fixture
def server(own_server, proxy):
    """A store behind the proxy, then a small disk."""
    backend = {**seaweed.fresh_bucket(), "endpoint": proxy.endpoint}
    server = own_server(backend=backend, settings=QUICK)
    server.config["backends"].append(
        {"name": "disk", "kind": "fs", "root": str(server.folder / "disk"), "quota": "6MiB"}
    )
    server.start().s3().create_bucket(Bucket="bucket")
    return server


def located_on(server):
    return {row[0] for row in server.rows("SELECT backend_name FROM object_locations")}


def test_write_uses_the_next_backend_while_the_store_is_away(server, proxy):
    s3, store = server.s3(), server.config["backends"][0]["name"]
    s3.put_object(Bucket="bucket", Key="before", Body=body_of(1000, "before"))
    assert located_on(server) == {store}
    proxy.stop()
    raw = server.raw()
    assert raw.request("PUT", f"/bucket/{KEY}", body=body_of(1000, KEY)).status == 200

    # A large write may use a connection that is still open and lose its body.
    # Probes and workers have open connections, too, so several writes in a row must succeed.
    def put_large():
        return raw.request("PUT", "/bucket/large", body=body_of(140_000)).status == 200

    eventually(lambda: all(put_large() for _ in range(3)), 20, 0.2)
    multipart(s3, "bucket", "joined", [body_of(PART_BYTES_MIN), b"end"])
    assert read(s3, "bucket", KEY) == body_of(1000, KEY)
    assert located_on(server) == {store, "disk"}
    proxy.start()
    assert read(s3, "bucket", "joined") == body_of(PART_BYTES_MIN) + b"end"
    settle(server)


def test_write_gets_503_if_only_an_unreachable_backend_has_capacity(server, proxy):
    """The unreachable store may have free capacity, so the client should retry."""
    proxy.stop()
    with refused("ServiceUnavailable", 503):
        server.s3().put_object(Bucket="bucket", Key="large", Body=body_of(7 * 1024 * 1024))
    proxy.start()
    server.s3().put_object(Bucket="bucket", Key="large", Body=body_of(7 * 1024 * 1024))
    settle(server)


def test_write_uses_the_next_backend_while_the_disk_is_away(own_server):
    """A small body is buffered; for a large one the disk is checked before the body is read."""
    server = own_server(settings=QUICK)
    server.config["backends"].append({"name": "second", "kind": "fs", "root": str(server.folder / "second")})
    s3 = server.start().s3()
    s3.create_bucket(Bucket="bucket")
    s3.put_object(Bucket="bucket", Key="before", Body=b"before")
    assert located_on(server) == {"disk"}
    away = server.root.rename(server.root.with_suffix(".away"))
    raw, sizes = server.raw(), (0, 1, 128 * 1024, 128 * 1024 + 1, 1024 * 1024, 3 * 1024 * 1024)
    for size in sizes:
        assert raw.request("PUT", f"/bucket/{size}", body=body_of(size)).status == 200, size
    multipart(s3, "bucket", "joined", [body_of(PART_BYTES_MIN), b"end"])
    with refused("ServiceUnavailable", 503):
        read(s3, "bucket", "before")
    assert located_on(server) == {"disk", "second"}
    away.rename(server.root)
    assert read(s3, "bucket", "before") == b"before"
    for size in sizes:
        assert read(s3, "bucket", str(size)) == body_of(size)
    settle(server)
