"""Fixtures of the black-box tests: a running server per kind of backend, and fresh buckets on it.

`S3O_BIN` names the binary. `S3O_TEST_S3_*` name a real S3 server for the `s3` backend; without them the run starts one.
`S3O_TEST_STANDIN=http://127.0.0.1:PORT` (with `_KEY` and `_SECRET`) runs the protocol tests against another S3 server
instead of s3o, to validate the tests themselves.
"""

import os
import shutil
import tempfile
import uuid
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import seaweed
from catalogs import OwnPostgres, PostgresCatalog
from server_process import Endpoint, Server
from settled_state import QUICK
from signing import Credentials

# The kinds of server that the protocol tests run on.
KINDS = ("fs", "s3", "postgres")
STANDIN = os.environ.get("S3O_TEST_STANDIN")
LOG_TAIL_CHARACTERS = 6000
_seaweed = {}


def pytest_configure(config):
    """One S3 server for the whole run; the workers of a parallel run inherit its address."""
    if hasattr(config, "workerinput") or config.option.collectonly or STANDIN or "S3O_TEST_S3_ENDPOINT" in os.environ:
        return
    folder = tempfile.mkdtemp(prefix="s3o-seaweed-")
    _seaweed["folder"] = folder
    _seaweed["process"], endpoint = seaweed.start(folder)
    os.environ["S3O_TEST_S3_ENDPOINT"] = endpoint
    os.environ["S3O_TEST_S3_ACCESS_KEY"] = seaweed.ACCESS_KEY
    os.environ["S3O_TEST_S3_SECRET_KEY"] = seaweed.SECRET_KEY


def pytest_unconfigure(config):
    if "process" in _seaweed:
        _seaweed["process"].kill()
        _seaweed["process"].wait()
    if "folder" in _seaweed:
        shutil.rmtree(_seaweed["folder"], ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Adds the logs of its servers to the report of a failed test."""
    report = yield
    if report.failed:
        servers = {id(value): value for value in getattr(item, "funcargs", {}).values() if isinstance(value, Server)}
        for server in [*servers.values(), *getattr(item, "started_servers", [])]:
            report.sections.append((f"log of {server.folder}", server.log()[-LOG_TAIL_CHARACTERS:]))
    return report


@pytest.fixture(scope="session", params=["standin"] if STANDIN else KINDS)
def server(request, tmp_path_factory):
    """A server of the given backend kind, shared by all tests of the run: use fresh buckets."""
    if STANDIN:
        key = os.environ.get("S3O_TEST_STANDIN_KEY", seaweed.ACCESS_KEY)
        secret = os.environ.get("S3O_TEST_STANDIN_SECRET", seaweed.SECRET_KEY)
        yield Endpoint(urlsplit(STANDIN).port, {"admin": Credentials(key, secret)})
        return
    backend = seaweed.fresh_bucket() if request.param == "s3" else None
    catalog = PostgresCatalog() if request.param == "postgres" else None
    running = Server(tmp_path_factory.mktemp(request.param), backend, catalog=catalog)
    try:
        yield running.start()
    finally:
        running.stop()


@pytest.fixture
def own_server(request, tmp_path):
    """Creates servers on folders for this test alone, and stops them after it."""
    if STANDIN:
        pytest.skip("needs the s3o binary")
    request.node.started_servers = started = []

    def make(name="server", **options):
        started.append(Server(Path(tmp_path) / name, **options))
        return started[-1]

    yield make
    for server in started:
        if server.process and server.process.poll() is None:
            server.kill()


@pytest.fixture
def disks(own_server):
    """Starts a server with several folders, `disk0` and on, and an empty bucket; `settings` are added to QUICK."""

    def start(count, **settings):
        server = own_server(settings={**QUICK, "identity": {"probe_interval": "200ms"}, **settings})
        server.config["backends"] = [
            {"name": f"disk{number}", "kind": "fs", "root": str(server.folder / f"disk{number}")}
            for number in range(count)
        ]
        server.start().s3().create_bucket(Bucket="bucket")
        return server

    return start


@pytest.fixture
def own_postgres():
    """A PostgreSQL server that this test may stop and start."""
    # Directly below /tmp: the server may run as a user without access to the test's folders.
    with tempfile.TemporaryDirectory(prefix="s3o-postgres-") as folder:
        Path(folder).chmod(0o755)
        server = OwnPostgres(folder)
        try:
            yield server
        finally:
            server.stop()


@pytest.fixture
def instances(own_server):
    """Creates several servers on one catalog and one backend, with one bucket.

    `backends` has one entry per server if they reach the backend through different proxies. `all_backends` has the
    whole list of each server's backends.
    """

    def make(count, settings=None, backends=(), all_backends=(), **database):
        catalog, settings = PostgresCatalog(), {**QUICK, **(settings or {})}
        servers = []
        for number in range(count):
            shared = servers[0].config["backends"][0] if servers else None
            backend = backends[number] if backends else shared
            servers.append(own_server(name=f"instance-{number}", settings=settings, catalog=catalog, backend=backend))
            servers[-1].config["database"].update(database)
            if all_backends:
                servers[-1].config["backends"] = all_backends[number]
            servers[-1].start()
        servers[0].s3().create_bucket(Bucket="bucket")
        return servers

    return make


@pytest.fixture(scope="session")
def s3o_only():
    """For tests of behaviour that only s3o guarantees, not every S3 server."""
    if STANDIN:
        pytest.skip("only s3o guarantees this")


@pytest.fixture
def s3(server):
    """boto3 with the admin key."""
    return server.s3()


@pytest.fixture
def raw(server):
    """Hand-signed requests with the admin key."""
    return server.raw()


@pytest.fixture
def new_bucket(s3):
    """Creates buckets with unique names."""

    def make(prefix="test"):
        name = f"{prefix}-{uuid.uuid4().hex[:12]}"
        s3.create_bucket(Bucket=name)
        return name

    return make


@pytest.fixture
def bucket(new_bucket):
    return new_bucket()
