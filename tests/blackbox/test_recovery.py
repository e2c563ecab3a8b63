"""Interrupted writes: verified complete ones are promoted, all others are dropped, and no bytes are left."""

import base64
import hashlib
import json
import threading

import pytest
from botocore.exceptions import BotoCoreError, ClientError

import seaweed
from catalogs import PostgresCatalog
from polling import eventually
from refusing_proxy import RefusingProxy
from s3_checks import body_of, keys_of, read, refused
from settled_state import QUICK, settle, stored

BODY = body_of(3000, "cut off")
SHA256 = base64.b64encode(hashlib.sha256(BODY).digest()).decode()


@pytest.fixture
def proxy():
    refusing = RefusingProxy(seaweed.fresh_bucket()["endpoint"])
    yield refusing
    refusing.restore_answers()
    if not refusing.is_down:
        refusing.stop()


@pytest.fixture(params=["sqlite", "postgres"])
def database(request):
    return PostgresCatalog() if request.param == "postgres" else None


@pytest.fixture
def server(own_server, proxy, database):
    backend = {**seaweed.fresh_bucket(), "endpoint": proxy.endpoint}
    server = own_server(backend=backend, settings=QUICK, catalog=database).start()
    server.s3().create_bucket(Bucket="bucket")
    return server


def interrupt_put(server, proxy, key, **options):
    """Kills the server when the bytes of a PUT are on the store and the answer is still missing."""
    proxy.drop_put_answers(key)

    def put():
        # The client sees a broken connection and does not know the outcome.
        with pytest.raises((BotoCoreError, ClientError)):
            server.s3().put_object(Bucket="bucket", Key=key, Body=BODY, **options)

    client = threading.Thread(target=put)
    client.start()
    assert proxy.answer_dropped.wait(20), "the bytes did not arrive"
    server.kill()
    proxy.restore_answers()
    client.join()


def recovered(server):
    """Runs the reaper; returns the number of writes per outcome."""
    report = server.run_worker("pending_reaper")
    items = report["items"]

    def resolved():
        items.update(server.run_worker("pending_reaper")["items"])
        return not server.rows("SELECT 1 FROM pending_objects")

    eventually(resolved, 20, 0.05, "unresolved intents are left")
    return items


def events(server, name):
    lines = (server.folder / "s3o-data/audit.jsonl").read_text().splitlines()
    return [line for line in map(json.loads, lines) if line["event"] == name]


def test_complete_write_is_promoted_with_its_metadata(server, proxy):
    tags, metadata = "colour=blue", {"who": "me"}
    sent = {"ContentType": "text/plain", "Metadata": metadata, "Tagging": tags, "ChecksumSHA256": SHA256}
    interrupt_put(server, proxy, "whole", **sent)
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
    assert (event["bucket"], event["key"], event["size_bytes"], event["actor"]) == (
        "bucket",
        "whole",
        3000,
        "pending_reaper",
    )
    assert event["run_id"] and event["backend"] and event["physical_key"]


@pytest.mark.parametrize("change", ["overwrite", "delete"])
def test_later_change_supersedes_an_interrupted_write(server, proxy, change):
    interrupt_put(server, proxy, "later", ChecksumSHA256=SHA256)
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


def test_rollback_drops_a_complete_write(server, proxy):
    server.stop()
    server.config["write_path"] = json.loads(json.dumps(server.config["write_path"]))
    server.config["write_path"]["pending_intents"]["recovery"] = "rollback"
    server.start()
    interrupt_put(server, proxy, "rolled-back", ChecksumSHA256=SHA256)
    server.start()
    recovered(server)
    settle(server)
    assert keys_of(server.s3(), "bucket") == []
    assert [event["key"] for event in events(server, "pending_reaper.dropped")] == ["rolled-back"]


def test_bytes_that_do_not_match_their_digest_are_dropped(server, proxy):
    interrupt_put(server, proxy, "swapped", ChecksumSHA256=SHA256)
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


def test_unknown_outcome_waits_for_the_store(server, proxy):
    interrupt_put(server, proxy, "unclear", ChecksumSHA256=SHA256)
    proxy.stop()
    server.start()
    ambiguous = lambda: server.metrics()['s3o_pending_intents_resolved_total{status="ambiguous"}']
    eventually(lambda: server.run_worker("pending_reaper") and ambiguous(), 20, 0.05, "no intent is ambiguous")
    assert server.rows("SELECT state FROM pending_objects") == [("aborting",)]
    assert server.metrics()["s3o_pending_intents_depth"] == 1
    proxy.start()
    recovered(server)
    assert read(server.s3(), "bucket", "unclear") == BODY
    settle(server)


