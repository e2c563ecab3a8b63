"""Writes that were cut off: what is proven whole is finished, everything else goes, and nothing is left over."""

import base64
import hashlib
import json
import threading

import pytest
from botocore.exceptions import BotoCoreError, ClientError

import seaweed
from catalogs import PostgresCatalog
from facts import body_of, keys_of, read, refused
from gatekeeper import Gatekeeper
from polling import eventually
from rest import QUICK, settle, stored

BODY = body_of(3000, "cut off")
SHA256 = base64.b64encode(hashlib.sha256(BODY).digest()).decode()


@pytest.fixture
def gate():
    keeper = Gatekeeper(seaweed.fresh_bucket()["endpoint"])
    yield keeper
    keeper.speak()
    if not keeper.is_shut:
        keeper.shut()


@pytest.fixture(params=["sqlite", "postgres"])
def database(request):
    return PostgresCatalog() if request.param == "postgres" else None


@pytest.fixture
def server(own_server, gate, database):
    backend = {**seaweed.fresh_bucket(), "endpoint": gate.endpoint}
    server = own_server(backend=backend, settings=QUICK, catalog=database).start()
    server.s3().create_bucket(Bucket="bucket")
    return server


def cut_off(server, gate, key, **options):
    """A PUT whose bytes are on the store when the server is killed, before anybody heard of them."""
    gate.fall_silent(key)

    def put():
        # The client sees a broken connection: it cannot know.
        with pytest.raises((BotoCoreError, ClientError)):
            server.s3().put_object(Bucket="bucket", Key=key, Body=BODY, **options)

    client = threading.Thread(target=put)
    client.start()
    assert gate.withheld.wait(20), "the bytes did not arrive"
    server.kill()
    gate.speak()
    client.join()


def recovered(server):
    """Lets the reaper do its work; returns how many writes came to which end."""
    report = server.run_worker("pending_reaper")
    items = report["items"]

    def resolved():
        items.update(server.run_worker("pending_reaper")["items"])
        return not server.rows("SELECT 1 FROM pending_objects")

    eventually(resolved, 20, 0.05, "intents are left")
    return items


def events(server, name):
    lines = (server.folder / "s3o-data/audit.jsonl").read_text().splitlines()
    return [line for line in map(json.loads, lines) if line["event"] == name]


def test_a_whole_write_is_finished_with_all_it_was_sent_with(server, gate):
    tags, metadata = "colour=blue", {"who": "me"}
    sent = {"ContentType": "text/plain", "Metadata": metadata, "Tagging": tags, "ChecksumSHA256": SHA256}
    cut_off(server, gate, "whole", **sent)
    server.start()
    with refused("404"):
        server.s3().head_object(Bucket="bucket", Key="whole")
    recovered(server)
    assert read(server.s3(), "bucket", "whole") == BODY
    head = server.s3().head_object(Bucket="bucket", Key="whole", ChecksumMode="ENABLED")
    assert (head["ContentType"], head["Metadata"], head["ChecksumSHA256"]) == ("text/plain", metadata, SHA256)
    assert head["ETag"].strip('"') == hashlib.md5(BODY).hexdigest()
    tagging = server.s3().get_object_tagging(Bucket="bucket", Key="whole")["TagSet"]
    assert tagging == [{"Key": "colour", "Value": "blue"}]
    settle(server)
    assert server.metrics()['s3o_pending_intents_resolved_total{status="promoted"}'] == 1
    [event] = events(server, "pending_reaper.promoted")
    assert (event["bucket"], event["key"], event["size_bytes"], event["actor"]) == ("bucket", "whole", 3000, "pending_reaper")
    assert event["run_id"] and event["backend"] and event["physical_key"]


@pytest.mark.parametrize("change", ["overwrite", "delete"])
def test_a_later_change_wins(server, gate, change):
    cut_off(server, gate, "later", ChecksumSHA256=SHA256)
    server.start()
    if change == "overwrite":
        server.s3().put_object(Bucket="bucket", Key="later", Body=b"newer")
    else:
        server.s3().delete_object(Bucket="bucket", Key="later")
    recovered(server)
    settle(server)
    if change == "overwrite":
        assert read(server.s3(), "bucket", "later") == b"newer"
    else:
        assert keys_of(server.s3(), "bucket") == []
    assert len(events(server, "pending_reaper.superseded")) == 1


def test_rollback_gives_a_whole_write_up(server, gate):
    server.stop()
    server.config["write_path"] = json.loads(json.dumps(server.config["write_path"]))
    server.config["write_path"]["pending_intents"]["recovery"] = "rollback"
    server.start()
    cut_off(server, gate, "rolled-back", ChecksumSHA256=SHA256)
    server.start()
    recovered(server)
    settle(server)
    assert keys_of(server.s3(), "bucket") == []
    assert [event["key"] for event in events(server, "pending_reaper.dropped")] == ["rolled-back"]


