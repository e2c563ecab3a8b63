"""After any request, accepted or refused, the store holds exactly the bytes that the catalog locates."""

import pytest

import seaweed
from catalogs import PostgresCatalog
from conftest import KINDS
from polling import eventually
from s3_checks import PART_BYTES_MIN, body_of, multipart, refused
from settled_state import QUICK, settle, stored


@pytest.fixture(params=KINDS)
def quick(request, own_server):
    """A server with short worker intervals for this test alone."""
    backend = seaweed.fresh_bucket() if request.param == "s3" else None
    catalog = PostgresCatalog() if request.param == "postgres" else None
    server = own_server(backend=backend, settings=QUICK, catalog=catalog).start()
    server.s3().create_bucket(Bucket="bucket")
    return server


def test_overwrites_and_deletes_free_their_bytes(quick):
    s3 = quick.s3()
    for number in range(3):
        s3.put_object(Bucket="bucket", Key="kept", Body=body_of(1000, number))
        s3.put_object(Bucket="bucket", Key=f"gone-{number}", Body=body_of(1000, number))
    s3.delete_objects(Bucket="bucket", Delete={"Objects": [{"Key": f"gone-{number}"} for number in range(3)]})
    settle(quick)
    assert len(stored(quick)) == 1


def test_deleted_bytes_are_removed_without_a_manual_run(quick):
    quick.s3().put_object(Bucket="bucket", Key="gone", Body=b"x")
    quick.s3().delete_object(Bucket="bucket", Key="gone")
    eventually(lambda: not stored(quick), 10, message="the bytes of a deleted object still exist")


def test_shared_bytes_stay_until_the_last_copy_is_deleted(quick):
    s3 = quick.s3()
    s3.put_object(Bucket="bucket", Key="source", Body=b"shared")
    s3.copy_object(Bucket="bucket", Key="copy", CopySource={"Bucket": "bucket", "Key": "source"})
    assert len(stored(quick)) == 1, "a copy moves no bytes"
    s3.delete_object(Bucket="bucket", Key="source")
    settle(quick)
    assert len(stored(quick)) == 1
    s3.delete_object(Bucket="bucket", Key="copy")
    settle(quick)
    assert stored(quick) == set()


def test_multipart_uploads_free_unlisted_and_aborted_parts(quick):
    s3 = quick.s3()
    multipart(s3, "bucket", "joined", [body_of(PART_BYTES_MIN), b"end"])
    aborted = {"Bucket": "bucket", "Key": "aborted"}
    aborted["UploadId"] = s3.create_multipart_upload(**aborted)["UploadId"]
    s3.upload_part(**aborted, PartNumber=1, Body=b"part")
    s3.abort_multipart_upload(**aborted)
    partial = {"Bucket": "bucket", "Key": "partial"}
    partial["UploadId"] = s3.create_multipart_upload(**partial)["UploadId"]
    s3.upload_part(**partial, PartNumber=1, Body=b"replaced")
    etag = s3.upload_part(**partial, PartNumber=1, Body=b"kept")["ETag"]
    s3.upload_part(**partial, PartNumber=2, Body=b"not listed")
    s3.complete_multipart_upload(**partial, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": etag}]})
    settle(quick)
    assert len(stored(quick)) == 3
    for key in ("joined", "partial"):
        s3.delete_object(Bucket="bucket", Key=key)
    settle(quick)
    assert stored(quick) == set()


def test_refused_and_broken_writes_leave_no_bytes(quick):
    s3, raw = quick.s3(), quick.raw()
    s3.put_object(Bucket="bucket", Key="there", Body=b"x")
    with refused("PreconditionFailed", 412):
        s3.put_object(Bucket="bucket", Key="there", Body=b"y", IfNoneMatch="*")
    wrong = {"Content-MD5": "1B2M2Y8AsgTpgAmY7PhCfg=="}
    assert raw.request("PUT", "/bucket/new", headers=wrong, body=body_of(100_000)).status == 400
    for size_bytes in (10_000, 200_000):
        target, headers, _ = raw.prepare("PUT", "/bucket/broken", headers={"Content-Length": "300000"})
        connection = raw.connect()
        raw.start(connection, "PUT", target, headers)
        connection.send(b"n" * size_bytes)
        connection.close()
    settle(quick)
    assert len(stored(quick)) == 1


def test_quota_accounting_equals_the_stored_bytes_when_idle(quick):
    s3 = quick.s3()
    for number in range(3):
        s3.put_object(Bucket="bucket", Key=f"key-{number}", Body=body_of(1000))
    s3.delete_object(Bucket="bucket", Key="key-0")
    settle(quick)

    def quota_accounting_is_exact():
        samples = quick.metrics()
        depths = [samples.get("s3o_cleanup_queue_depth"), samples.get("s3o_pending_intents_depth")]
        used = [value for name, value in samples.items() if name.startswith("s3o_quota_bytes_used{")]
        return depths == [0, 0] and used == [2000]

    eventually(quota_accounting_is_exact, 10, 0.1, "the metrics do not show two objects of 1000 bytes and empty queues")
