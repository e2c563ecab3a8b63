"""When request slots are scarce the slowest transfers are ended; slow clients above the minimum rate continue."""

import socket
import threading
import time

import pytest

from polling import eventually
from raw_client import assert_refused
from s3_checks import body_of

MEBIBYTE = 1024 * 1024
RESERVED = "SELECT sum(reserved_bytes) FROM backend_quotas"


def quota_backend(tmp_path, quota):
    return {"name": "disk", "kind": "fs", "root": str(tmp_path / "disk"), "quota": quota}


def begin(server, method, path, size_bytes=None, key="admin"):
    """Sends the head of a signed request, and ten bytes of its body if it has one."""
    headers = {"Content-Length": str(size_bytes)} if size_bytes else {}
    target, headers, _ = server.raw(key).prepare(method, path, headers=headers)
    head = f"{method} {target} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    connection.connect(("127.0.0.1", server.port))
    connection.sendall(head.encode() + b"\r\n" + (b"s" * 10 if size_bytes else b""))
    return connection


def reserved(server, size_bytes):
    return lambda: int(server.rows(RESERVED)[0][0] or 0) == size_bytes


def steady_upload(server, seconds):
    """An upload of 4 KiB per second on a thread; its status line is appended to the list."""
    upload = begin(server, "PUT", "/bucket/steady", 10 + 4096 * seconds)
    status = []

    def send():
        for _ in range(seconds):
            upload.sendall(b"s" * 4096)
            time.sleep(1)
        upload.settimeout(60)
        status.append(upload.recv(100))

    thread = threading.Thread(target=send)
    thread.start()
    return thread, status


@pytest.mark.timeout(240)
def test_slowest_transfers_are_ended_when_slots_are_scarce(own_server, tmp_path):
    server = own_server(backend=quota_backend(tmp_path, "1GiB"))
    server.config["server"]["max_concurrent_requests"] = 3
    server.start()
    server.s3().create_bucket(Bucket="bucket")
    server.s3().put_object(Bucket="bucket", Key="large", Body=b"l" * (64 * MEBIBYTE))
    eventually(reserved(server, 0), 20)
    thread, status = steady_upload(server, 110)
    stalled = begin(server, "PUT", "/bucket/stalled", 100 * MEBIBYTE)
    unread = begin(server, "GET", "/bucket/large")
    eventually(lambda: int(server.rows(RESERVED)[0][0]) > 100 * MEBIBYTE, 20)
    eventually(
        lambda: server.raw().request("GET", "/bucket/large", headers={"Range": "bytes=0-1"}).code == "SlowDown", 20
    )

    began = time.monotonic()
    new_uploads = []
    while len(new_uploads) < 2:
        new_upload = begin(server, "PUT", f"/bucket/new-{len(new_uploads)}", MEBIBYTE)
        new_upload.settimeout(3)
        try:
            assert new_upload.recv(1000).startswith(b"HTTP/1.1 503")
            new_upload.close()
        except TimeoutError:
            new_uploads.append(new_upload)  # the request has a slot and the server waits for its body
        time.sleep(1)
    print(f"two stalled transfers were ended after {time.monotonic() - began:.0f} s")
    stalled.settimeout(20)
    assert b"RequestTimeout" in stalled.recv(10000)
    eventually(lambda: int(server.rows(RESERVED)[0][0]) < 100 * MEBIBYTE, 20, message="its reservation is not released")
    assert_refused(server.raw().request("GET", "/bucket/large"), 503, "SlowDown")
    unread.settimeout(20)
    with pytest.raises((ConnectionResetError, EOFError)):
        read_all(unread, 64 * MEBIBYTE)
    thread.join()
    assert status[0].startswith(b"HTTP/1.1 200"), "a slow client above the minimum rate is served to its end"
    for new_upload in new_uploads:
        new_upload.close()
    eventually(reserved(server, 0), 30, message="reservations of writes that failed are not released")


def read_all(connection, size_bytes):
    received = 0
    while received < size_bytes:
        piece = connection.recv(MEBIBYTE)
        if not piece:
            raise EOFError
        received += len(piece)


def test_one_access_key_reserves_no_more_than_its_share(own_server, tmp_path):
    server = own_server(backend=quota_backend(tmp_path, "10MiB"))
    server.config["server"]["max_reserved_share"] = 0.5
    server.start()
    server.s3().create_bucket(Bucket="granted-b")
    stalled = begin(server, "PUT", "/granted-b/stalled", 4 * MEBIBYTE, key="writer")
    eventually(reserved(server, 4 * MEBIBYTE), 20)
    body = body_of(2 * MEBIBYTE)
    answer = server.raw("writer").request("PUT", "/granted-b/more", body=body)
    assert_refused(answer, 503, "SlowDown", "/granted-b/more")
    assert "max_reserved_share" in answer.xml().findtext("Message")
    assert server.raw("writer").request("PUT", "/granted-b/small", body=b"x" * 1000).status == 200
    assert server.raw("admin").request("PUT", "/granted-b/other", body=body).status == 200, (
        "other keys have their share"
    )
    stalled.close()
    eventually(reserved(server, 0), 20)
    # The bytes of the stalled write count until cleanup has deleted them.
    eventually(lambda: server.raw("writer").request("PUT", "/granted-b/more", body=body).status == 200, 20, 0.1)
