"""Slow clients do not delay other requests."""

import socket
import time

import pytest

from polling import eventually
from s3_checks import body_of

pytestmark = [pytest.mark.alone, pytest.mark.timeout(120)]

# More than half of the blocking threads of the runtime.
SLOW_UPLOADS = 300
SIZE_BYTES = 2 * 1024 * 1024


def test_hundreds_of_slow_uploads_do_not_delay_other_requests(own_server):
    server = own_server().start()
    server.s3().create_bucket(Bucket="bucket")
    server.s3().put_object(Bucket="bucket", Key="there", Body=body_of(1000))
    raw = server.raw()
    uploads = []
    for number in range(SLOW_UPLOADS):
        target, headers, _ = raw.prepare("PUT", f"/bucket/{number}", headers={"Content-Length": str(SIZE_BYTES)})
        head = f"PUT {target} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        upload = socket.create_connection(("127.0.0.1", server.port))
        upload.sendall(head.encode() + b"\r\n" + b"s" * 1000)
        uploads.append(upload)
    staged = "SELECT count(*) FROM pending_objects"
    eventually(lambda: server.rows(staged)[0][0] == SLOW_UPLOADS, 30, message="the uploads did not begin")
    began = time.monotonic()
    for number in range(5):
        assert raw.request("PUT", f"/bucket/quick-{number}", body=b"x").status == 200
        assert raw.request("GET", "/bucket/there").body == body_of(1000)
    # Each read takes milliseconds; if slow uploads held every thread, none would be answered.
    assert time.monotonic() - began < 20
    for upload in uploads:
        upload.close()
    eventually(lambda: server.rows(staged)[0][0] == 0, 30, message="abandoned uploads left intents")


def test_slow_write_with_renewed_lease_is_not_reaped(own_server):
    leases = {"min_age": "600ms", "reaper_tick": "100ms", "late_write_window": "100ms"}
    server = own_server(settings={"write_path": {"pending_intents": leases}}).start()
    server.s3().create_bucket(Bucket="bucket")
    raw = server.raw()
    target, headers, _ = raw.prepare("PUT", "/bucket/slow", headers={"Content-Length": "6000"})

    def pieces():
        for _ in range(6):
            yield b"s" * 1000
            time.sleep(0.6)
            server.run_worker("pending_reaper")

    assert raw.send("PUT", target, headers, pieces()).status == 200
    assert raw.request("GET", "/bucket/slow").body == b"s" * 6000
    assert server.metrics()['s3o_pending_intents_resolved_total{status="dropped"}'] == 0
