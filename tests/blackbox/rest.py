"""The state at rest: once the workers have run, a store holds exactly what the catalog says, and nobody owes work."""

import json
from pathlib import Path

import seaweed
from polling import eventually

SETTLE_SECONDS = 30
# s3o's own on every backend: its identity, the objects of its marks, and what an attach that was cut off tried out,
# which a later one sweeps.
IDENTITY, MARKS, CANARIES = ".s3o/identity.json", ".s3o/marks/", ".s3o/probe/"
# Graces and intervals short enough that a test can wait for all of them.
QUICK = {
    "write_path": {
        "pending_intents": {"min_age": "300ms", "reaper_tick": "100ms", "late_write_window": "300ms"}
    },
    "cleanup_queue": {
        "interval": "100ms",
        "claim_grace_period": "300ms",
        "backoff_min": "50ms",
        "backoff_max": "200ms",
        "reader_grace": "100ms",
    },
}
# Where the catalog keeps work that some worker still has to do.
OWED = {
    "intents": "pending_objects",
    "cleanups": "cleanup_queue",
    "dead letters": "cleanup_dlq",
    "condemned joins": "contents WHERE kind = 'joined' AND state = 'condemned'",
    "parts of closed uploads": "multipart_parts p JOIN multipart_uploads u ON u.id = p.upload_id WHERE u.state <> 'open'",
}


def stored_on(backend):
    """Everything of ours on a backend, but for what s3o keeps there for itself."""
    found = files_below(backend["root"]) if backend["kind"] == "fs" else objects_in(backend)
    return {key for key in found if key != IDENTITY and not key.startswith((MARKS, CANARIES))}


def files_below(root):
    return {str(path.relative_to(root)) for path in Path(root).rglob("*") if not path.is_dir()}


def objects_in(backend):
    store = seaweed.connect(backend["endpoint"], backend["access_key_id"], backend["secret_access_key"])
    pages = store.get_paginator("list_objects_v2").paginate(Bucket=backend["bucket"])
    found = {entry["Key"] for page in pages for entry in page.get("Contents", [])}
    uploads = store.list_multipart_uploads(Bucket=backend["bucket"]).get("Uploads", [])
    return found | {f"unfinished upload of {upload['Key']}" for upload in uploads}


def stored(server):
    """Everything of ours on the first backend."""
    return stored_on(server.config["backends"][0])


def assert_stored_is_located(server):
    """Each backend holds exactly what the catalog locates there."""
    rows = set(server.rows("SELECT backend_name, physical_key FROM object_locations"))
    for backend in server.config["backends"]:
        located = {key for name, key in rows if name == backend["name"]}
        found = stored_on(backend)
        stray, missing = found - located, located - found
        assert found == located, f"{backend['name']}: stored without a location {stray}, located but not stored {missing}"


def settle(server, within_seconds=SETTLE_SECONDS):
    """Lets the workers finish, and shows that what is stored and what is located are then the same."""

    def at_rest():
        for worker in ("pending_reaper", "cleanup"):
            server.run_worker(worker)
        return not any(server.rows(f"SELECT 1 FROM {owed} LIMIT 1") for owed in OWED.values())

    try:
        eventually(at_rest, within_seconds, 0.1)
    except AssertionError:
        left = {name: server.rows(f"SELECT * FROM {owed} LIMIT 3") for name, owed in OWED.items()}
        raise AssertionError(f"left after the workers ran: {left}") from None
    assert_stored_is_located(server)
    status, body = server.admin("POST", "/admin/api/verify?deep=true")
    report = json.loads(body)
    wrong = [check for check in report["checks"] if check["violations"]] + report["unchecked"]
    assert status == 200 and report["holds"], wrong
