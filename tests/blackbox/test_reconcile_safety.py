"""Passes of `s3o reconcile` that must delete nothing: too many findings, another disk, a restored catalog, clients."""

import json
import threading

import pytest

from admin_client import admin_request, command
from polling import eventually
from s3_checks import body_of, read
from settled_state import QUICK, settle, stored
from stores import Store
from test_reconcile import (
    SECONDS,
    SOON,
    assert_readable,
    findings,
    located,
    put_all,
    reconcile,
    settle_with,
    stray_key,
)

TURNS = 40


def test_absurd_pass_is_held_until_it_is_approved(own_server):
    server = own_server(settings={**QUICK, "reconcile": SOON}).start()
    server.s3().create_bucket(Bucket="bucket")
    put_all(server)
    own = stored(server)
    store = Store(server)
    for _ in range(101):
        store.write(stray_key(), b"ours")
    for _ in range(2):
        [held] = reconcile(server)
        assert "101 of 104 keys" in held["held"]
    assert len(stored(server)) == len(own) + 101
    [id] = [item["id"] for item in admin_request(server, "GET", "/findings?kind=held")[1]["items"]]
    assert admin_request(server, "POST", f"/findings/{id}/approve")[0] == 200
    server.run_worker("reconciler")
    eventually(lambda: stored(server) == own, SECONDS, 0.2, "the approved objects stayed")
    settle_with(server, own)
    assert_readable(server)


def test_unmounted_folder_deletes_nothing(own_server):
    """A subfolder that is a mount of its own is gone: its copies are missing, and nothing is deleted."""
    server = own_server(settings={**QUICK, "reconcile": SOON}).start()
    server.s3().create_bucket(Bucket="bucket")
    put_all(server, 105)
    own = stored(server)
    (server.root / "bucket").rename(server.folder / "unmounted")
    for _ in range(2):
        [held] = reconcile(server)
        assert "105 of 105 keys are missing" in held["held"]
    assert server.rows("SELECT DISTINCT state FROM object_locations") == [("present",)]
    (server.folder / "unmounted").rename(server.root / "bucket")
    reconcile(server)
    assert stored(server) == own and findings(server) == {}
    assert_readable(server, 105)


def test_swapped_disk_makes_the_pass_invalid(own_server):
    server = own_server(settings={**QUICK, "reconcile": SOON}).start()
    server.s3().create_bucket(Bucket="bucket")
    put_all(server)
    server.root.rename(server.folder / "first")
    server.root.mkdir()
    (server.root / "other.txt").write_bytes(b"another disk")
    done = command(server, "reconcile", "--json")
    assert done.returncode == 1
    [one] = json.loads(done.stdout)["passes"]
    assert one["state"] == "invalid" and one["reason"]
    assert findings(server) == {} and (server.root / "other.txt").read_bytes() == b"another disk"


def test_objects_after_a_restored_catalog_wait_for_approval(own_server):
    """Bytes that were acknowledged after the backup have no row; they are not deleted without an operator."""
    server = own_server(settings={**QUICK, "reconcile": SOON}).start()
    server.s3().create_bucket(Bucket="bucket")
    put_all(server)
    backup = server.folder / "backup.db"
    assert command(server, "catalog", "backup", str(backup)).returncode == 0
    server.s3().put_object(Bucket="bucket", Key="after", Body=b"acknowledged")
    [(_, key)] = located(server, "after")
    server.stop()
    done = command(server, "catalog", "restore", str(backup), "--config", str(server.config_path))
    assert done.returncode == 0, done.stderr
    server.start()
    status, shown = admin_request(server, "POST", "/backends/disk/accept")
    assert status == 409
    accept = f"/backends/disk/accept?found={shown['hash']}"
    eventually(lambda: admin_request(server, "POST", accept)[0] == 200, SECONDS, 0.2, "the backend was not accepted")
    for _ in range(3):
        reconcile(server)
    assert findings(server) == {key: "stray"}
    assert (server.root / key).read_bytes() == b"acknowledged"


def passes_without_grace(intents):
    """Passes begin all the time, and two that are a second apart confirm a finding."""
    announced = {**QUICK["write_path"]["pending_intents"], "enabled": intents, "min_age": "5s"}
    passes = {"enabled": True, "interval": "50ms", "grace": "1s"}
    return {**QUICK, "reconcile": passes, "write_path": {"pending_intents": announced}}


def change_objects(s3, number):
    """Writes, overwrites, copies, completes and deletes objects; every answer must be right."""
    for turn in range(TURNS):
        key, body = f"{number}/{turn % 3}", body_of(2_000, f"{number} {turn}")
        if turn % 5 == 4:
            upload = s3.create_multipart_upload(Bucket="bucket", Key=key)["UploadId"]
            part = s3.upload_part(Bucket="bucket", Key=key, UploadId=upload, PartNumber=1, Body=body)
            parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
            s3.complete_multipart_upload(Bucket="bucket", Key=key, UploadId=upload, MultipartUpload=parts)
        else:
            s3.put_object(Bucket="bucket", Key=key, Body=body)
        s3.copy_object(Bucket="bucket", Key=f"{key} copy", CopySource={"Bucket": "bucket", "Key": key})
        if turn % 7 == 6:
            s3.delete_object(Bucket="bucket", Key=key)
        else:
            assert read(s3, "bucket", key) == body
        assert read(s3, "bucket", f"{key} copy") == body


def assert_passes_disturb_no_client(servers):
    """16 clients change objects while passes run. No request fails, and no pass calls their bytes stray or missing."""
    failures = []

    def change(number):
        try:
            change_objects(servers[number % len(servers)].s3(), number)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=change, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        for server in servers:
            server.run_worker("reconciler")
    assert failures == []
    # Only the newest passes are kept.
    [(ended,)] = servers[0].rows("SELECT max(id) FROM reconcile_passes WHERE state IN ('acting', 'done')")
    assert int(ended) >= 5, "no pass ran beside the clients"
    wrong = "kind IN ('missing', 'wrong_size', 'still_named')"
    assert servers[0].rows(f"SELECT kind, physical_key FROM findings WHERE {wrong}") == []
    assert servers[0].rows("SELECT state FROM object_locations WHERE state <> 'present'") == []
    settle(servers[0])


@pytest.mark.parametrize("intents", [True, False])
def test_clients_change_objects_during_passes(own_server, intents):
    server = own_server(settings=passes_without_grace(intents)).start()
    server.s3().create_bucket(Bucket="bucket")
    assert_passes_disturb_no_client([server])


@pytest.mark.parametrize("intents", [True, False])
def test_clients_of_two_instances_change_objects_during_passes(instances, intents):
    assert_passes_disturb_no_client(instances(2, passes_without_grace(intents)))
