"""The backend of a write: by its size limit, and by the shares of used capacity with `routing.strategy: spread`."""

import pytest

from clients import Aws
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
    assert abs(shares["disk"] - shares["second"]) < 0.1, shares
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


def test_multipart_object_larger_than_every_backend_is_spread_over_them(own_server, tmp_path):
    server = own_server(settings=QUICK)
    server.config["backends"][0]["quota"] = "32MiB"
    for name in ("second", "third"):
        root = str(server.folder / name)
        server.config["backends"].append({"name": name, "kind": "fs", "root": root, "quota": "32MiB"})
    server.start().s3().create_bucket(Bucket="bucket")
    body = body_of(48 * MIB)
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(body)
    with refused("InsufficientStorage", 507):
        server.s3().put_object(Bucket="bucket", Key="whole", Body=body)
    aws = Aws(server, tmp_path)
    aws.copy(source, aws.url("bucket", "large"))
    aws.copy(aws.url("bucket", "large"), target)
    assert target.read_bytes() == body
    assert len(located_on(server)) > 1
    settle(server)
