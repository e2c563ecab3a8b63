"""Objects that expire: how a client says so, that nobody sees them from that moment on, and that their bytes go."""

import contextlib
import json
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime

import pytest

import seaweed
from asking import command
from catalogs import PostgresCatalog
from clients import Aws
from facts import PART_BYTES_MIN, body_of, keys_of, multipart, read, refused, snapshot
from polling import eventually
from raw_client import assert_refused
from rest import QUICK, assert_stored_is_located, settle, stored
from test_presigned import fetch, presign
from test_upkeep import audited, run, status

AFTER, AT = "x-s3o-expires-after", "x-s3o-expires-at"
WRITES = ("PutObject", "CopyObject", "CreateMultipartUpload")
pytestmark = pytest.mark.usefixtures("s3o_only")


@contextlib.contextmanager
def saying(s3, **headers):
    """Every write of the block says when its object expires."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    events = [f"before-call.s3.{operation}" for operation in WRITES]

    def add(params, **_):
        params["headers"].update(given)

    for event in events:
        s3.meta.events.register(event, add)
    try:
        yield
    finally:
        for event in events:
            s3.meta.events.unregister(event, add)


def expiration(answer):
    """The moment that an answer shows."""
    shown = answer["Expiration"]
    assert shown.endswith('", rule-id="expires-at"'), shown
    return parsedate_to_datetime(shown.split('"')[1])


def seconds_ahead(answer):
    return (expiration(answer) - datetime.now(timezone.utc)).total_seconds()


def pass_away(server, bucket, *keys):
    """Lets the time of these objects pass, by the catalog's clock."""
    now = int(time.time() * 1000)
    for key in keys:
        server.database.change(
            f"UPDATE objects SET expires_at = {now} WHERE key = '{key}' "
            f"AND bucket_id = (SELECT id FROM buckets WHERE name = '{bucket}')"
        )


def put(s3, bucket, key, body=b"body", after="1h"):
    with saying(s3, x_s3o_expires_after=after):
        return s3.put_object(Bucket=bucket, Key=key, Body=body)


# What a client says, and what it is told


def test_every_write_takes_an_expiry_and_every_answer_shows_it(s3, bucket):
    with saying(s3, x_s3o_expires_after="3600"):
        answers = [
            s3.put_object(Bucket=bucket, Key="put", Body=b"body"),
            s3.copy_object(Bucket=bucket, Key="copy", CopySource={"Bucket": bucket, "Key": "put"}),
            multipart(s3, bucket, "joined", [body_of(PART_BYTES_MIN), b"tail"]),
        ]
    for key in ("put", "copy", "joined"):
        answers += [s3.head_object(Bucket=bucket, Key=key), s3.get_object(Bucket=bucket, Key=key, Range="bytes=0-0")]
    assert all(3500 < seconds_ahead(answer) <= 3600 for answer in answers), answers
    for text, seconds in (("90s", 90), ("24h", 86400), ("2d", 172800)):
        assert seconds - 60 < seconds_ahead(put(s3, bucket, "put", after=text)) <= seconds
    moment = datetime(2031, 5, 6, 7, 8, 9, tzinfo=timezone(timedelta(hours=2)))
    with saying(s3, x_s3o_expires_at=moment.isoformat()):
        assert expiration(s3.put_object(Bucket=bucket, Key="put", Body=b"body")) == moment
    assert expiration(s3.head_object(Bucket=bucket, Key="put")) == moment


def test_an_expiry_belongs_to_one_write(s3, bucket):
    put(s3, bucket, "mortal")
    source = {"Bucket": bucket, "Key": "mortal"}
    assert "Expiration" not in s3.copy_object(Bucket=bucket, Key="copy", CopySource=source)
    assert "Expiration" not in s3.head_object(Bucket=bucket, Key="copy")
    s3.copy_object(Bucket=bucket, Key="mortal", CopySource=source, MetadataDirective="REPLACE")
    assert "Expiration" not in s3.head_object(Bucket=bucket, Key="mortal"), "a copy onto it clears it"
    put(s3, bucket, "mortal")
    assert "Expiration" not in s3.put_object(Bucket=bucket, Key="mortal", Body=b"new")
    assert "Expiration" not in s3.get_object(Bucket=bucket, Key="mortal")


