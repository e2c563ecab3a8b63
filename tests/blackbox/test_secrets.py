"""No error message, audit line, log line or later start shows a secret."""

import json
import os
import re
import signal
import subprocess

import pytest

import signing
from admin_client import admin_request
from polling import eventually
from ports import free_ports
from s3_checks import body_of
from server_process import ADMIN_TOKEN, KEYS, binary, s3_client
from signing import Credentials

SECONDS = 30
SECRET = "Hunter2-do-not-show"
# Syntax errors on the line of a secret or next to it; each with the line that the parser reports.
BROKEN = {
    "unclosed quote": (f"admin:\n  token: '{SECRET}\n", 3),
    "unclosed bracket": (f"access_keys: [{{access_key_id: a, secret_access_key: {SECRET}]\n", 1),
    "bad indentation": (f"admin:\n  token: {SECRET}\n token: x\n", 3),
    "reserved sign": (f"admin: {{token: @{SECRET}}}\n", 1),
    "bad escape": (f'admin:\n  token: "{SECRET}\\q"\n', 2),
    "unknown alias": (f"admin: {{token: *{SECRET}}}\n", 1),
    "key twice": (f"admin: {{{SECRET}: 1, {SECRET}: 2}}\n", 1),
    "tab": (f"admin:\n\ttoken: {SECRET}\n", 2),
    "line after": (f"database: {{url: 'postgres://u:{SECRET}@h/d'}}\nadmin: [\n", None),
    "forgotten space": (f"access_keys: [{{access_key_id: a, secret_access_key:{SECRET}}}]\n", None),
    "variable in a secret": (f"admin: {{token: 'x${{{SECRET}}}'}}\n", None),
    "endpoint": (f"backends: [{{name: b, kind: s3, endpoint: 'u:{SECRET}@host'}}]\n", None),
}


def validate(folder, text):
    (folder / "bad.yaml").write_text(text)
    return subprocess.run(
        [binary(), "validate", "--config", "bad.yaml"], cwd=folder, capture_output=True, text=True, timeout=SECONDS
    )


@pytest.mark.usefixtures("s3o_only")
@pytest.mark.parametrize("kind", BROKEN)
def test_validate_names_file_line_and_column_and_quotes_nothing(tmp_path, kind):
    text, line = BROKEN[kind]
    done = validate(tmp_path, text)
    output = done.stdout + done.stderr
    assert done.returncode == 2, output
    assert SECRET not in output and "Hunter2" not in output, output
    if line:
        assert re.search(rf"bad\.yaml, line {line}, column \d+: not valid YAML", output), output


def test_a_refused_reload_shows_no_secret_in_log_and_audit(own_server):
    server = own_server().start()
    audit = server.folder / "s3o-data" / "audit.jsonl"

    def refusals():
        lines = map(json.loads, audit.read_text().splitlines())
        return [line for line in lines if line["event"] == "config.refused"]

    for number, (text, _) in enumerate(BROKEN.values(), 1):
        server.config_path.write_text(text)
        os.kill(server.process.pid, signal.SIGHUP)
        eventually(lambda number=number: len(refusals()) == number, SECONDS, message="the reload was not refused")
    assert re.search(r"s3o\.yaml, line 3, column \d+: not valid YAML", refusals()[0]["error"]), refusals()[0]
    for shown in (server.log(), audit.read_text()):
        assert "Hunter2" not in shown


