"""Connections are bounded below the limit on open files; health checks and new clients are always answered."""

import re
import socket
from pathlib import Path

import pytest

from polling import eventually
from s3_checks import body_of

IDLE = 1000


def idle_connections(port, count, source="127.0.0.2"):
    """Connections that send nothing."""
    return [socket.create_connection(("127.0.0.1", port), timeout=30, source_address=(source, 0)) for _ in range(count)]


def with_open_files(soft, hard):
    """Starts the server with these limits on open files."""
    return ["bash", "-c", f'ulimit -Sn {soft} && ulimit -Hn {hard} && exec "$0" "$@"']


def is_closed(connection):
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def open_files_limit(server):
    limits = Path(f"/proc/{server.process.pid}/limits").read_text()
    return int(re.search(r"Max open files\s+(\d+)", limits).group(1))


def started(own_server, soft, hard, **settings):
    server = own_server()
    server.config["server"].update(settings)
    server.start(wrapper=with_open_files(soft, hard))
    server.s3().create_bucket(Bucket="bucket")
    server.s3().put_object(Bucket="bucket", Key="key", Body=body_of(1000))
    return server


@pytest.mark.timeout(120)
def test_a_thousand_idle_connections_leave_health_checks_answered(own_server):
    server = started(own_server, 256, 4096)
    assert open_files_limit(server) == 4096
    held = idle_connections(server.port, IDLE)
    for _ in range(5):
        assert server.admin_get("/health/ready")[0] == 200
        assert server.raw().request("GET", "/bucket/key").body == body_of(1000)
    print(f"{len(held)} idle connections with a soft limit of 256 files: ready, reads answered")


@pytest.mark.timeout(120)
def test_idle_connections_are_replaced_below_a_low_hard_limit(own_server):
    server = started(own_server, 700, 700)
    held = idle_connections(server.port, IDLE) + idle_connections(server.admin_port, 300)
    for _ in range(5):
        assert server.admin_get("/health/ready")[0] == 200
        assert server.raw().request("GET", "/bucket/key").body == body_of(1000)
    open_files = len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))
    print(f"{len(held)} idle connections with a hard limit of 700 files: {open_files} open")
    assert open_files < 700


def test_new_connection_of_an_address_replaces_its_longest_idle_one(own_server):
    server = started(own_server, 1024, 4096, max_connections_per_address=10)
    other = idle_connections(server.port, 1, source="127.0.0.3")
    held = idle_connections(server.port, 15)
    eventually(lambda: sum(map(is_closed, held)) == 5, 20, message="the oldest five were not closed")
    assert [is_closed(connection) for connection in held] == [True] * 5 + [False] * 10
    assert not is_closed(other[0]), "another address is not affected"


def test_connections_with_requests_are_not_replaced(own_server):
    server = started(own_server, 1024, 4096, max_connections_per_address=3)
    raw = server.raw()
    target, headers, _ = raw.prepare("PUT", "/bucket/slow", headers={"Content-Length": "10"})
    head = f"PUT {target} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    uploads = idle_connections(server.port, 3)
    for upload in uploads:
        upload.sendall(head.encode() + b"\r\n12345")
    eventually(lambda: server.rows("SELECT count(*) FROM pending_objects")[0][0] == 3, 20)
    refused = idle_connections(server.port, 1)[0]
    assert refused.recv(100).startswith(b"HTTP/1.1 503"), "all connections of this address have requests"
    for upload in uploads:
        upload.sendall(b"67890")
        assert upload.recv(100).startswith(b"HTTP/1.1 200")