def test_a_time_to_live_counts_from_complete(s3, bucket):
    with saying(s3, x_s3o_expires_after="1h"):
        upload = s3.create_multipart_upload(Bucket=bucket, Key="joined")["UploadId"]
    part = s3.upload_part(Bucket=bucket, Key="joined", UploadId=upload, PartNumber=1, Body=b"only")
    time.sleep(2)
    before = datetime.now(timezone.utc)
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    complete = {"Bucket": bucket, "Key": "joined", "UploadId": upload, "MultipartUpload": parts}
    first = s3.complete_multipart_upload(**complete)
    assert expiration(first) >= before.replace(microsecond=0) + timedelta(hours=1)
    assert s3.complete_multipart_upload(**complete)["Expiration"] == first["Expiration"], "asked again"


PAST = "2021-01-01T00:00:00Z"


@pytest.mark.parametrize(
    "headers",
    [
        {"x_s3o_expires_after": "60", "x_s3o_expires_at": "2031-01-01T00:00:00Z"},
        *({"x_s3o_expires_after": text} for text in ("0", "0s", "-1", "-1s", "1.5", "soon", "5 parsecs", "9" * 30, "40000d")),
        *({"x_s3o_expires_at": text} for text in (PAST, "soon", "2031-01-01", "2031-13-01T00:00:00Z", "9999-01-01T00:00:00Z")),
    ],
    ids=lambda headers: "+".join(headers.values())[:40],
)
def test_what_cannot_be_meant_is_refused_and_changes_nothing(s3, bucket, headers):
    s3.put_object(Bucket=bucket, Key="there", Body=b"old")
    before = snapshot(s3, bucket)
    with saying(s3, **headers):
        for write in (
            lambda: s3.put_object(Bucket=bucket, Key="there", Body=b"new"),
            lambda: s3.copy_object(Bucket=bucket, Key="copy", CopySource={"Bucket": bucket, "Key": "there"}),
            lambda: s3.create_multipart_upload(Bucket=bucket, Key="joined"),
        ):
            with refused("InvalidArgument", 400):
                write()
    assert snapshot(s3, bucket) == before and read(s3, bucket, "there") == b"old"


def test_what_writes_no_object_cannot_be_told_when_it_expires(s3, raw, bucket):
    put(s3, bucket, "there")
    upload = s3.create_multipart_upload(Bucket=bucket, Key="joined")["UploadId"]
    part = {"uploadId": upload, "partNumber": "1"}
    for method, query in (("GET", None), ("DELETE", None), ("PUT", part), ("PUT", {"tagging": ""})):
        answer = raw.request(method, raw.path(bucket, "there"), query=query, headers={AFTER: "60"}, body=b"x")
        assert_refused(answer, 400, "InvalidArgument")
    assert read(s3, bucket, "there") == b"body"


def test_nobody_can_shorten_a_life_with_a_header_that_was_not_signed(s3, bucket):
    url = presign(s3, "put_object", bucket, "signed")
    assert_refused(fetch(url, "PUT", b"body", {AFTER: "1"}), 403, "AccessDenied")
    assert_refused(fetch(url, "PUT", b"body", {AT: "2031-01-01T00:00:00Z"}), 403, "AccessDenied")
    assert keys_of(s3, bucket) == []
    assert fetch(url, "PUT", b"body").status == 200


# What has expired is gone


