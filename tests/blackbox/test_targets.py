"""Deletes on a store that other programs write to: versions, delete markers and uploads of others stay."""

import json

import pytest

import seaweed
from polling import eventually
from settled_state import QUICK

OURS = b"written by s3o"
THEIRS = b"written by another program"


@pytest.fixture
def versioned(own_server):
    """A server on a bucket that keeps versions, and a client of that bucket."""
    backend = seaweed.fresh_bucket()
    store = seaweed.connect(backend["endpoint"], backend["access_key_id"], backend["secret_access_key"])
    store.put_bucket_versioning(Bucket=backend["bucket"], VersioningConfiguration={"Status": "Enabled"})
    server = own_server(backend=backend, settings=QUICK).start()
    server.s3().create_bucket(Bucket="bucket")
    return server, store, backend["bucket"]


def located(server):
    ((key, version),) = server.rows("SELECT physical_key, backend_version FROM object_locations")
    return key, version


def versions_of(store, bucket, key):
    """IDs of the versions and of the delete markers of a key."""
    answer = store.list_object_versions(Bucket=bucket, Prefix=key)
    ids = lambda kind: {entry["VersionId"] for entry in answer.get(kind, []) if entry["Key"] == key}
    return ids("Versions"), ids("DeleteMarkers")


def emptied(server):
    return not server.rows("SELECT 1 FROM cleanup_queue")


def test_an_object_is_read_and_deleted_by_its_version(versioned):
    server, store, bucket = versioned
    server.s3().put_object(Bucket="bucket", Key="key", Body=OURS)
    key, version = located(server)
    assert version
    theirs = store.put_object(Bucket=bucket, Key=key, Body=THEIRS)["VersionId"]
    assert server.s3().get_object(Bucket="bucket", Key="key")["Body"].read() == OURS
    marker = store.delete_object(Bucket=bucket, Key=key)["VersionId"]
    assert server.s3().get_object(Bucket="bucket", Key="key")["Body"].read() == OURS
    server.s3().delete_object(Bucket="bucket", Key="key")
    eventually(lambda: emptied(server), 20, 0.1, "the delete still waits")
    assert versions_of(store, bucket, key) == ({theirs}, {marker})


def test_bytes_of_deleted_and_replaced_objects_are_freed(versioned):
    server, store, bucket = versioned
    for number in range(3):
        server.s3().put_object(Bucket="bucket", Key="kept", Body=OURS + bytes([number]))
    server.s3().put_object(Bucket="bucket", Key="gone", Body=OURS)
    server.s3().delete_object(Bucket="bucket", Key="gone")
    eventually(lambda: emptied(server), 20, 0.1, "the deletes still wait")
    key, version = located(server)
    answer = store.list_object_versions(Bucket=bucket, Prefix="bucket/")
    assert [(entry["Key"], entry["VersionId"]) for entry in answer["Versions"]] == [(key, version)]
    assert "DeleteMarkers" not in answer


def test_an_upload_of_a_living_key_is_aborted_and_the_object_stays(own_server):
    backend = seaweed.fresh_bucket()
    store = seaweed.connect(backend["endpoint"], backend["access_key_id"], backend["secret_access_key"])
    server = own_server(backend=backend, settings=QUICK).start()
    server.s3().create_bucket(Bucket="bucket")
    server.s3().put_object(Bucket="bucket", Key="key", Body=OURS)
    key, _ = located(server)
    upload = store.create_multipart_upload(Bucket=backend["bucket"], Key=key)["UploadId"]
    server.database.change(
        "INSERT INTO cleanup_queue (backend_name, physical_key, target, size_bytes, stripe, reason, due, created_at) "
        f"VALUES ('store', '{key}', 'upload:{upload}', 0, 0, 'put_orphan', 0, 0)"
    )
    eventually(lambda: emptied(server), 20, 0.1, "the upload was not aborted")
    assert "Uploads" not in store.list_multipart_uploads(Bucket=backend["bucket"])
    assert server.s3().get_object(Bucket="bucket", Key="key")["Body"].read() == OURS


def test_rewritten_bytes_are_kept_and_reported(own_server):
    server = own_server(settings=QUICK).start()
    theirs = server.root / "theirs.txt"
    theirs.write_bytes(THEIRS)
    found = theirs.stat()
    expected = f'{{"size_bytes":{found.st_size},"etag":null,"file":{{"modified_ns":{found.st_mtime_ns},'
    expected += f'"inode":{found.st_ino},"links":1}}}}'
    theirs.write_bytes(THEIRS[::-1])
    (backend,) = {row[0] for row in server.rows("SELECT backend_name FROM backend_quotas")}
    server.database.change(
        "INSERT INTO cleanup_queue "
        "(backend_name, physical_key, expected, size_bytes, stripe, reason, due, created_at) "
        f"VALUES ('{backend}', 'theirs.txt', '{expected}', 0, 0, 'sweep', 0, 0)"
    )
    eventually(lambda: emptied(server), 20, 0.1, "the cleanup still waits")
    assert theirs.read_bytes() == THEIRS[::-1]
    status, answer = server.admin("GET", "/admin/api/findings?kind=changed")
    assert status == 200
    (finding,) = json.loads(answer)["items"]
    assert (finding["physical_key"], finding["target"]) == ("theirs.txt", "")
