"""Access keys: each may use only its buckets and actions, and cannot learn whether other buckets exist."""

import subprocess

import pytest
import yaml

from raw_client import assert_refused
from s3_checks import keys_of, read, refused, snapshot
from server_process import binary

pytestmark = pytest.mark.usefixtures("s3o_only")


@pytest.fixture
def granted(s3, new_bucket):
    name = new_bucket("granted")
    s3.put_object(Bucket=name, Key="object", Body=b"shared", Tagging="a=1")
    return name


@pytest.fixture
def private(s3, new_bucket):
    name = new_bucket("private")
    s3.put_object(Bucket=name, Key="object", Body=b"secret")
    return name


def reads(client, bucket):
    return {
        "get": lambda: client.get_object(Bucket=bucket, Key="object"),
        "list v1": lambda: client.list_objects(Bucket=bucket),
        "list v2": lambda: client.list_objects_v2(Bucket=bucket),
        "tags": lambda: client.get_object_tagging(Bucket=bucket, Key="object"),
        "attributes": lambda: client.get_object_attributes(Bucket=bucket, Key="object", ObjectAttributes=["ETag"]),
        "uploads": lambda: client.list_multipart_uploads(Bucket=bucket),
        "location": lambda: client.get_bucket_location(Bucket=bucket),
    }


def writes(client, bucket):
    source = {"Bucket": bucket, "Key": "object"}
    return {
        "put": lambda: client.put_object(Bucket=bucket, Key="new", Body=b"x"),
        "overwrite": lambda: client.put_object(Bucket=bucket, Key="object", Body=b"x"),
        "copy": lambda: client.copy_object(Bucket=bucket, Key="new", CopySource=source),
        "upload": lambda: client.create_multipart_upload(Bucket=bucket, Key="new"),
        "tag": lambda: client.put_object_tagging(
            Bucket=bucket, Key="object", Tagging={"TagSet": [{"Key": "b", "Value": "2"}]}
        ),
        "acl": lambda: client.put_object_acl(Bucket=bucket, Key="object", ACL="private"),
        "batch delete": lambda: client.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "object"}]}),
        "delete": lambda: client.delete_object(Bucket=bucket, Key="object"),
    }


def administration(client, bucket):
    return {
        "create": lambda: client.create_bucket(Bucket=f"{bucket}-more"),
        "tag": lambda: client.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": [{"Key": "a", "Value": "1"}]}),
        "acl": lambda: client.put_bucket_acl(Bucket=bucket, ACL="private"),
        "delete": lambda: client.delete_bucket(Bucket=bucket),
    }


@pytest.mark.parametrize("key", ["reader", "writer"])
def test_granted_keys_may_read(server, granted, key):
    for act in reads(server.s3(key), granted).values():
        act()
    server.s3(key).head_object(Bucket=granted, Key="object")
    server.s3(key).head_bucket(Bucket=granted)


def test_read_write_key_writes(server, granted):
    for act in writes(server.s3("writer"), granted).values():
        act()
    assert keys_of(server.s3("writer"), granted) == ["new"]


def test_read_only_key_cannot_change_anything(server, s3, granted):
    before = snapshot(s3, granted)
    actions = {**writes(server.s3("reader"), granted), **administration(server.s3("reader"), granted)}
    for name, act in actions.items():
        if name == "batch delete":
            try:
                assert [error["Code"] for error in act()["Errors"]] == ["AccessDenied"]
            except s3.exceptions.ClientError as refusal:
                assert refusal.response["Error"]["Code"] == "AccessDenied"
            continue
        with refused("AccessDenied", 403):
            act()
    assert snapshot(s3, granted) == before


def test_read_write_key_cannot_administer(server, s3, granted):
    for act in administration(server.s3("writer"), granted).values():
        with refused("AccessDenied", 403):
            act()
    assert f"{granted}-more" not in [entry["Name"] for entry in s3.list_buckets()["Buckets"]]
    assert read(s3, granted, "object") == b"shared"


@pytest.mark.parametrize("key", ["reader", "writer"])
def test_denial_does_not_reveal_whether_the_bucket_exists(server, s3, private, key):
    before = snapshot(s3, private)
    for name in (private, "private-that-is-not-there"):
        for action, act in {**reads(server.s3(key), name), **writes(server.s3(key), name)}.items():
            with refused("AccessDenied", 403):
                act()
        with refused("403", 403):
            server.s3(key).head_object(Bucket=name, Key="object")
    assert snapshot(s3, private) == before