def test_what_expired_is_gone_for_everybody_at_once(server, s3, bucket):
    for key in ("mortal", "other"):
        put(s3, bucket, key)
    etag = s3.head_object(Bucket=bucket, Key="mortal")["ETag"]
    upload = s3.create_multipart_upload(Bucket=bucket, Key="joined")["UploadId"]
    pass_away(server, bucket, "mortal")
    mortal, source = {"Bucket": bucket, "Key": "mortal"}, {"Bucket": bucket, "Key": "mortal"}
    for gone in (
        lambda: s3.get_object(**mortal),
        lambda: s3.get_object_tagging(**mortal),
        lambda: s3.put_object_tagging(**mortal, Tagging={"TagSet": [{"Key": "k", "Value": "v"}]}),
        lambda: s3.delete_object_tagging(**mortal),
        lambda: s3.get_object_attributes(**mortal, ObjectAttributes=["ObjectSize"]),
        lambda: s3.copy_object(Bucket=bucket, Key="copy", CopySource=source),
        lambda: s3.upload_part_copy(Bucket=bucket, Key="joined", UploadId=upload, PartNumber=1, CopySource=source),
        lambda: s3.put_object(**mortal, Body=b"new", IfMatch=etag),
    ):
        with refused("NoSuchKey", 404):
            gone()
    with refused("404", 404):
        s3.head_object(**mortal)
    assert keys_of(s3, bucket) == ["other"]
    assert [entry["Key"] for entry in s3.list_objects(Bucket=bucket)["Contents"]] == ["other"]
    deleted = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "mortal", "ETag": etag}]})
    assert [error["Code"] for error in deleted["Errors"]] == ["PreconditionFailed"], "there is nothing that fits"
    s3.put_object(**mortal, Body=b"new", IfNoneMatch="*")
    assert read(s3, bucket, "mortal") == b"new"


def test_an_object_ends_by_itself(s3, bucket):
    put(s3, bucket, "mortal", after="3s")
    assert read(s3, bucket, "mortal") == b"body"

    def gone():
        return keys_of(s3, bucket) == []

    eventually(gone, 30, message="it is still listed")
    with refused("NoSuchKey", 404):
        s3.get_object(Bucket=bucket, Key="mortal")
    s3.delete_object(Bucket=bucket, Key="mortal")


def test_what_expired_keeps_no_bucket(server, s3, new_bucket):
    bucket = new_bucket()
    for key in ("a", "b"):
        put(s3, bucket, key)
    pass_away(server, bucket, "a")
    with refused("BucketNotEmpty", 409):
        s3.delete_bucket(Bucket=bucket)
    pass_away(server, bucket, "b")
    s3.delete_bucket(Bucket=bucket)
    with refused("404", 404):
        s3.head_bucket(Bucket=bucket)


def test_what_goes_with_its_bucket_is_audited_too(own_server):
    server = own_server(settings=SETTINGS).start()
    s3, keys = server.s3(), [f"k{number}" for number in range(20)]
    s3.create_bucket(Bucket="doomed")
    for key in keys:
        put(s3, "doomed", key)
    pass_away(server, "doomed", *keys)
    answer = s3.delete_bucket(Bucket="doomed")
    eventually(lambda: audited(server, "s3.DeleteBucket"), 10, message="not audited")
    gone = audited(server, "expiry.deleted")
    assert sorted(line["key"] for line in gone) == sorted(keys)
    cause = answer["ResponseMetadata"]["RequestId"]
    assert {(line["bucket"], line["size_bytes"], line["request_id"]) for line in gone} == {("doomed", 4, cause)}
    assert {line["actor"] for line in gone} == {audited(server, "s3.DeleteBucket")[0]["actor"]}


# What becomes of the bytes

SETTINGS = {
    **QUICK,
    "expiry": {"interval": "1h", "stuck_after": "2s"},
    "watchdog": {"interval": "1h"},
    "buckets": [{"name": "brief", "default_ttl": "2h"}, {"name": "bucket"}],
}


