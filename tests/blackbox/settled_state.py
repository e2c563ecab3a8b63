"""The settled state: after the workers have run, the stores hold exactly the located bytes and all queues are empty."""

import json
from pathlib import Path

import seaweed
from polling import eventually

SETTLE_SECONDS = 30
# Objects that s3o keeps for itself on every backend: identity, marks, and probe objects of an interrupted attach.
IDENTITY, MARKS, PROBE_OBJECTS = ".s3o/identity.json", ".s3o/marks/", ".s3o/probe/"
# Grace periods and intervals short enough for a test to wait for.
QUICK = {
    "write_path": {"pending_intents": {"min_age": "300ms", "reaper_tick": "100ms", "late_write_window": "300ms"}},
    "cleanup_queue": {
        "interval": "100ms",
        "claim_grace_period": "300ms",
        "backoff_min": "50ms",
        "backoff_max": "200ms",
        "reader_grace": "100ms",
    },
    "circuit_breaker": {"open_timeout": "1s"},
}
# Tables with pending work of workers.
PENDING_WORK = {
    "intents": "pending_objects",
    "cleanups": "cleanup_queue",
    "dead letters": "cleanup_dlq",
    "condemned joins": "contents WHERE kind = 'joined' AND state = 'condemned'",
    "parts of closed uploads": "multipart_parts p JOIN multipart_uploads u ON u.id = p.upload_id "
    "WHERE u.state <> 'open'",
}


def stored_on(backend):
    """All object bytes on a backend, without s3o's own objects."""
    found = files_below(backend["root"]) if backend["kind"] == "fs" else objects_in(backend)
    return {key for key in found if key != IDENTITY and not key.startswith((MARKS, PROBE_OBJECTS))}


def files_below(root):
    return {str(path.relative_to(root)) for path in Path(root).rglob("*") if not path.is_dir()}


def objects_in(backend):
    store = seaweed.connect(backend["endpoint"], backend["access_key_id"], backend["secret_access_key"])
    pages = store.get_paginator("list_objects_v2").paginate(Bucket=backend["bucket"])
    found = {entry["Key"] for page in pages for entry in page.get("Contents", [])}
    uploads = store.list_multipart_uploads(Bucket=backend["bucket"]).get("Uploads", [])
    return found | {f"unfinished upload of {upload['Key']}" for upload in uploads}


def stored(server):
    """All object bytes on the first backend."""
    return stored_on(server.config["backends"][0])


def assert_stored_is_located(server):
    """Each backend holds exactly what the catalog locates there."""
    rows = set(server.rows("SELECT backend_name, physical_key FROM object_locations"))
    for backend in server.config["backends"]:
        located = {key for name, key in rows if name == backend["name"]}
        found = stored_on(backend)
        stray, missing = found - located, located - found
        assert found == located, (
            f"{backend['name']}: stored without a location {stray}, located but not stored {missing}"
        )


def settle(server, within_seconds=SETTLE_SECONDS):
    """Waits until the workers have finished, then checks that stored and located bytes are the same."""

    def is_settled():
        for worker in ("pending_reaper", "cleanup"):
            server.run_worker(worker)
        return not any(server.rows(f"SELECT 1 FROM {table} LIMIT 1") for table in PENDING_WORK.values())

    try:
        eventually(is_settled, within_seconds, 0.1)
    except AssertionError:
        left = {name: server.rows(f"SELECT * FROM {table} LIMIT 3") for name, table in PENDING_WORK.items()}
        raise AssertionError(f"pending work after the workers ran: {left}") from None
    assert_stored_is_located(server)

    def complete_report():
        status, body = server.admin("POST", "/admin/api/verify?deep=true")
        assert status == 200, body
        report = json.loads(body)
        return None if report["unchecked"] else report

    # A circuit breaker may still skip a backend that failed a moment ago.
    report = eventually(complete_report, within_seconds, 0.2, "verify could not check every backend")
    assert report["holds"], [check for check in report["checks"] if check["violations"]]
