"""Bodies are streamed: the server stays below 128 MiB resident memory while 1 GiB is written and read."""

import hashlib

import pytest

from s3_checks import body_of

BLOCK_BYTES = 1024 * 1024
BLOCKS = 1024
RESIDENT_KIB_MAX = 128 * 1024


def blocks():
    """1 GiB without repeats: one random block, each time with another beginning."""
    noise = bytearray(body_of(BLOCK_BYTES))
    for number in range(BLOCKS):
        noise[:8] = number.to_bytes(8, "big")
        yield bytes(noise)


@pytest.mark.alone
@pytest.mark.timeout(240)
def test_one_gibibyte_is_transferred_in_bounded_memory(own_server):
    server = own_server().start()
    server.s3().create_bucket(Bucket="large")
    raw = server.raw()
    size_bytes = BLOCK_BYTES * BLOCKS
    target, headers, _ = raw.prepare("PUT", "/large/object", headers={"Content-Length": str(size_bytes)})
    connection = raw.connect(timeout=120)
    sent = hashlib.sha256()
    raw.start(connection, "PUT", target, headers)
    for block in blocks():
        sent.update(block)
        connection.send(block)
    answer = raw.finish(connection)
    assert answer.status == 200, answer
    after_put = server.status_kib("VmHWM")

    target, headers, _ = raw.prepare("GET", "/large/object")
    connection = raw.connect(timeout=120)
    raw.start(connection, "GET", target, headers)
    response = connection.getresponse()
    received = hashlib.sha256()
    count = 0
    while piece := response.read(BLOCK_BYTES):
        received.update(piece)
        count += len(piece)
    connection.close()
    after_get = server.status_kib("VmHWM")
    print(f"peak resident memory: {after_put} KiB after PUT, {after_get} KiB after GET")
    assert (response.status, count) == (200, size_bytes)
    assert received.digest() == sent.digest()
    assert after_get < RESIDENT_KIB_MAX