@pytest.fixture(params=["fs", "s3", "postgres"])
def house(request, own_server):
    """A server whose expiry runs when a test asks for it."""
    backend = seaweed.fresh_bucket() if request.param == "s3" else None
    catalog = PostgresCatalog() if request.param == "postgres" else None
    return own_server(settings=SETTINGS, backend=backend, catalog=catalog).start()


def gone_from_the_store(server):
    eventually(lambda: not stored(server), 30, message="bytes of what expired are still stored")


def counts(server):
    return [row[0] for row in server.database.rows("SELECT ref_count FROM contents WHERE state = 'live'")]


def test_a_bucket_says_how_long_its_objects_live(house):
    s3 = house.s3()
    assert 7000 < seconds_ahead(s3.put_object(Bucket="brief", Key="a", Body=b"body")) <= 7200
    assert 7000 < seconds_ahead(multipart(s3, "brief", "joined", [b"only"])) <= 7200
    copy = {"Bucket": "brief", "Key": "copy", "CopySource": {"Bucket": "brief", "Key": "a"}}
    assert 7000 < seconds_ahead(s3.copy_object(**copy)) <= 7200
    assert seconds_ahead(put(s3, "brief", "own", after="1h")) <= 3600
    assert "Expiration" not in s3.copy_object(**{**copy, "Bucket": "bucket"})


def test_two_objects_one_content(house):
    s3 = house.s3()
    put(s3, "bucket", "first")
    with saying(s3, x_s3o_expires_after="1h"):
        s3.copy_object(Bucket="bucket", Key="second", CopySource={"Bucket": "bucket", "Key": "first"})
    assert counts(house) == [2] and len(stored(house)) == 1
    pass_away(house, "bucket", "first")
    assert run(house, "expiry") == {"deleted": 1}
    assert read(s3, "bucket", "second") == b"body" and counts(house) == [1]
    pass_away(house, "bucket", "second")
    assert run(house, "expiry") == {"deleted": 1} and counts(house) == []
    gone_from_the_store(house)
    lines = audited(house, "expiry.deleted")
    assert sorted((line["bucket"], line["key"], line["size_bytes"]) for line in lines) == [
        ("bucket", "first", 4),
        ("bucket", "second", 4),
    ]
    assert all(line["run_id"] for line in lines)
    assert house.metrics()['s3o_worker_items_total{worker="expiry",outcome="deleted"}'] == 2
    assert run(house, "expiry") == {}
    settle(house)
    assert_stored_is_located(house)


def claimed(server):
    """What some worker has begun to remove: keys, in order."""
    return [
        row[0]
        for row in server.database.rows(
            "SELECT key FROM objects WHERE deletion_status = 'DELETION_IN_PROGRESS' AND token IS NOT NULL ORDER BY key"
        )
    ]


def killed_after_claiming(server, *keys):
    """A worker claims what has expired, and the process is killed before anything of it is removed."""
    references = counts(server)
    with server.database.releases_held(), ThreadPoolExecutor() as pool:
        run = pool.submit(command, server, "workers", "run", "expiry", "--json")
        eventually(lambda: claimed(server) == sorted(keys), 30, 0.02, "nothing was claimed")
        assert not run.done(), "it was not held"
        server.kill()
        assert run.result().returncode != 0, "nobody is told that it was done"
    assert claimed(server) == sorted(keys) and counts(server) == references, "it was killed in between"
    server.start()


