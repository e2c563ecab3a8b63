"""Connections: an early answer leaves them usable or closes them; too many requests get 503."""

import socket

from polling import eventually
from raw_client import assert_refused
from s3_checks import body_of, read


def put(raw, path, size_bytes, **extra):
    """The target and signed headers of a PUT, its body still to be sent."""
    target, headers, _ = raw.prepare("PUT", path, headers={"Content-Length": str(size_bytes), **extra})
    return target, headers


def exchange(connection, bytes_):
    """Sends raw bytes and returns everything that arrives until the server sends no more."""
    connection.settimeout(30)
    connection.sendall(bytes_)
    received = b""
    try:
        while piece := connection.recv(65536):
            received += piece
            connection.settimeout(0.3)
    except TimeoutError:
        pass
    return received


def head_of(target, headers):
    lines = [f"PUT {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def test_a_refused_request_with_a_small_body_leaves_its_connection_usable(server, bucket):
    raw = server.raw()
    connection = raw.connect()
    for _ in range(5):
        for size_bytes in (1, 1000, 100_000):
            answer = raw.request("PUT", "/no-such-bucket-x/k", body=b"n" * size_bytes, on=connection)
            assert_refused(answer, 404, "NoSuchBucket")
            assert "connection" not in answer.headers
        used = connection.sock
        assert raw.request("GET", raw.path(bucket), on=connection).status == 200
        assert connection.sock is used


def test_refused_request_with_a_large_body_closes_its_connection(server, bucket, s3):
    raw = server.raw()
    for size_bytes in (1_000_000, 20_000_000):
        answer = raw.request("PUT", "/no-such-bucket-x/k", body=b"n" * size_bytes)
        assert_refused(answer, 404, "NoSuchBucket")
        assert answer.headers["connection"] == "close"
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")


def test_100_continue_is_sent_only_for_accepted_requests(server, bucket, s3):
    raw = server.raw()
    body = body_of(1000)
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        target, headers = put(raw, "/no-such-bucket-x/k", 1000, Expect="100-continue")
        answer = exchange(connection, head_of(target, headers))
        assert answer.startswith(b"HTTP/1.1 404") and b"100 Continue" not in answer, answer
        assert b"connection: close" in answer.lower(), answer
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        target, headers = put(raw, raw.path(bucket, "k"), 1000, Expect="100-continue")
        assert exchange(connection, head_of(target, headers)) == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert exchange(connection, body).startswith(b"HTTP/1.1 200")
    assert read(s3, bucket, "k") == body


def test_too_many_concurrent_requests_get_slow_down(own_server):
    server = own_server()
    server.config["server"]["max_concurrent_requests"] = 1
    server.start()
    server.s3().create_bucket(Bucket="bucket")
    raw = server.raw()
    target, headers = put(raw, "/bucket/slow", 10, Expect="100-continue")

    def admitted():
        """Retries while the slot of the previous request is not free yet."""
        connection = socket.create_connection(("127.0.0.1", server.port))
        if exchange(connection, head_of(target, headers)).startswith(b"HTTP/1.1 100"):
            return connection
        connection.close()
        return None

    first = eventually(admitted, 5)
    first.sendall(b"12345")
    answer = raw.request("GET", "/bucket")
    assert_refused(answer, 503, "SlowDown", "/bucket")
    assert answer.headers["retry-after"] == "1"
    assert server.metrics()["s3o_admission_rejections_total"] >= 1
    assert exchange(first, b"67890").startswith(b"HTTP/1.1 200")
    first.close()
    assert eventually(lambda: raw.request("GET", "/bucket/slow").body == b"1234567890", 5)
