"""Ambiguous requests are refused, and signed chunks are bounded."""

import socket

import pytest

import signing
from s3_checks import body_of, read

MEBIBYTE = 1024 * 1024
UPLOADS = 16
GROWTH_KIB_MAX = 64 * 1024


def first_line(port, request):
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(request)
        return connection.makefile("rb").readline()


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\nHost: x\n\n",
        b"GET / HTTP/1.1\r\nHost: x\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX-A: b\nX-C: d\r\n\r\n",
        b"\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
    ids=["no host", "two hosts", "bare lf", "bare lf after host", "bare lf between headers", "bare lf before"],
)
def test_requests_without_host_or_with_bare_lf_are_400(server, request_bytes, s3o_only):
    assert first_line(server.port, request_bytes).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("head", [b"HTTP/1.1\r\n\r\n", b"HTTP/1.1\nHost: x\n\n"], ids=["no host", "bare lf"])
def test_admin_listener_refuses_malformed_requests(server, head, s3o_only):
    assert first_line(server.admin_port, b"GET /health/live " + head).startswith(b"HTTP/1.1 400")


def test_bare_lf_is_found_behind_a_request_with_a_body(server, bucket, s3, s3o_only):
    raw = server.raw()
    body = b"line\nline\n\n\r\n\r\n\n"
    target, headers, _ = raw.prepare("PUT", raw.path(bucket, "k"), headers={"Content-Length": str(len(body))})
    head = f"PUT {target} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(head.encode() + body + b"GET / HTTP/1.1\nHost: x\r\n\r\n")
        answers = b""
        while piece := connection.recv(65536):
            answers += piece
    assert answers.startswith(b"HTTP/1.1 200") and b"HTTP/1.1 400" in answers, answers
    assert read(s3, bucket, "k") == body


@pytest.mark.parametrize("chunk_bytes", [8 * 1024, 64 * 1024, MEBIBYTE])
def test_signed_chunks_up_to_a_mebibyte_are_stored(server, bucket, s3, chunk_bytes):
    raw, body = server.raw(), body_of(2 * MEBIBYTE + 5)
    answer = raw.put_chunked(raw.path(bucket, "k"), body, signing.SIGNED_CHUNKS, chunk_bytes=chunk_bytes)
    assert answer.status == 200, answer
    assert read(s3, bucket, "k") == body


@pytest.mark.alone
def test_signed_chunks_do_not_fill_memory(own_server):
    server = own_server().start()
    server.s3().create_bucket(Bucket="bucket")
    raw = server.raw()
    idle = server.status_kib("VmRSS")
    chunk = f"{16 * MEBIBYTE:x};chunk-signature={'0' * 64}\r\n".encode()
    held = []
    for number in range(UPLOADS):
        lengths = {"Content-Length": str(17 * MEBIBYTE), "x-amz-decoded-content-length": str(16 * MEBIBYTE)}
        target, headers, _ = raw.prepare("PUT", f"/bucket/{number}", None, lengths, signing.SIGNED_CHUNKS)
        head = f"PUT {target} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        connection = socket.create_connection(("127.0.0.1", server.port), timeout=20)
        held.append(connection)
        try:
            connection.sendall(head.encode() + b"\r\n" + chunk)
            for _ in range(15):
                connection.sendall(b"c" * MEBIBYTE)
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused
    growth = server.status_kib("VmHWM") - idle
    print(f"{UPLOADS} uploads of a 16 MiB chunk each: {growth} KiB above idle")
    assert growth < GROWTH_KIB_MAX