def test_what_a_killed_worker_claimed_goes_with_the_next_run(house):
    s3 = house.s3()
    for key in ("a", "b"):
        put(s3, "bucket", key)
    s3.put_object(Bucket="bucket", Key="stays", Body=b"stays")
    pass_away(house, "bucket", "a", "b")
    killed_after_claiming(house, "a", "b")

    def hidden():
        for key in ("a", "b"):
            with refused("NoSuchKey", 404):
                s3.get_object(Bucket="bucket", Key=key)
        return keys_of(s3, "bucket") == ["stays"]

    assert hidden() and run(house, "expiry") == {}, "they are somebody's"
    eventually(lambda: run(house, "watchdog") == {"stuck_reset": 2}, 30, 0.2, "never reset")
    assert hidden(), "a reset makes nothing readable"
    reset = audited(house, "expiry.stuck_reset")
    assert sorted((line["bucket"], line["key"]) for line in reset) == [("bucket", "a"), ("bucket", "b")]
    assert run(house, "expiry") == {"deleted": 2}
    assert hidden() and read(s3, "bucket", "stays") == b"stays"
    eventually(lambda: len(stored(house)) == 1, 30, message="bytes of what expired are still stored")
    settle(house)
    assert_stored_is_located(house)


def test_an_object_written_anew_between_selection_and_deletion_survives(house):
    s3 = house.s3()
    for key in ("copied", "gone", "put"):
        put(s3, "bucket", key)
    pass_away(house, "bucket", "copied", "gone", "put")
    killed_after_claiming(house, "copied", "gone", "put")
    s3.put_object(Bucket="bucket", Key="put", Body=b"new")
    s3.copy_object(Bucket="bucket", Key="copied", CopySource={"Bucket": "bucket", "Key": "put"})
    eventually(lambda: run(house, "watchdog") == {"stuck_reset": 1}, 30, 0.2, "never reset")
    assert run(house, "expiry") == {"deleted": 1}
    assert keys_of(s3, "bucket") == ["copied", "put"] and read(s3, "bucket", "copied") == b"new"
    settle(house)
    assert_stored_is_located(house)


def test_what_waits_is_shown(house):
    s3 = house.s3()
    put(s3, "bucket", "mortal")
    s3.put_object(Bucket="bucket", Key="stays", Body=b"stays")
    pass_away(house, "bucket", "mortal")
    age = 's3o_oldest_due_seconds{queue="expiry"}'
    eventually(lambda: house.metrics()[age] > 0, 10, message="it is not due")
    seen = status(house)
    assert seen["queues"]["oldest_due_seconds"]["expiry"] > 0
    assert {worker["name"]: worker["kind"] for worker in seen["workers"]}["expiry"] == "shared"
    counted = {bucket["name"]: (bucket["objects"], bucket["bytes"]) for bucket in seen["buckets"]}
    assert counted["bucket"] == (1, 5), "what has expired does not count"
    assert run(house, "expiry") == {"deleted": 1}
    assert house.metrics()[age] == 0
    eventually(lambda: len(stored(house)) == 1, 30, message="bytes of what expired are still stored")


class Api(Aws):
    """aws cli, one operation at a time."""

    def options(self):
        return ["--endpoint-url", self.server.endpoint, "--output", "json", "s3api"]


def test_it_happens_by_itself(own_server, tmp_path):
    server = own_server(settings={**SETTINGS, "expiry": {"interval": "100ms"}}).start()
    s3 = server.s3()
    for number in range(30):
        put(s3, "bucket", f"{number:02}", after="2s")
    put(s3, "brief", "lasting")
    shown = json.loads(Api(server, tmp_path).run("head-object", "--bucket", "brief", "--key", "lasting"))
    assert shown["Expiration"].endswith('rule-id="expires-at"')
    eventually(lambda: len(stored(server)) == 1, 30, message="bytes of what expired are still stored")
    assert len(audited(server, "expiry.deleted")) == 30


def test_instances_share_a_backlog(instances):
    one, other = instances(2, settings={"expiry": {"interval": "50ms", "batch_size": 7}})
    s3 = one.s3()
    for number in range(100):
        put(s3, "bucket", f"{number:03}", after="1s")
    eventually(lambda: not stored(one), 60, message="bytes of what expired are still stored")
    lines = [line["key"] for server in (one, other) for line in audited(server, "expiry.deleted")]
    assert sorted(lines) == [f"{number:03}" for number in range(100)], "each went once"
    settle(one)
    assert_stored_is_located(one)
