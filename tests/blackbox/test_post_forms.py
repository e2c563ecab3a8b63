"""POST forms are refused before authentication, without reading them into memory."""

import concurrent.futures
import socket

import pytest

FORMS = 4
FORM_BYTES = 150 * 1000 * 1000
GROWTH_KIB_MAX = 64 * 1024
PIECE = b"f" * (1024 * 1024)
MEDIA_TYPES = ("multipart/form-data", "Multipart/Form-Data", "MULTIPART/form-data", "multipart/FORM-DATA")


def send_form(port, media_type, size_bytes):
    """Sends an anonymous form until the server stops reading; returns the status line, if one arrives."""
    start = b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n'
    end = b"\r\n--b--\r\n"
    head = (
        f"POST /bucket HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: {media_type}; boundary=b\r\n"
        f"Content-Length: {len(start) + size_bytes + len(end)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        try:
            connection.sendall(head.encode() + start)
            for _ in range(size_bytes // len(PIECE)):
                connection.sendall(PIECE)
            connection.sendall(PIECE[: size_bytes % len(PIECE)] + end)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the server has answered and closed
        try:
            return connection.makefile("rb").readline().decode().strip()
        except ConnectionResetError:
            return ""


@pytest.mark.alone
@pytest.mark.timeout(180)
def test_anonymous_forms_do_not_fill_memory(own_server):
    server = own_server().start()
    server.s3().create_bucket(Bucket="bucket")
    idle = server.status_kib("VmRSS")
    with concurrent.futures.ThreadPoolExecutor(FORMS) as threads:
        answers = list(threads.map(lambda media: send_form(server.port, media, FORM_BYTES), MEDIA_TYPES))
    growth = server.status_kib("VmHWM") - idle
    print(f"{FORMS} forms of {FORM_BYTES} bytes: {growth} KiB above idle, answers {answers}")
    assert growth < GROWTH_KIB_MAX
    assert all(answer in ("", "HTTP/1.1 501 Not Implemented") for answer in answers), answers


def test_forms_are_refused_before_their_body_arrives(own_server):
    server = own_server().start()
    for media_type in MEDIA_TYPES:
        headers = f"Content-Type: {media_type}; boundary=b\r\nContent-Length: 1000000\r\n"
        head = f"POST /bucket HTTP/1.1\r\nHost: x\r\n{headers}\r\n"
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
            connection.sendall(head.encode())
            assert connection.recv(1000).startswith(b"HTTP/1.1 501"), media_type