def test_copy_needs_grants_for_source_and_target(server, s3, granted, private):
    writer = server.s3("writer")
    with refused("AccessDenied", 403):
        writer.copy_object(Bucket=granted, Key="stolen", CopySource={"Bucket": private, "Key": "object"})
    with refused("AccessDenied", 403):
        writer.copy_object(Bucket=private, Key="planted", CopySource={"Bucket": granted, "Key": "object"})
    names = {"Bucket": granted, "Key": "joined"}
    names["UploadId"] = writer.create_multipart_upload(**names)["UploadId"]
    with refused("AccessDenied", 403):
        writer.upload_part_copy(**names, PartNumber=1, CopySource={"Bucket": private, "Key": "object"})
    assert keys_of(s3, granted) == keys_of(s3, private) == ["object"]


def test_list_buckets_shows_only_granted_buckets(server, granted, private):
    for key in ("reader", "writer"):
        names = [entry["Name"] for entry in server.s3(key).list_buckets()["Buckets"]]
        assert granted in names and private not in names
    assert {granted, private} <= {entry["Name"] for entry in server.s3().list_buckets()["Buckets"]}


def test_an_unknown_key_is_refused(server, granted):
    raw = server.raw("unknown")
    assert_refused(raw.request("GET", raw.path(granted, "object")), 403, "InvalidAccessKeyId", f"/{granted}/object")


def test_an_unsigned_request_is_refused(server, s3, granted):
    raw = server.raw("anonymous")
    for method in ("GET", "PUT", "DELETE"):
        assert_refused(raw.request(method, raw.path(granted, "object"), body=b""), 403, "AccessDenied")
    assert_refused(raw.request("GET", "/"), 403, "AccessDenied")
    assert read(s3, granted, "object") == b"shared"


def test_the_admin_listener_needs_its_token(server):
    assert server.admin("POST", "/admin/api/workers/cleanup/run", token=None)[0] in (401, 403)
    assert server.admin("POST", "/admin/api/workers/cleanup/run", token="wrong")[0] in (401, 403)
    assert server.run_worker("cleanup")["outcome"] == "ok"
    assert server.admin("POST", "/admin/api/workers/no_such_worker/run")[0] == 404
    for path in ("/health/live", "/health/ready", "/metrics"):
        assert server.admin_get(path)[0] == 200


def test_an_empty_list_of_buckets_grants_nothing(own_server):
    server = own_server()
    keys = {entry["access_key_id"]: entry for entry in server.config["access_keys"]}
    keys["writer-key"]["buckets"] = []
    keys["reader-key"]["buckets"] = None
    server.config["access_keys"].append(
        {"access_key_id": "unknown-key", "secret_access_key": server.keys["unknown"].secret_key, "access": "read_write"}
    )
    admin = server.start().s3()
    admin.create_bucket(Bucket="granted-a")
    admin.put_object(Bucket="granted-a", Key="object", Body=b"x", Tagging="a=1")
    for name in ("writer", "reader"):
        assert server.s3(name).list_buckets()["Buckets"] == []
        for call in {**reads(server.s3(name), "granted-a"), **writes(server.s3(name), "granted-a")}.values():
            with refused("AccessDenied", 403):
                call()
    # A key without the field may use every bucket.
    assert read(server.s3("unknown"), "granted-a", "object") == b"x"


def test_validate_prints_what_each_key_may_do(own_server):
    server = own_server()
    server.config["access_keys"].append(
        {"access_key_id": "idle", "secret_access_key": "hidden-secret", "buckets": [], "access": "admin"}
    )
    server.config_path.write_text(yaml.safe_dump(server.config))
    done = subprocess.run(
        [binary(), "validate", "--config", str(server.config_path)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done
    rows = {line.split()[0]: line for line in done.stdout.splitlines() if "-key " in line or line.startswith("idle")}
    assert "granted-*" in rows["reader-key"] and "read and list objects" in rows["reader-key"], done.stdout
    assert "write, copy, tag and delete objects" in rows["writer-key"], done.stdout
    assert "create, delete, tag and configure buckets" in rows["admin-key"], done.stdout
    assert "none" in rows["idle"] and "nothing" in rows["idle"], done.stdout
    assert "secret" not in done.stdout
