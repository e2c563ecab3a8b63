"""A catalog with many contents and nothing to copy, remove or drain: a tick costs one statement and no backend call.

`S3O_IDLE_CONTENTS` is the number of contents (default 100,000).
"""

import json
import os
import re
from collections import Counter
from pathlib import Path

import psycopg
import pytest

from catalogs import PostgresCatalog
from polling import eventually
from settled_state import QUICK

CONTENTS = int(os.environ.get("S3O_IDLE_CONTENTS", "100000"))
WORKERS = ("replicator", "over_replication", "drain", "rebalancer", "usage_flush")
TICKS = 10
STATEMENT = re.compile(r"LOG: +(?:statement|execute [^:]+): (.*)")
# Statements with which the runner takes locks and records runs, for every worker, and the one with which an instance
# follows the states of the backends.
NOT_OF_TICK = re.compile(
    r"worker_runs|worker_state|pg_(try_)?advisory|^(BEGIN|COMMIT|SET|SELECT 1$)|AS disputed FROM backends ORDER BY name$"
)
SETTINGS = {
    **QUICK,
    # Only the runs of this test occur.
    "replication": {"factor": 2, "write_copies": 2, "interval": "1h", "over_replication_interval": "1h"},
    "rebalance": {"enabled": True, "interval": "1h", "threshold": 0.1},
    "identity": {"probe_interval": "1h"},
}
# Two copies of each content, as a PUT leaves them. Identifiers are UUIDs; `{number}` counts contents.
INSERTS = (
    "INSERT INTO contents (id, kind, md5, sha256, size_bytes, ref_count, factor) "
    "SELECT lpad(to_hex(n), 32, '0'), 'whole', md5(n::text), md5(n::text) || md5(n::text), 1000, 1, 2 FROM numbers",
    "INSERT INTO object_locations (content_id, backend_name, physical_key, size_bytes, stripe, verified_at) "
    "SELECT lpad(to_hex(n), 32, '0'), b.name, 'bucket/' || n || '~' || lpad(to_hex(n), 32, '0'), 1000, 0, "
    "(extract(epoch FROM now()) * 1000)::bigint FROM numbers, backends b WHERE b.name <> 'third'",
    "INSERT INTO objects (bucket_id, key, content_id, version_id, size_bytes, etag, headers, metadata, tags, "
    "last_modified) SELECT b.id, n::text, lpad(to_hex(n), 32, '0'), lpad(to_hex(n), 32, '0'), 1000, md5(n::text), "
    "'{}', '{}', '{}', 0 FROM numbers, buckets b",
)


@pytest.fixture
def server(own_server, own_postgres):
    """A server on three folders, on a PostgreSQL that logs every statement of it."""
    catalog = PostgresCatalog(own_postgres.url)
    server = own_server(settings=SETTINGS, catalog=catalog)
    server.config["backends"] = [
        {"name": name, "kind": "fs", "root": str(server.folder / name)} for name in ("first", "second", "third")
    ]
    server.start().s3().create_bucket(Bucket="bucket")
    with psycopg.connect(catalog.url, autocommit=True) as connection:
        for insert in INSERTS:
            connection.execute(f"WITH numbers AS (SELECT generate_series(1, {CONTENTS}) AS n) {insert}")
        connection.execute("ANALYZE")
        name = connection.execute("SELECT current_database()").fetchone()[0]
        connection.execute(f"ALTER DATABASE {name} SET log_statement = 'all'")
    # The sessions of the server follow the setting after they connect again.
    end_sessions(server)
    return server


def statements(own_postgres):
    return STATEMENT.findall((Path(own_postgres.folder) / "log").read_text())


def rows_read(server):
    """Rows of contents, copies and objects that the database has read for the server so far."""
    end_sessions(server)
    found = server.rows(
        "SELECT relname, seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables "
        "WHERE relname IN ('contents', 'object_locations', 'objects')"
    )
    return {name: int(count) for name, count in found}


def end_sessions(server):
    """Ends the sessions of the server, which reports their statistics; it connects again."""
    sessions = "pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    ended = {pid for pid, _ in server.rows(f"SELECT pid, pg_terminate_backend(pid) FROM {sessions}")}
    eventually(lambda: not ended & {pid for (pid,) in server.rows(f"SELECT pid FROM {sessions}")}, 10)


def backend_calls(server):
    return {name: count for name, count in server.metrics().items() if name.startswith("s3o_backend_requests_total")}


def run_until_nothing_is_left(server):
    """The first runs review all contents, because the factor was set. The rows have no bytes in the quota accounting, so
    that the rebalancer finds equal backends."""
    for worker in json.loads(server.admin("GET", "/admin/api/workers")[1])["items"]:
        assert server.admin("POST", f"/admin/api/workers/{worker['name']}/pause")[0] == 200

    def is_done():
        server.run_worker("replicator")
        return not server.rows("SELECT 1 FROM copy_review") and not server.rows("SELECT 1 FROM copy_work LIMIT 1")

    eventually(is_done, 60 + CONTENTS / 10_000, 0.1)


@pytest.mark.timeout(120 + CONTENTS / 5000)
def test_tick_without_work_costs_one_statement_and_no_backend_call(server, own_postgres):
    assert server.rows("SELECT count(*) FROM contents") == [(CONTENTS,)]
    run_until_nothing_is_left(server)
    calls, read = backend_calls(server), rows_read(server)
    # The first run after that takes new sessions, and the first flush writes the calls of the start.
    server.run_worker("drain")
    server.run_worker("usage_flush")
    for worker in WORKERS:
        before = len(statements(own_postgres))
        for _ in range(TICKS):
            assert server.run_worker(worker)["items"] == {}
        sent = [statement for statement in statements(own_postgres)[before:] if not NOT_OF_TICK.search(statement)]
        # Counters that have not changed need no statement.
        expected = (0, TICKS) if worker == "usage_flush" else (TICKS,)
        assert len(sent) in expected and len(set(sent)) <= 1, (worker, Counter(sent))
    assert rows_read(server) == read, "a tick reads no rows of contents"
    assert backend_calls(server) == calls
    assert sum(calls.values()) > 0, "calls are counted"
