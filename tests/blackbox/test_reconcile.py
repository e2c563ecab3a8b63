"""`s3o reconcile`: what was planted on a backend is found as its own kind. Only bytes that no row names are deleted."""

import json
import os
import uuid

import pytest

import seaweed
from admin_client import admin_request, command
from catalogs import PostgresCatalog
from polling import eventually
from s3_checks import body_of, read
from settled_state import QUICK, settle, stored
from stores import Store
from test_verify import assert_holds

SECONDS = 60
SOON = {"grace": "1ms"}
TWO_COPIES = {"factor": 2, "write_copies": 2, "interval": "200ms", "over_replication_interval": "200ms"}


def stray_key():
    return f"bucket/stray~{uuid.uuid4().hex}"


def reconcile(server, *arguments, code=0):
    """Runs a pass and returns it."""
    done = command(server, "reconcile", "--json", *arguments)
    assert done.returncode == code, done.stderr + done.stdout
    return json.loads(done.stdout)["passes"]


def totals(one):
    return {kind: numbers["total"] for kind, numbers in one["found"].items()}


def findings(server, **fields):
    """The findings of passes, as {physical key: kind}."""
    items = admin_request(server, "GET", "/findings?limit=1000")[1]["items"]
    return {item["physical_key"]: item["kind"] for item in items if item["passes"] and fields.items() <= item.items()}


def located(server, key="key-0"):
    rows = server.rows(
        "SELECT l.backend_name, l.physical_key FROM object_locations l JOIN objects o ON o.content_id = l.content_id "
        f"WHERE o.key = '{key}' ORDER BY l.backend_name"
    )
    return [tuple(row) for row in rows]


def put_all(server, count=3):
    for number in range(count):
        server.s3().put_object(Bucket="bucket", Key=f"key-{number}", Body=body_of(20_000, number))


def assert_readable(server, count=3):
    for number in range(count):
        assert read(server.s3(), "bucket", f"key-{number}") == body_of(20_000, number)


@pytest.fixture(params=["fs", "s3", "postgres"])
def store_server(request, own_server):
    backend = seaweed.fresh_bucket() if request.param == "s3" else None
    catalog = PostgresCatalog() if request.param == "postgres" else None
    server = own_server(backend=backend, settings={**QUICK, "reconcile": SOON}, catalog=catalog).start()
    server.s3().create_bucket(Bucket="bucket")
    put_all(server)
    settle(server)
    return server


def test_unnamed_objects_are_deleted_after_the_second_pass_and_foreign_ones_never(store_server):
    server, store = store_server, Store(store_server)
    own = stored(server)
    stray, foreign = stray_key(), "bucket/holiday.jpg"
    store.write(stray, b"ours")
    store.write(foreign, b"theirs")
    store.write("root.txt", b"theirs, too")
    [dry] = reconcile(server, "--dry-run")
    assert dry["state"] == "dry_run" and totals(dry) == {"stray": 1, "foreign": 2}
    assert {found["physical_key"] for found in dry["findings"]} == {stray, foreign, "root.txt"}
    assert findings(server) == {}, "a dry run stores nothing"
    assert stored(server) == own | {stray, foreign, "root.txt"}
    [first] = reconcile(server)
    assert (first["state"], totals(first)) == ("done", {"stray": 1, "foreign": 2})
    assert [(folder["folder"], folder["keys"]) for folder in first["folders"]] == [("/", 1), ("bucket/", 1)]
    assert findings(server) == {stray: "stray", foreign: "foreign", "root.txt": "foreign"}
    assert stored(server) == own | {stray, foreign, "root.txt"}, "one pass deletes nothing"
    assert_holds(server)
    reconcile(server)
    eventually(lambda: stray not in stored(server), SECONDS, 0.1, "the stray object stayed")
    settle_with(server, own | {foreign, "root.txt"})
    assert findings(server) == {foreign: "foreign", "root.txt": "foreign"}
    assert_readable(server)


def settle_with(server, expected):
    """Waits until the queue is empty, then checks the bytes and the accounting."""
    eventually(lambda: not server.rows("SELECT 1 FROM cleanup_queue LIMIT 1"), SECONDS, 0.1)
    assert stored(server) == expected
    assert_holds(server)


