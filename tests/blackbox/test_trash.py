"""Prefixes that are deleted to trash, restored and purged."""

import json
import threading
import time

import pytest
from botocore.exceptions import ClientError

from admin_client import admin_request, command
from catalogs import PostgresCatalog
from expiry_client import put as put_expiring
from polling import eventually
from s3_checks import body_of, keys_of, multipart, read
from settled_state import QUICK, settle

WEEK_MS = 7 * 24 * 3600 * 1000
SETTINGS = {**QUICK, "expiry": {"interval": "200ms"}, "watchdog": {"interval": "200ms"}}


def used(server):
    return sum(backend["used"] for backend in server.admin_get("/admin/api/status")["backends"])


def in_trash(server):
    return server.rows("SELECT count(*) FROM trash_objects")[0][0]


def seen(s3, key):
    """Everything that a client sees of an object."""
    head = s3.head_object(Bucket="bucket", Key=key)
    tags = s3.get_object_tagging(Bucket="bucket", Key=key)["TagSet"]
    shown = ("ETag", "LastModified", "ContentLength", "ContentType", "CacheControl", "Metadata", "ChecksumSHA256")
    return {name: head.get(name) for name in shown}, sorted((tag["Key"], tag["Value"]) for tag in tags)


def events(server, name):
    lines = (server.folder / "s3o-data/audit.jsonl").read_text().splitlines()
    return [line for line in map(json.loads, lines) if line["event"] == name]


@pytest.fixture
def filled(own_server):
    """A server with objects below `a/`, and one beside it."""
    server = own_server(settings=SETTINGS).start()
    s3 = server.s3()
    s3.create_bucket(Bucket="bucket")
    s3.put_object(
        Bucket="bucket", Key="a/1", Body=body_of(2_000, "1"), Metadata={"colour": "blue"}, Tagging="k=v&l=w",
        ContentType="text/plain", CacheControl="no-cache", ChecksumAlgorithm="SHA256",
    )  # fmt: skip
    multipart(s3, "bucket", "a/joined", [body_of(5 << 20, "first"), body_of(1_000, "last")])
    s3.put_object(Bucket="bucket", Key="ab", Body=b"beside")
    return server, s3


def test_deleted_prefix_is_restored_as_it_was(filled):
    server, s3 = filled
    before, bytes_before = {key: seen(s3, key) for key in ("a/1", "a/joined")}, used(server)
    removed = command(server, "rm", "--recursive", "bucket/a/")
    assert removed.returncode == 0, removed.stderr
    assert "moved 2 objects to trash" in removed.stdout and "s3o restore bucket/a/" in removed.stdout
    assert keys_of(s3, "bucket") == ["ab"]
    with pytest.raises(ClientError, match="NoSuchKey"):
        s3.get_object(Bucket="bucket", Key="a/1")
    settle(server)
    assert used(server) == bytes_before
    (bucket,) = server.admin_get("/admin/api/status")["buckets"]
    assert (bucket["trash_objects"], bucket["trash_bytes"]) == (2, 2_000 + (5 << 20) + 1_000)
    restored = command(server, "restore", "bucket/a/")
    assert (restored.returncode, restored.stdout.splitlines()[0][:18]) == (0, "restored 2 objects"), restored
    assert {key: seen(s3, key) for key in before} == before
    assert read(s3, "bucket", "a/1") == body_of(2_000, "1")
    assert read(s3, "bucket", "a/joined") == body_of(5 << 20, "first") + body_of(1_000, "last")
    (deleted,), (back,) = events(server, "trash.deleted"), events(server, "trash.restored")
    assert (deleted["bucket"], deleted["prefix"], deleted["objects"]) == ("bucket", "a/", 2)
    assert (back["objects"], back["request_id"] != deleted["request_id"]) == (2, True)
    settle(server)


def test_restore_keeps_newer_writes_and_expired_objects_stay_deleted(filled):
    server, s3 = filled
    put_expiring(s3, "bucket", "a/brief", after="2s")
    admin_request(server, "DELETE", "/objects?bucket=bucket&prefix=a/")
    s3.put_object(Bucket="bucket", Key="a/1", Body=b"newer")
    time.sleep(2)
    status, answer = admin_request(server, "POST", "/objects/restore?bucket=bucket&prefix=a/")
    assert (status, answer["objects"], answer["existing"]) == (200, 1, 1), answer
    assert read(s3, "bucket", "a/1") == b"newer"
    assert keys_of(s3, "bucket") == ["a/1", "a/joined", "ab"]
    eventually(lambda: in_trash(server) == 1, message="the expired object stays in trash")


def test_trash_is_purged_after_its_retention(filled):
    server, s3 = filled
    admin_request(server, "DELETE", "/objects?bucket=bucket&prefix=a/")
    server.run_worker("expiry")
    assert in_trash(server) == 2
    server.database.change(
        f"UPDATE trash_objects SET deleted_at = deleted_at - {WEEK_MS}, purge_at = purge_at - {WEEK_MS}"
    )
    eventually(lambda: in_trash(server) == 0, message="nothing was purged")
    settle(server)
    assert used(server) == len(b"beside")
    assert {event["key"] for event in events(server, "trash.purged")} == {"a/1", "a/joined"}
    assert command(server, "restore", "bucket/").stdout.startswith("restored 0 objects")


