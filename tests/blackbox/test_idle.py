"""An idle instance sends few queries, so that a database that is paid by the hour can sleep."""

import json
import re
import time
from pathlib import Path

import psycopg
import pytest

from catalogs import PostgresCatalog

pytestmark = [pytest.mark.alone, pytest.mark.timeout(90)]

WINDOW_SECONDS = 20
STATEMENTS_MAX = 21
STATEMENT = re.compile(r"LOG: +(?:statement|execute [^:]+): (.*)")


def statements(database):
    """Number of statements so far, from the statistics of the database."""
    return STATEMENT.findall((Path(database.folder) / "log").read_text())


def test_idle_instance_sends_few_queries(own_server, own_postgres):
    catalog = PostgresCatalog(own_postgres.url)
    with psycopg.connect(catalog.url, autocommit=True) as connection:
        name = connection.execute("SELECT current_database()").fetchone()[0]
        connection.execute(f"ALTER DATABASE {name} SET log_statement = 'all'")
    server = own_server(name="idle", catalog=catalog).start()
    server.s3().create_bucket(Bucket="bucket")
    server.s3().put_object(Bucket="bucket", Key="key", Body=b"x")
    server.s3().delete_object(Bucket="bucket", Key="key")
    # Every worker has run once, so that no rare worker has its first run within the window.
    for worker in json.loads(server.admin("GET", "/admin/api/workers")[1])["items"]:
        server.run_worker(worker["name"])
    time.sleep(2)
    before = statements(own_postgres)
    assert any("INSERT INTO worker_runs" in statement for statement in before), "the database counts statements"
    time.sleep(WINDOW_SECONDS)
    asked = statements(own_postgres)[len(before) :]
    assert len(asked) <= STATEMENTS_MAX, asked