@pytest.mark.parametrize("store_server", ["s3"], indirect=True)
def test_second_upload_of_a_living_key_is_aborted_and_the_key_stays(store_server):
    server, store = store_server, Store(store_server)
    [(_, key)] = located(server)
    own = stored(server)
    store.client.create_multipart_upload(Bucket=store.bucket, Key=key)
    [first] = reconcile(server)
    assert totals(first) == {"upload": 1} and findings(server) == {key: "upload"}
    reconcile(server)
    eventually(lambda: stored(server) == own, SECONDS, 0.1, "the upload stayed")
    settle_with(server, own)
    assert_readable(server)


@pytest.mark.parametrize("store_server", ["fs", "postgres"], indirect=True)
def test_draft_that_is_another_name_of_a_living_file_is_deleted_and_the_file_stays(store_server):
    server = store_server
    [(_, key)] = located(server)
    own = stored(server)
    drafts = server.root / ".s3o/tmp"
    drafts.mkdir(exist_ok=True)
    linked, lone = drafts / uuid.uuid4().hex, drafts / uuid.uuid4().hex
    os.link(server.root / key, linked)
    lone.write_bytes(b"half")
    [first] = reconcile(server)
    assert first["found"]["draft"] == {"total": 2, "bytes": 4, "dismissed": 0}
    assert linked.exists() and lone.exists()
    reconcile(server)
    eventually(lambda: not linked.exists() and not lone.exists(), SECONDS, 0.1, "the drafts stayed")
    settle_with(server, own)
    assert_readable(server)


def test_missing_and_truncated_copies_are_replaced(disks):
    server = disks(3, replication=TWO_COPIES, reconcile=SOON)
    put_all(server)
    settle(server)
    (missing_on, missing), _ = located(server, "key-0")
    (short_on, short), _ = located(server, "key-1")
    (server.folder / missing_on / missing).unlink()
    (server.folder / short_on / short).write_bytes(b"short")
    reconcile(server)
    assert findings(server) == {missing: "missing", short: "wrong_size"}
    reconcile(server)

    def is_repaired():
        rows = server.rows("SELECT state, count(*) FROM object_locations GROUP BY state")
        return [(state, int(count)) for state, count in rows] == [("present", 6)]

    eventually(is_repaired, SECONDS, 0.2, "the copies were not replaced")
    settle(server)
    reconcile(server)
    assert findings(server) == {}
    assert_readable(server)
    assert_holds(server)


def test_content_without_a_good_copy_is_lost_until_its_bytes_are_back(own_server):
    server = own_server(settings={**QUICK, "reconcile": SOON}).start()
    server.s3().create_bucket(Bucket="bucket")
    put_all(server)
    [(_, key)] = located(server)
    away = server.folder / "elsewhere"
    (server.root / key).rename(away)
    for _ in range(2):
        reconcile(server)
    assert server.rows("SELECT state FROM object_locations WHERE size_bytes = 0") == [("lost",)]
    assert server.raw().request("GET", "/bucket/key-0").status == 500
    assert_holds(server)
    assert findings(server) == {key: "missing"}
    (server.root / key).parent.mkdir(parents=True, exist_ok=True)
    away.rename(server.root / key)
    reconcile(server)
    assert findings(server) == {}
    assert_readable(server)
    assert_holds(server)


def test_findings_are_approved_and_dismissed(own_server):
    server = own_server(settings={**QUICK, "reconcile": {"grace": "1h"}}).start()
    server.s3().create_bucket(Bucket="bucket")
    kept, deleted = stray_key(), stray_key()
    for key in (kept, deleted):
        Store(server).write(key, b"ours")
    for _ in range(2):
        reconcile(server)
    assert {kept, deleted} <= stored(server), "the grace lasts"
    ids = {item["physical_key"]: item["id"] for item in admin_request(server, "GET", "/findings")[1]["items"]}
    for decision, key in (("dismiss", kept), ("approve", deleted)):
        done = command(server, "findings", decision, str(ids[key]))
        assert done.returncode == 0, done.stderr
    reconcile(server)
    eventually(lambda: deleted not in stored(server), SECONDS, 0.1, "the approved object stayed")
    assert kept in stored(server) and findings(server, dismissed=True) == {kept: "stray"}
    assert_holds(server)
    assert admin_request(server, "POST", "/findings/99999/approve")[0] == 404
    assert admin_request(server, "POST", "/findings/some/dismiss")[0] == 404
