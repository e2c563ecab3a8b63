"""Catalogs of servers under test: a SQLite file, or a fresh database of a real PostgreSQL."""

import contextlib
import os
import sqlite3
import subprocess
import uuid
from pathlib import Path

import psycopg
import pytest


class SqliteCatalog:
    """A catalog in a SQLite file, used by one server."""

    def __init__(self, path):
        self.path, self.url = path, f"sqlite:{path}"

    def rows(self, sql):
        connection = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, timeout=10)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()

    def change(self, sql):
        """Changes rows without the server, to inject a fault."""
        connection = sqlite3.connect(self.path, timeout=10)
        try:
            with connection:
                connection.execute(sql)
        finally:
            connection.close()

    @contextlib.contextmanager
    def blocked_releases(self):
        """Blocks transactions that release content, for good; the process must be dead when the context ends."""
        endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) AS x FROM n"
        self.change(f"CREATE VIEW endless AS {endless}")
        self.change("CREATE TRIGGER held BEFORE UPDATE OF ref_count ON contents BEGIN SELECT x FROM endless; END")
        yield
        self.change("DROP TRIGGER held")
        self.change("DROP VIEW endless")


class OwnPostgres:
    """A PostgreSQL server that one test may stop and start."""

    def __init__(self, folder):
        self.folder = folder
        self.url = self._run("start")

    def _run(self, command, *arguments):
        script = Path(__file__).parents[2] / "scripts" / "postgres.sh"
        done = subprocess.run([script, command, self.folder, *arguments], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def stop(self, mode="immediate"):
        """`immediate` stops like a crash; `fast` ends sessions and flushes first."""
        self._run("stop", mode)

    def restart(self):
        self._run("restart")

    def set_checksums(self, enabled):
        """Switches data checksums of the stopped server on or off."""
        self._run("checksums", "enable" if enabled else "disable")


class PostgresCatalog:
    """A catalog in a PostgreSQL database that servers share."""

    def __init__(self, server=None):
        server = server or os.environ.get("S3O_TEST_POSTGRES_URL")
        if not server:
            pytest.fail("S3O_TEST_POSTGRES_URL is not set: run `make test`")
        name = f"s3o_{uuid.uuid4().hex}"
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        self.url = f"{server.rsplit('/', 1)[0]}/{name}"

    def rows(self, sql):
        with psycopg.connect(self.url) as connection:
            return connection.execute(sql).fetchall()

    def change(self, sql):
        """Changes rows without the servers, to inject a fault."""
        with psycopg.connect(self.url) as connection:
            connection.execute(sql)

    @contextlib.contextmanager
    def blocked_releases(self):
        """Blocks transactions that release content until the context ends or their process is dead."""
        with psycopg.connect(self.url) as connection:
            connection.execute("SELECT 1 FROM contents FOR UPDATE")
            yield