def test_direct_mode_leaks_only_writes_interrupted_by_a_crash(own_server, proxy, database):
    settings = {**QUICK, "write_path": {"pending_intents": {"enabled": False}}, "reconcile": {"grace": "1ms"}}
    backend = {**seaweed.fresh_bucket(), "endpoint": proxy.endpoint}
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
    interrupt_put(server, proxy, "leaked", ChecksumSHA256=SHA256)
    server.start()
    server.run_worker("pending_reaper")
    server.run_worker("cleanup")
    (leaked,) = stored(server) - before
    assert "leaked" in leaked and keys_of(server.s3(), "bucket") == ["kept"]
    assert server.rows("SELECT 1 FROM cleanup_queue") == []
    _, body = server.admin("POST", "/admin/api/verify?deep=true")
    found = {check["invariant"]: check["samples"] for check in json.loads(body)["checks"] if check["violations"]}
    assert leaked in " ".join(found["I3"]), "verify --deep finds the bytes"
    for _ in range(2):
        assert server.admin("POST", "/admin/api/reconcile")[0] == 200
    eventually(lambda: stored(server) == before, 30, 0.1, "two passes did not delete the bytes")
    settle(server)


@pytest.mark.alone
def test_reconcile_deletes_an_orphan_that_direct_mode_could_not_queue(own_server, own_postgres, proxy):
    """The database stops before the commit, and the process ends before the database is back."""
    backend = {**seaweed.fresh_bucket(), "endpoint": proxy.endpoint}
    settings = {**QUICK, "write_path": {"pending_intents": {"enabled": False}}, "reconcile": {"grace": "1ms"}}
    server = own_server(backend=backend, settings=settings, catalog=PostgresCatalog(own_postgres.url)).start()
    server.s3().create_bucket(Bucket="bucket")
    before = stored(server)
    proxy.drop_put_answers("orphan")
    client = threading.Thread(target=lambda: server.raw().request("PUT", "/bucket/orphan", body=BODY))
    client.start()
    assert proxy.answer_dropped.wait(20), "the bytes did not arrive"
    own_postgres.stop()
    proxy.restore_answers()
    [event] = eventually(lambda: events(server, "storage.OrphanEnqueueFailed"), 60, 0.1, "the orphan was not audited")
    client.join()
    server.kill()
    own_postgres.restart()
    server.start()
    assert stored(server) == before | {event["physical_key"]}
    paused = server.admin("POST", "/admin/api/workers/cleanup/pause")[0]
    for _ in range(2):
        assert (paused, server.admin("POST", "/admin/api/reconcile")[0]) == (200, 200)
    queued = server.rows("SELECT physical_key, reason, size_bytes FROM cleanup_queue")
    assert queued == [(event["physical_key"], "reconcile", len(BODY))]
    assert server.rows("SELECT CAST(sum(orphan_bytes) AS BIGINT) FROM backend_quotas") == [(len(BODY),)]
    server.admin("POST", "/admin/api/workers/cleanup/resume")
    eventually(lambda: stored(server) == before, 60, 0.2, "two passes did not delete the bytes")
    settle(server)


@pytest.mark.alone
def test_direct_mode_audits_an_orphan_that_it_cannot_queue(own_server, own_postgres, proxy):
    """The database stops between the write and its commit."""
    backend = {**seaweed.fresh_bucket(), "endpoint": proxy.endpoint}
    settings = {**QUICK, "write_path": {"pending_intents": {"enabled": False}}}
    catalog = PostgresCatalog(own_postgres.url)
    server = own_server(backend=backend, settings=settings, catalog=catalog).start()
    server.s3().create_bucket(Bucket="bucket")
    proxy.drop_put_answers("orphan")
    status = []
    put = lambda: status.append(server.raw().request("PUT", "/bucket/orphan", body=BODY).status)
    client = threading.Thread(target=put)
    client.start()
    assert proxy.answer_dropped.wait(20), "the bytes did not arrive"
    own_postgres.stop()
    proxy.restore_answers()
    [event] = eventually(lambda: events(server, "storage.OrphanEnqueueFailed"), 60, 0.1, "the orphan was not audited")
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