def test_bytes_that_are_not_what_was_declared_are_dropped(server, gate):
    cut_off(server, gate, "swapped", ChecksumSHA256=SHA256)
    [(key,)] = server.rows("SELECT physical_key FROM pending_objects")
    backend = server.config["backends"][0]
    store = seaweed.connect(backend["endpoint"])
    store.put_object(Bucket=backend["bucket"], Key=key, Body=body_of(3000, "other"))
    server.start()
    recovered(server)
    settle(server)
    assert keys_of(server.s3(), "bucket") == []
    [event] = events(server, "pending_reaper.dropped")
    assert "declared" in event["why"]


def test_what_nobody_can_tell_waits_for_the_store(server, gate):
    cut_off(server, gate, "unclear", ChecksumSHA256=SHA256)
    gate.shut()
    server.start()
    ambiguous = lambda: server.metrics()['s3o_pending_intents_resolved_total{status="ambiguous"}']
    eventually(lambda: server.run_worker("pending_reaper") and ambiguous(), 20, 0.05, "nothing is ambiguous")
    assert server.rows("SELECT state FROM pending_objects") == [("aborting",)]
    assert server.metrics()["s3o_pending_intents_depth"] == 1
    gate.open()
    recovered(server)
    assert read(server.s3(), "bucket", "unclear") == BODY
    settle(server)


def test_direct_mode_leaks_what_a_crash_cuts_off_and_nothing_else(own_server, gate, database):
    settings = {**QUICK, "write_path": {"pending_intents": {"enabled": False}}}
    backend = {**seaweed.fresh_bucket(), "endpoint": gate.endpoint}
    server = own_server(backend=backend, settings=settings, catalog=database).start()
    s3 = server.s3()
    s3.create_bucket(Bucket="bucket")
    s3.put_object(Bucket="bucket", Key="kept", Body=BODY)
    s3.put_object(Bucket="bucket", Key="kept", Body=b"newer")
    s3.put_object(Bucket="bucket", Key="gone", Body=BODY)
    s3.delete_object(Bucket="bucket", Key="gone")
    with refused("BadDigest"):
        s3.put_object(Bucket="bucket", Key="wrong", Body=BODY, ContentMD5="1B2M2Y8AsgTpgAmY7PhCfg==")
    assert read(s3, "bucket", "kept") == b"newer"
    settle(server)
    assert server.metrics()["s3o_pending_intents_enqueued_total"] == 0
    assert server.rows("SELECT 1 FROM pending_objects") == []
    before = stored(server)
    cut_off(server, gate, "leaked", ChecksumSHA256=SHA256)
    server.start()
    server.run_worker("pending_reaper")
    server.run_worker("cleanup")
    (leaked,) = stored(server) - before
    assert "leaked" in leaked and keys_of(server.s3(), "bucket") == ["kept"]
    assert server.rows("SELECT 1 FROM cleanup_queue") == []
    _, body = server.admin("POST", "/admin/api/verify?deep=true")
    found = {check["invariant"]: check["samples"] for check in json.loads(body)["checks"] if check["violations"]}
    assert leaked in " ".join(found["I3"]), "only a comparison of the store with the catalog finds it"


@pytest.mark.alone
def test_direct_mode_tells_of_an_orphan_that_it_cannot_queue(own_server, own_postgres, gate):
    """The database goes away between the write and its commit."""
    backend = {**seaweed.fresh_bucket(), "endpoint": gate.endpoint}
    settings = {**QUICK, "write_path": {"pending_intents": {"enabled": False}}}
    catalog = PostgresCatalog(own_postgres.url)
    server = own_server(backend=backend, settings=settings, catalog=catalog).start()
    server.s3().create_bucket(Bucket="bucket")
    gate.fall_silent("orphan")
    status = []
    put = lambda: status.append(server.raw().request("PUT", "/bucket/orphan", body=BODY).status)
    client = threading.Thread(target=put)
    client.start()
    assert gate.withheld.wait(20), "the bytes did not arrive"
    own_postgres.stop()
    gate.speak()
    [event] = eventually(lambda: events(server, "storage.OrphanEnqueueFailed"), 60, 0.1, "nobody tells of the orphan")
    client.join()
    assert status == [503]
    assert event["size_bytes"] == len(BODY) and "orphan" in event["physical_key"]
    assert (event["bucket"], event["key"]) == ("bucket", "orphan")
    name = f's3o_cleanup_enqueue_failures_total{{backend="{backend["name"]}",reason="put_orphan",stage="enqueue"}}'
    own_postgres.restart()
    eventually(server.is_ready, 30)
    assert server.metrics()[name] == 1
    done = lambda: server.metrics()['s3o_cleanup_queue_processed_total{status="success"}'] == 1
    eventually(done, 90, 0.2, "the bytes were not queued when the database was back")
