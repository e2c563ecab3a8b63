"""Audit lines of failed authentication, and escaping of untrusted text in the audit file and the log."""

import signal
import unicodedata

import pytest
import yaml

from polling import eventually
from test_audit import AUDIT_FILE, id_of, line_of, lines_of


@pytest.fixture
def server(own_server):
    return own_server().start()


def test_authentication_failures_answered_with_400_are_audited(server):
    server.s3().create_bucket(Bucket="private")
    raw = server.raw()
    presigned = server.s3().generate_presigned_url("get_object", {"Bucket": "private", "Key": "object"})
    target = presigned.partition(f":{server.port}")[2]
    host = {"Host": f"127.0.0.1:{server.port}"}

    def authorization(value):
        return lambda headers: headers.update({"Authorization": value})

    attempts = [
        lambda: raw.request("GET", "/private/object", alter=authorization("AWS admin-key:signature")),
        lambda: raw.request("PUT", "/private/object", alter=authorization("AWS4-HMAC-SHA256 Credential=admin-key/x")),
        lambda: raw.request(
            "GET", "/private/object", alter=lambda headers: headers.update({"x-amz-date": "2026111 T120000Z"})
        ),
        lambda: raw.request("GET", "/private/object", headers={"x-amz-security-token": "token"}),
        lambda: raw.send("GET", target.replace("X-Amz-Expires=3600", "X-Amz-Expires=9999999"), host),
        lambda: raw.send("GET", target.replace("X-Amz-Date=", "X-Amz-Datum="), host),
    ]
    for attempt in attempts:
        answer = attempt()
        assert answer.status in (400, 403), answer
        line = line_of(server, answer.headers["x-amz-request-id"])
        assert (line["event"], line["status"], line["code"]) == ("s3.AuthFailure", answer.status, answer.code), line
        assert line["path"].startswith("/private"), line


def test_a_bad_request_with_a_good_signature_is_no_authentication_failure(server):
    server.s3().create_bucket(Bucket="private")
    for answer in (
        server.raw().request("GET", "/private/object", headers={"Range": "bytes=0-1"}),
        server.raw().request("GET", "/private", query={"max-keys": "-1"}),
        server.raw().request("GET", "/Not-A-Bucket/object"),
    ):
        assert answer.status in (400, 404), answer
    last = server.s3().put_object(Bucket="private", Key="object", Body=b"x")
    line_of(server, id_of(last))
    assert "s3.AuthFailure" not in {line["event"] for line in lines_of(server)}


DECEPTIVE = "a\u202eb\x1b[2J\x7f\u2066c\x9bd\u2028e"


def test_control_and_bidirectional_characters_are_escaped_in_the_audit_file(server):
    s3 = server.s3()
    s3.create_bucket(Bucket="audited")
    line = line_of(server, id_of(s3.put_object(Bucket="audited", Key=DECEPTIVE, Body=b"x")))
    assert line["key"] == DECEPTIVE
    text = (server.folder / AUDIT_FILE).read_text()
    assert r"a\u202eb\u001b[2J\u007f\u2066c\u009bd\u2028e" in text
    assert not [character for character in text if deceptive(character)]


def deceptive(character):
    """True if a terminal interprets this character instead of showing it."""
    return character != "\n" and (unicodedata.category(character) in ("Cc", "Zl", "Zp") or character in "\u202e\u2066")


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_control_and_bidirectional_characters_are_escaped_in_the_log(own_server, log_format):
    server = own_server()
    server.spawn(arguments=("--log", "debug", "--log-format", log_format))
    eventually(server.is_ready, 30)
    s3 = server.s3()
    s3.create_bucket(Bucket="audited")
    s3.put_object(Bucket="audited", Key=DECEPTIVE, Body=b"x")
    s3.delete_object(Bucket="audited", Key=DECEPTIVE + "\nforged line")
    # The name of an unknown setting is logged.
    server.config[DECEPTIVE + "\nforged line"] = 1
    server.config_path.write_text(yaml.safe_dump(server.config))
    server.process.send_signal(signal.SIGHUP)
    eventually(lambda: "is not a known setting" in server.log(), 10)
    assert server.stop() == 0
    text = server.log_path.read_bytes().decode("utf-8")
    assert not [character for character in text if deceptive(character)]
    assert "\nforged line" not in text
