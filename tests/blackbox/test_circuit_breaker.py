"""A store that fails repeatedly is skipped: no call is made until a probe succeeds, and writes resume with one write."""

import json

import pytest

import seaweed
from polling import eventually
from refusing_proxy import DENIED, ProxyHandler, RefusingProxy
from s3_checks import body_of, read, refused
from settled_state import QUICK, settle

BREAKER = {"circuit_breaker": {"failure_threshold": 3, "open_timeout": "2s"}}
INTERNAL_ERROR = b"<Error><Code>InternalError</Code><Message>no</Message></Error>"


class FailingHandler(ProxyHandler):
    """Answers the methods in `proxy.failing` with an error and counts all requests for objects."""

    def answer_request(self):
        proxy = self.server.proxy
        if "/.s3o/" not in self.path:
            proxy.requests.append(self.command)
        elif not proxy.fails_own_objects:
            return super().answer_request()
        if self.command not in proxy.failing:
            return super().answer_request()
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return self.reply(proxy.status, {"Content-Type": "application/xml"}, proxy.error)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer_request


class FailingProxy(RefusingProxy):
    def __init__(self, endpoint):
        self.failing, self.requests, self.fails_own_objects = set(), [], False
        self.status, self.error = 500, INTERNAL_ERROR
        super().__init__(endpoint, FailingHandler)


@pytest.fixture
def proxy():
    failing = FailingProxy(seaweed.fresh_bucket()["endpoint"])
    yield failing
    if not failing.is_down:
        failing.stop()


@pytest.fixture
def server(own_server, proxy):
    """A store behind the proxy, then a disk."""
    backend = {**seaweed.fresh_bucket(), "endpoint": proxy.endpoint}
    server = own_server(backend=backend, settings={**QUICK, **BREAKER})
    server.config["backends"].append({"name": "disk", "kind": "fs", "root": str(server.folder / "second")})
    server.start().s3().create_bucket(Bucket="bucket")
    return server


def circuits(server):
    """State of the reads and writes of the store, as the status shows them."""
    shown = json.loads(server.admin("GET", "/admin/api/status")[1])["backends"][0]["circuit_breaker"]
    return shown["reads"], shown["writes"]


def test_writes_are_skipped_while_reads_go_on_and_resume_with_one_write(server, proxy):
    s3 = server.s3()
    s3.put_object(Bucket="bucket", Key="before", Body=b"before")
    proxy.requests.clear()
    proxy.failing = {"PUT"}
    for number in range(3):
        s3.put_object(Bucket="bucket", Key=f"failed-{number}", Body=body_of(1000))
    assert circuits(server) == ("closed", "open")
    store = server.config["backends"][0]["name"]
    assert server.metrics()[f's3o_circuit_breaker_state{{backend="{store}"}}'] == 2
    puts = proxy.requests.count("PUT")
    assert puts == 3, "each failed write was sent to the store once"
    proxy.failing = set()
    s3.put_object(Bucket="bucket", Key="skipped", Body=b"skipped")
    assert proxy.requests.count("PUT") == puts, "an open circuit makes no call"
    assert read(s3, "bucket", "before") == b"before"
    eventually(lambda: circuits(server) == ("closed", "half_open"), 20, 0.1)
    s3.put_object(Bucket="bucket", Key="trial", Body=b"trial")
    assert circuits(server) == ("closed", "closed")
    assert proxy.requests.count("PUT") == puts + 1
    settle(server)


def test_store_that_refuses_everything_makes_no_dead_letters(server, proxy):
    s3 = server.s3()
    for number in range(3):
        s3.put_object(Bucket="bucket", Key=f"key-{number}", Body=body_of(1000))
    proxy.status, proxy.error, proxy.fails_own_objects = 403, DENIED, True
    proxy.failing = {"GET", "PUT", "POST", "HEAD", "DELETE"}
    for number in range(3):
        s3.delete_object(Bucket="bucket", Key=f"key-{number}")
        with refused("NoSuchKey", 404):
            read(s3, "bucket", f"key-{number}")
    s3.put_object(Bucket="bucket", Key="elsewhere", Body=b"elsewhere")
    for _ in range(5):
        server.run_worker("cleanup")
    assert server.rows("SELECT count(*) FROM cleanup_dlq") == [(0,)]
    assert max(row[0] for row in server.rows("SELECT attempts FROM cleanup_queue")) == 0
    proxy.failing = set()
    settle(server)
