"""Holds connections with stalled requests that carry no valid signature, until its standard input closes.

It runs as a separate process, so that it does not slow down the client that is measured:
`python stalled_clients.py HOST PORT COUNT`. It prints `ready` once all connections are open.
"""

import datetime
import resource
import select
import socket
import sys

REOPEN_SECONDS = 0.5
# Bound on reopened connections per round: the clients stall, they do not flood.
REOPENED_MAX = 50
# The server accepts 1,000 connections from one address.
SOURCES = ("127.0.0.2", "127.0.0.3")


def heads(host):
    """One stalled request of each kind; each declares more body than it sends."""
    now = datetime.datetime.now(datetime.UTC)
    stamp, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")

    def signed(service, extra):
        return (
            f"Authorization: AWS4-HMAC-SHA256 Credential=admin-key/{day}/us-east-1/{service}/aws4_request, "
            f"SignedHeaders=host;x-amz-date, Signature={'0' * 64}\r\nx-amz-date: {stamp}\r\n{extra}"
        )

    unsigned = "x-amz-content-sha256: UNSIGNED-PAYLOAD\r\n"
    kinds = [
        ("POST /bucket", "Content-Type: Multipart/Form-Data; boundary=b\r\nContent-Length: 1000000\r\n"),
        ("PUT /bucket/k", "Content-Length: 100000\r\n"),
        ("PUT /bucket/k", signed("sts", "Content-Length: 8000\r\n")),
        ("PUT /bucket/k", signed("s3", unsigned + "Content-Length: 100000\r\n")),
    ]
    return [f"{line} HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n--b\r\n".encode() for line, headers in kinds]


def open_one(address, number):
    kinds = heads(f"{address[0]}:{address[1]}")
    source = SOURCES[number % len(SOURCES)]
    connection = socket.create_connection(address, timeout=30, source_address=(source, 0))
    connection.sendall(kinds[number // len(SOURCES) % len(kinds)])
    return connection


def main(host, port, count):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    address = (host, int(port))
    held = [open_one(address, number) for number in range(int(count))]
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], REOPEN_SECONDS)[0]:
        closed = [number for number, connection in enumerate(held) if is_closed(connection)]
        for number in closed[:REOPENED_MAX]:
            held[number].close()
            held[number] = open_one(address, number)


def is_closed(connection):
    """True if the server has answered and closed."""
    connection.setblocking(False)
    try:
        while piece := connection.recv(65536):
            assert piece
        return True
    except BlockingIOError:
        return False
    except OSError:
        return True


if __name__ == "__main__":
    main(*sys.argv[1:])
