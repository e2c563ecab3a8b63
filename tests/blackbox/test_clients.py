"""Real clients: put, get, list, sync, multipart, move and delete; restic keeps a repository."""

import json
import os
import time

import pytest

from clients import Aws, Rclone, Restic, S3cmd, S5cmd
from s3_checks import body_of, keys_of, read

CLIENTS = (Aws, Rclone, S3cmd, S5cmd)
LARGE_BYTES = 11 * 1024 * 1024


@pytest.fixture(params=CLIENTS, ids=lambda client: client.__name__.lower())
def client(request, server, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    return request.param(server, home)


def make_tree(folder):
    """Files of several sizes, one in a folder below, one with a name that needs escaping."""
    tree = {"a.txt": body_of(10, "a"), "empty": b"", "deep/er/b.bin": body_of(70_000, "b"), "s p+c é.txt": b"odd"}
    for name, body in tree.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
        os.utime(path, (time.time() - 60,) * 2)  # some clients compare dates, and stores round them to seconds
    return tree


def tree_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_client_puts_lists_and_gets(client, s3, bucket, tmp_path):
    (tmp_path / "up").write_bytes(body_of(4321))
    key = "dir/with space+plus é.bin"
    client.copy(tmp_path / "up", client.url(bucket, key))
    assert read(s3, bucket, key) == body_of(4321)
    assert client.list(bucket) == {key: 4321}
    client.copy(client.url(bucket, key), tmp_path / "down")
    assert (tmp_path / "down").read_bytes() == body_of(4321)


def test_a_client_sends_a_large_file_in_parts(client, s3, bucket, tmp_path):
    body = body_of(LARGE_BYTES)
    (tmp_path / "large").write_bytes(body)
    client.put_large(tmp_path / "large", client.url(bucket, "large"))
    assert "-" in s3.head_object(Bucket=bucket, Key="large")["ETag"]
    client.copy(client.url(bucket, "large"), tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == body
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=bucket)


def test_a_client_syncs_a_folder_both_ways(client, s3, bucket, tmp_path):
    local, back = tmp_path / "local", tmp_path / "back"
    back.mkdir()
    tree = make_tree(local)
    client.sync(f"{local}/", client.url(bucket, "tree/"))
    assert {key: read(s3, bucket, key) for key in keys_of(s3, bucket)} == {
        f"tree/{name}": body for name, body in tree.items()
    }
    dates = [entry["LastModified"] for entry in s3.list_objects_v2(Bucket=bucket)["Contents"]]
    client.sync(f"{local}/", client.url(bucket, "tree/"))
    again = [entry["LastModified"] for entry in s3.list_objects_v2(Bucket=bucket)["Contents"]]
    assert again == dates, "a second sync sends nothing"
    (local / "a.txt").unlink()
    client.sync(f"{local}/", client.url(bucket, "tree/"))
    assert "tree/a.txt" not in keys_of(s3, bucket)
    client.sync(client.url(bucket, "tree/"), f"{back}/")
    assert tree_of(back) == tree_of(local)


def test_a_client_moves_and_deletes(client, s3, bucket):
    for name in ("one", "two", "dir/three", "dir/four"):
        s3.put_object(Bucket=bucket, Key=name, Body=name.encode())
    client.move(client.url(bucket, "one"), client.url(bucket, "moved/one"))
    assert keys_of(s3, bucket) == ["dir/four", "dir/three", "moved/one", "two"]
    assert read(s3, bucket, "moved/one") == b"one"
    client.delete(client.url(bucket, "two"))
    client.delete_all(client.url(bucket, "dir/"))
    assert keys_of(s3, bucket) == ["moved/one"]


def test_restic_stores_restores_and_forgets_snapshots(server, s3, bucket, tmp_path):
    home, local = tmp_path / "home", tmp_path / "local"
    home.mkdir()
    tree = make_tree(local)
    restic = Restic(server, home).use(bucket)
    restic.run("init")
    restic.run("backup", local)
    (local / "later").write_bytes(body_of(200_000, "later"))
    restic.run("backup", local)
    snapshots = json.loads(restic.run("snapshots", "--json"))
    assert len(snapshots) == 2
    restic.run("restore", snapshots[0]["id"], "--target", tmp_path / "restored")
    assert tree_of(tmp_path / "restored" / local.relative_to("/")) == tree
    restic.run("forget", "--keep-last", "1", "--prune")
    assert len(json.loads(restic.run("snapshots", "--json"))) == 1
    restic.run("check", "--read-data")
    restic.run("restore", "latest", "--target", tmp_path / "latest")
    assert tree_of(tmp_path / "latest" / local.relative_to("/")) == tree_of(local)
    assert keys_of(s3, bucket, Prefix="repository/locks/") == []