def test_purge_touches_no_object(filled):
    server, s3 = filled
    command(server, "rm", "--recursive", "bucket/a/")
    s3.put_object(Bucket="bucket", Key="a/1", Body=b"newer")
    purged = command(server, "rm", "--recursive", "bucket/", "--purge")
    assert purged.stdout.startswith("purged 2 objects from trash"), purged
    assert keys_of(s3, "bucket") == ["a/1", "ab"]
    settle(server)
    assert used(server) == len(b"newer") + len(b"beside")
    assert len(events(server, "trash.purged")) == 2


def test_commands_refuse_what_may_be_a_mistake(filled):
    server, _ = filled
    for arguments, why in [
        (("rm", "bucket/a/"), "--recursive"),
        (("rm", "--recursive", "bucket"), "BUCKET/"),
        (("restore", "bucket"), "BUCKET/"),
    ]:
        refused = command(server, *arguments)
        assert refused.returncode == 2 and why in refused.stderr, refused
    unknown = command(server, "rm", "--recursive", "unknown/a")
    assert unknown.returncode == 1 and 'no bucket has the name "unknown"' in unknown.stderr, unknown
    assert admin_request(server, "DELETE", "/objects?bucket=unknown&prefix=")[0] == 404
    assert admin_request(server, "DELETE", "/objects?bucket=bucket")[0] == 400
    assert admin_request(server, "POST", "/objects/restore?bucket=bucket&prefix=&purge=true")[0] == 400
    assert in_trash(server) == 0


def test_bucket_with_trash_is_not_deleted(filled):
    server, s3 = filled
    command(server, "rm", "--recursive", "bucket/")
    with pytest.raises(ClientError, match="BucketNotEmpty.*objects in trash"):
        s3.delete_bucket(Bucket="bucket")
    command(server, "rm", "--recursive", "bucket/", "--purge")
    s3.delete_bucket(Bucket="bucket")


def test_second_operation_on_the_same_keys_is_refused(filled):
    server, s3 = filled
    begin = (
        "INSERT INTO prefix_operations (id, kind, bucket_id, prefix, range_end, cutoff, retention, position, token, "
        "lease_until, created_at) SELECT '0123456789abcdef0123456789abcdef', 'rm', id, 'a/', 'a0', 0, 0, 'a/', "
        f"'0123456789abcdef0123456789abcdef', {int(time.time() * 1000) + 60_000}, 0 FROM buckets"
    )
    server.database.change(begin)
    status, answer = admin_request(server, "POST", "/objects/restore?bucket=bucket&prefix=")
    assert (status, answer["error"]["code"], answer["running"]["prefix"]) == (409, "busy", "a/"), answer
    assert admin_request(server, "GET", "/trash")[1]["items"][0]["kind"] == "rm"
    assert admin_request(server, "DELETE", "/objects?bucket=bucket&prefix=b")[0] == 200
    # Its cut-off is before every write: it ends without an effect once its lease has ended.
    server.database.change("UPDATE prefix_operations SET lease_until = 0")
    eventually(lambda: not admin_request(server, "GET", "/trash")[1]["items"], message="it is not continued")
    assert len(keys_of(s3, "bucket")) == 3


def test_drain_empties_a_backend_with_trash(disks):
    server = disks(2)
    s3 = server.s3()
    for number in range(20):
        s3.put_object(Bucket="bucket", Key=f"a/{number}", Body=body_of(2_000, str(number)))
    admin_request(server, "DELETE", "/objects?bucket=bucket&prefix=a/")
    admin_request(server, "POST", "/backends/disk0/drain")
    eventually(lambda: admin_request(server, "GET", "/backends/disk0/drain")[1]["complete"], 60, 0.2)
    settle(server)
    assert admin_request(server, "POST", "/objects/restore?bucket=bucket&prefix=a/")[1]["objects"] == 20
    for number in range(20):
        assert read(s3, "bucket", f"a/{number}") == body_of(2_000, str(number))


def test_operation_of_a_killed_instance_is_continued(own_server):
    catalog, servers = PostgresCatalog(), []
    for name in ("killed", "other"):
        servers.append(own_server(name=name, settings=SETTINGS, catalog=catalog))
        servers[-1].config["backends"] = servers[0].config["backends"]
        servers[-1].start()
    killed, other = servers
    s3 = other.s3()
    s3.create_bucket(Bucket="bucket")
    s3.put_object(Bucket="bucket", Key="seed", Body=b"seed")
    # More rows than one step moves.
    other.database.change(
        "INSERT INTO objects (bucket_id, key, content_id, version_id, size_bytes, etag, headers, metadata, tags, "
        "last_modified) SELECT o.bucket_id, 'a/' || n, o.content_id, o.version_id || n, o.size_bytes, o.etag, "
        "o.headers, o.metadata, o.tags, o.last_modified FROM objects o, generate_series(1, 200000) n"
    )
    other.database.change("UPDATE contents SET ref_count = 200001 WHERE state = 'live'")
    request = threading.Thread(
        target=lambda: pytest.raises(Exception, admin_request, killed, "DELETE", "/objects?bucket=bucket&prefix=a/")
    )
    request.start()
    eventually(lambda: in_trash(other) > 0, message="the operation did not begin")
    killed.kill()
    request.join()
    assert in_trash(other) < 200_000, "it ended before the kill"
    other.database.change("UPDATE prefix_operations SET lease_until = 0")
    eventually(lambda: in_trash(other) == 200_000, 120, 0.2, "the operation is not continued")
    eventually(lambda: not admin_request(other, "GET", "/trash")[1]["items"])
    (done,) = eventually(lambda: events(other, "trash.deleted"))
    assert (done["objects"], done["run_id"] != "") == (200_000, True)
    assert keys_of(s3, "bucket") == ["seed"]
