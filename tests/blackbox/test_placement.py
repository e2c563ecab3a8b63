"""The backend of a write: by its size limit, and by the shares of used capacity with `routing.strategy: spread`."""

import pytest

from s3_checks import body_of, read, refused
from settled_state import QUICK, settle

MIB = 1024 * 1024


@pytest.fixture
def two_disks(own_server):
    """Starts a server with two folders; each argument adds settings to one of them."""

    def start(first, second, **settings):
        server = own_server(settings={**QUICK, **settings})
        server.config["backends"][0].update(first)
        server.config["backends"].append(
            {"name": "second", "kind": "fs", "root": str(server.folder / "second"), **second}
        )
        server.start().s3().create_bucket(Bucket="bucket")
        return server

    return start


def used(server):
    return dict(server.rows("SELECT backend_name, sum(used_bytes) FROM backend_quotas GROUP BY backend_name"))


def located_on(server):
    return {row[0] for row in server.rows("SELECT backend_name FROM object_locations")}


def test_large_object_is_placed_on_the_backend_that_allows_its_size(two_disks):
    server = two_disks({"max_object_size": "1MiB"}, {"max_object_size": "3MiB"})
    s3 = server.s3()
    s3.put_object(Bucket="bucket", Key="small", Body=body_of(MIB))
    assert located_on(server) == {"disk"}
    s3.put_object(Bucket="bucket", Key="large", Body=body_of(MIB + 1))
    assert located_on(server) == {"disk", "second"}
    with refused("EntityTooLarge", 400):
        s3.put_object(Bucket="bucket", Key="larger", Body=body_of(3 * MIB + 1))
    assert read(s3, "bucket", "large") == body_of(MIB + 1)
    settle(server)


def test_spread_keeps_used_shares_close(two_disks):
    server = two_disks({"quota": "8MiB"}, {"quota": "4MiB"}, routing={"strategy": "spread"})
    s3 = server.s3()
    for number in range(48):
        s3.put_object(Bucket="bucket", Key=f"key-{number}", Body=body_of(128 * 1024))
    shares = {"disk": used(server)["disk"] / (8 * MIB), "second": used(server)["second"] / (4 * MIB)}
    # Counters are up to a second old, so a share may run ahead by what is written within a second.
    assert abs(shares["disk"] - shares["second"]) < 0.5, shares
    assert min(shares.values()) > 0.2, shares
    settle(server)


def test_write_that_fits_on_no_backend_gets_507_and_fits_after_a_delete(two_disks):
    server = two_disks({"quota": "1MiB"}, {"quota": "1MiB"})
    s3 = server.s3()
    for key in ("first", "second"):
        s3.put_object(Bucket="bucket", Key=key, Body=body_of(MIB))
    with refused("InsufficientStorage", 507):
        s3.put_object(Bucket="bucket", Key="third", Body=b"x")
    s3.delete_object(Bucket="bucket", Key="first")
    settle(server)
    s3.put_object(Bucket="bucket", Key="third", Body=body_of(MIB))
    assert used(server) == {"disk": MIB, "second": MIB}