class TestGeneratedCredentials:
    """`s3o serve` in an empty folder, twice."""

    def start(self, folder):
        port, admin = free_ports(2)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("S3O_", "AWS_"))}
        with open(folder / "output", "wb") as output:
            process = subprocess.Popen(
                [binary(), "serve", "--listen", f"127.0.0.1:{port}", "--admin-listen", f"127.0.0.1:{admin}"],
                cwd=folder,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            eventually(lambda: "s3o serves S3" in (folder / "output").read_text(), SECONDS, message="it did not start")
            yield port, lambda: (folder / "output").read_text()
        finally:
            process.terminate()
            process.wait(SECONDS)

    @pytest.mark.usefixtures("s3o_only")
    def test_secrets_are_printed_once_with_an_export_on_each_line(self, tmp_path):
        for port, output in self.start(tmp_path):
            eventually(
                lambda: "credentials.json" in output(), SECONDS, message="the path of the credentials is not printed"
            )
            exports = dict(re.findall(r"(?m)^\s*export (\w+)=(\S+)$", output()))
            assert set(exports) == {
                "AWS_ACCESS_KEY_ID",
                "AWS_SECRET_ACCESS_KEY",
                "AWS_ENDPOINT_URL",
                "AWS_REGION",
                "S3O_ADMIN_URL",
                "S3O_ADMIN_TOKEN",
            }
            assert exports["AWS_ENDPOINT_URL"] == f"http://127.0.0.1:{port}"
        credentials = Credentials(exports["AWS_ACCESS_KEY_ID"], exports["AWS_SECRET_ACCESS_KEY"])
        for port, output in self.start(tmp_path):
            eventually(
                lambda: "credentials.json" in output(), SECONDS, message="the path of the credentials is not printed"
            )
            for name in ("AWS_SECRET_ACCESS_KEY", "S3O_ADMIN_TOKEN"):
                assert exports[name] not in output(), output()
            assert s3_client(f"http://127.0.0.1:{port}", credentials).list_buckets()["Buckets"] == []


def signed_requests(server):
    """Sends requests with valid and invalid signatures of every kind; returns the valid signature of each."""
    raw, right = server.raw(), []
    body = body_of(70_000)

    def note(headers):
        right.append(headers["Authorization"].rpartition("=")[2])

    def break_signature(headers):
        note(headers)
        headers["Authorization"] = headers["Authorization"][:-4] + "0000"

    assert raw.request("PUT", "/bucket/right", body=body, alter=note).status == 200
    assert raw.request("PUT", "/bucket/wrong", body=body, alter=break_signature).status == 403
    mode = signing.SIGNED_CHUNKS
    headers = {"Content-Encoding": "aws-chunked", "x-amz-decoded-content-length": str(len(body))}
    for spoilt, status in ((False, 200), (True, 403)):
        target, signed, signature = raw.prepare("PUT", "/bucket/chunks", None, dict(headers), mode)
        note(signed)
        framed = signing.chunked(body, signature)
        chunks = re.findall(rb"chunk-signature=([0-9a-f]{64})", framed)
        right.extend(chunk.decode() for chunk in chunks)
        if spoilt:
            framed = framed.replace(chunks[-1], b"0" * 64)
        signed["Content-Length"] = str(len(framed))
        assert raw.send("PUT", target, signed, [framed]).status == status
    url = server.s3().generate_presigned_url("get_object", Params={"Bucket": "bucket", "Key": "right"})
    path, _, query = url.removeprefix(server.endpoint).partition("?")
    found = re.search(r"X-Amz-Signature=([0-9a-f]{64})", query).group(1)
    right.append(found)
    assert raw.send("GET", f"{path}?{query}", {"Host": f"127.0.0.1:{server.port}"}).status == 200
    assert (
        raw.send("GET", f"{path}?{query.replace(found, '0' * 64)}", {"Host": f"127.0.0.1:{server.port}"}).status == 403
    )
    return right


@pytest.mark.parametrize("level", ["debug", "trace", "s3s=debug", "s3s::ops::signature=trace", "[check]=trace"])
def test_no_log_level_shows_a_valid_signature(own_server, level):
    server = own_server()
    server.spawn(arguments=["--log", level, "--log-format", "json" if level == "trace" else "text"])
    eventually(server.is_ready, SECONDS, message="it did not start")
    server.s3().create_bucket(Bucket="bucket")
    right = signed_requests(server)
    status, answer = admin_request(server, "PUT", "/log-level", body="s3s=trace")
    assert status == 400, answer
    right += signed_requests(server)
    assert len(set(right)) >= 6
    log = server.log()
    shown = [signature for signature in right if signature in log]
    assert not shown, f"{len(shown)} of {len(right)} signatures are in the log"
    for secret in (*(pair.secret_key for pair in KEYS.values()), ADMIN_TOKEN):
        assert secret not in log
