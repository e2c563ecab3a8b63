"""Maintenance workers: stale uploads, drifted quota accounting and counts, rows of dead workers, ages and counts."""

import json
import urllib.request

import pytest

from catalogs import PostgresCatalog
from polling import eventually
from s3_checks import refused
from server_process import ADMIN_TOKEN
from test_admin import command

# Times of uploads are stored in whole seconds, so the test waits one more second.
SETTINGS = {"cleanup_queue": {"interval": "1h", "claim_grace_period": "1m", "multipart_stale_timeout": "2s"}}

# The tests run these workers manually.
WORKERS = ("stale_multipart", "quota_audit", "watchdog")


@pytest.fixture(params=["sqlite", "postgres"])
def server(request, own_server):
    catalog = PostgresCatalog() if request.param == "postgres" else None
    server = own_server(settings=SETTINGS, catalog=catalog).start()
    for worker in WORKERS:
        server.admin("POST", f"/admin/api/workers/{worker}/pause")
    server.s3().create_bucket(Bucket="bucket")
    return server


def run(server, worker):
    """Runs a worker through the command line and returns its report."""
    done = command(server, "workers", "run", worker, "--json")
    assert done.returncode == 0, done
    report = json.loads(done.stdout)
    assert (report["worker"], report["outcome"]) == (worker, "ok"), report
    return report["items"]


def audited(server, event):
    """Every audit line of this event."""
    url = f"http://127.0.0.1:{server.admin_port}/admin/api/audit?event={event}"
    request = urllib.request.Request(url, headers={"X-Admin-Token": ADMIN_TOKEN})
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.loads(response.read())["items"]


def status(server):
    return json.loads(server.admin("GET", "/admin/api/status")[1])


def upload(server, key):
    """An open upload with one part."""
    target = {"Bucket": "bucket", "Key": key}
    target["UploadId"] = server.s3().create_multipart_upload(**target)["UploadId"]
    server.s3().upload_part(**target, PartNumber=1, Body=b"part of " + key.encode())
    return target


def test_the_workers_are_listed(server):
    names = {worker["name"]: worker["kind"] for worker in status(server)["workers"]}
    assert {name: names.get(name) for name in WORKERS} == dict.fromkeys(WORKERS, "locked")


def test_upload_without_activity_is_aborted(server):
    left, active = upload(server, "left"), upload(server, "active")
    assert run(server, "stale_multipart") == {}, "the upload is still active"
    age = 's3o_oldest_due_seconds{queue="stale_multipart"}'
    assert server.metrics()[age] == 0
    eventually(lambda: server.metrics()[age] > 0, 30, message="the upload is never due")
    assert status(server)["queues"]["oldest_due_seconds"]["stale_multipart"] > 0
    server.s3().upload_part(**active, PartNumber=2, Body=b"a sign of life")
    assert run(server, "stale_multipart") == {"aborted": 1}
    found = server.s3().list_multipart_uploads(Bucket="bucket")["Uploads"]
    assert [entry["UploadId"] for entry in found] == [active["UploadId"]]
    with refused("NoSuchUpload", 404):
        server.s3().upload_part(**left, PartNumber=2, Body=b"late")
    (line,) = audited(server, "multipart.aborted")
    assert (line["bucket"], line["key"], line["upload_id"]) == ("bucket", "left", left["UploadId"])
    assert line["size_bytes"] == len("part of left") and line["run_id"]
    eventually(lambda: len(server.files()) == 2, 10, message="the parts of the aborted upload still exist")
    metrics = server.metrics()
    assert metrics['s3o_worker_items_total{worker="stale_multipart",outcome="aborted"}'] == 1
    assert metrics[age] == 0 and metrics["s3o_multipart_uploads_open"] == 1


def test_drifted_quota_accounting_is_exported_and_repaired(server):
    server.s3().put_object(Bucket="bucket", Key="object", Body=b"x" * 1000)
    assert run(server, "quota_audit") == {}
    drift, used = 's3o_quota_drift_bytes{backend="disk"}', 's3o_quota_bytes_used{backend="disk"}'
    assert server.metrics()[drift] == 0
    server.database.change(
        "UPDATE backend_quotas SET used_bytes = used_bytes + 500, orphan_bytes = orphan_bytes + 30 WHERE stripe = 0"
    )
    assert server.metrics()[used] == 1500
    assert run(server, "quota_audit") == {"repaired": 2}
    metrics = server.metrics()
    assert (metrics[drift], metrics[used], metrics['s3o_quota_orphan_bytes{backend="disk"}']) == (530, 1000, 0)
    lines = {line["counter"]: line for line in audited(server, "quota_audit.repaired")}
    assert {counter: line["delta"] for counter, line in lines.items()} == {"used_bytes": -500, "orphan_bytes": -30}
    assert all(line["backend"] == "disk" and line["from"] + line["delta"] == line["to"] for line in lines.values())
    assert run(server, "quota_audit") == {}
    assert server.metrics()[drift] == 0


