"""Requests without a valid signature hold no resources that authenticated requests need."""

import socket
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import pytest

from raw_client import assert_refused
from s3_checks import body_of
from signing import Credentials

# Half of the requests are of the kinds that would hold a slot for a minute: a thousand slots.
STALLED = 2000
REQUESTS = 300
ROUNDS = 5
RATIO_MAX = 3


def percentile(durations, share):
    return sorted(durations)[int(len(durations) * share)]


def timed_reads(raw):
    """The p99 latency in milliseconds of small reads on one connection; all must succeed."""
    connection = raw.connect()
    durations = []
    for _ in range(REQUESTS):
        began = time.monotonic()
        answer = raw.request("GET", "/bucket/key", on=connection)
        durations.append((time.monotonic() - began) * 1000)
        assert answer.status == 200, answer
    connection.close()
    return percentile(durations, 0.99)


@pytest.mark.alone
@pytest.mark.timeout(240)
def test_stalled_unauthenticated_clients_do_not_delay_authenticated_requests(own_server):
    server = own_server().start()
    server.s3().create_bucket(Bucket="bucket")
    server.s3().put_object(Bucket="bucket", Key="key", Body=body_of(1000))
    raw = server.raw()
    timed_reads(raw)
    script = str(Path(__file__).with_name("stalled_clients.py"))
    # Quiet and busy rounds alternate, and their medians are compared: another program on this machine slows down some
    # rounds of either kind, but not most rounds of one kind only.
    quiet, beside = [], []
    for _ in range(ROUNDS):
        quiet.append(timed_reads(raw))
        arguments = [sys.executable, script, "127.0.0.1", str(server.port), str(STALLED)]
        with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as stalled:
            assert stalled.stdout.readline() == b"ready\n"
            time.sleep(1)
            beside.append(timed_reads(raw))
            stalled.stdin.close()
        print(f"p99 of {REQUESTS} reads: {quiet[-1]:.1f} ms quiet, {beside[-1]:.1f} ms beside {STALLED} stalled clients")
    assert median(beside) <= RATIO_MAX * median(quiet), (quiet, beside)


def test_unauthenticated_bodies_are_answered_before_they_arrive(own_server):
    server = own_server().start()
    began = time.monotonic()
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
            connection.sendall(b"PUT /bucket/k HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
            assert connection.recv(1000).startswith(b"HTTP/1.1 403")
    # Without the early answer each would wait a second for its body.
    assert time.monotonic() - began < 15


def test_scope_of_another_service_is_refused_without_its_body(own_server):
    server = own_server().start()
    target, headers, _ = server.raw().prepare("PUT", "/bucket/k", headers={"Content-Length": "8000"})
    headers["Authorization"] = headers["Authorization"].replace("/s3/", "/sts/")
    del headers["x-amz-content-sha256"]
    answer = server.raw().send("PUT", target, headers)
    assert_refused(answer, 400, "AuthorizationHeaderMalformed", "/bucket/k")


def test_signature_for_another_region_gets_the_right_region(own_server):
    server = own_server()
    server.config["server"]["region"] = "eu-north-1"
    server.start()
    answer = server.raw().request("GET", "/")
    assert_refused(answer, 400, "AuthorizationHeaderMalformed", "/")
    assert answer.xml().findtext("Region") == "eu-north-1"
    assert "expecting 'eu-north-1'" in answer.xml().findtext("Message")
    assert answer.headers["x-amz-bucket-region"] == "eu-north-1"
    raw = server.raw()
    raw.credentials = Credentials(raw.credentials.access_key, raw.credentials.secret_key, "eu-north-1")
    assert raw.request("GET", "/").status == 200