def test_drifted_reference_counts_are_repaired_without_leaks(server):
    server.s3().put_object(Bucket="bucket", Key="low", Body=b"low")
    server.s3().put_object(Bucket="bucket", Key="high", Body=b"high")
    server.database.change("UPDATE contents SET ref_count = 0 WHERE size_bytes = 3")
    server.database.change("UPDATE contents SET ref_count = 2 WHERE size_bytes = 4")
    server.s3().delete_object(Bucket="bucket", Key="high")
    assert run(server, "quota_audit") == {"recounted": 2}
    changes = sorted((line["from"], line["to"]) for line in audited(server, "quota_audit.repaired"))
    assert changes == [(0, 1), (1, 0)]
    assert len(server.files()) == 2, "unreferenced content is found twice before it is deleted"
    assert run(server, "quota_audit") == {"condemned": 1}
    eventually(lambda: len(server.files()) == 1, 10, message="unreferenced bytes still exist")
    assert server.s3().get_object(Bucket="bucket", Key="low")["Body"].read() == b"low"
    server.s3().delete_object(Bucket="bucket", Key="low")
    eventually(lambda: not server.files(), 10, message="the bytes of a deleted object still exist")


def test_claims_and_deletions_of_dead_workers_are_released(server):
    server.admin("POST", "/admin/api/workers/cleanup/pause")
    server.s3().put_object(Bucket="bucket", Key="gone", Body=b"gone")
    server.s3().put_object(Bucket="bucket", Key="stuck", Body=b"stuck")
    server.s3().delete_object(Bucket="bucket", Key="gone")
    server.database.change("UPDATE cleanup_queue SET token = 'dead', claimed_by = 'dead', claimed_at = 1")
    server.database.change(
        "UPDATE objects SET deletion_status = 'DELETION_IN_PROGRESS', deletion_initiated_at = 1, token = 'dead'"
    )
    eventually(
        lambda: server.metrics()['s3o_oldest_due_seconds{queue="cleanup"}'] > 0, 10, message="the row is not due"
    )
    assert run(server, "watchdog") == {"recovered": 1, "stuck_reset": 1}
    assert server.metrics()['s3o_cleanup_queue_stale_claims_recovered_total{backend="disk"}'] == 1
    (freed,) = audited(server, "cleanup_queue.claim_recovered")
    assert (freed["backend"], freed["size_bytes"], freed["claimed_by"]) == ("disk", 4, "dead")
    (reset,) = audited(server, "expiry.stuck_reset")
    assert (reset["bucket"], reset["key"]) == ("bucket", "stuck")
    assert run(server, "watchdog") == {}
    assert run(server, "cleanup") == {"success": 1}
    assert server.s3().get_object(Bucket="bucket", Key="stuck")["Body"].read() == b"stuck"


def test_objects_are_counted(server):
    for number in range(3):
        server.s3().put_object(Bucket="bucket", Key=f"{number}", Body=b"12345")
    server.s3().copy_object(Bucket="bucket", Key="copy", CopySource={"Bucket": "bucket", "Key": "0"})

    def counted():
        seen = status(server)
        return (seen["backends"][0]["objects"], seen["buckets"][0]["objects"], seen["buckets"][0]["bytes"])

    eventually(lambda: counted() == (3, 4, 20), 10, message="the status does not show 3 locations of 4 objects")
    sample = 's3o_objects{bucket="bucket"}'
    eventually(lambda: server.metrics().get(sample) == 4, 10, message="the metrics do not show 4 objects")
    for key in ("0", "1", "2", "copy"):
        server.s3().delete_object(Bucket="bucket", Key=key)
    server.s3().delete_bucket(Bucket="bucket")
    eventually(lambda: sample not in server.metrics(), 10, message="a deleted bucket is still shown")
