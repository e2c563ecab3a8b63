"""The admin API and its commands: token, status, workers, audit lines, log level."""

import http.client
import json
import re
from datetime import datetime
from pathlib import Path

import pytest

from admin_client import admin_request, command
from polling import eventually
from server_process import ADMIN_TOKEN

WORKERS = {
    "cleanup",
    "drain",
    "expiry",
    "identity",
    "lifecycle",
    "over_replication",
    "pending_reaper",
    "quota_audit",
    "rebalancer",
    "reconciler",
    "replicator",
    "stale_multipart",
    "usage_flush",
    "watchdog",
}
ROUTER = Path(__file__).parents[2] / "crates/server/src/admin/mod.rs"


@pytest.fixture
def server(own_server):
    return own_server().start()


REQUESTS = [
    ("GET", "/status"),
    ("GET", "/workers"),
    ("POST", "/workers/cleanup/run"),
    ("POST", "/workers/cleanup/pause"),
    ("POST", "/workers/cleanup/resume"),
    ("POST", "/backends/disk/accept"),
    ("POST", "/backends/disk/drain"),
    ("GET", "/backends/disk/drain"),
    ("DELETE", "/backends/disk/drain"),
    ("DELETE", "/backends/disk"),
    ("POST", "/clock/accept"),
    ("POST", "/backends/disk/dismiss?host=unknown"),
    ("GET", "/cleanup-queue"),
    ("GET", "/dlq"),
    ("POST", "/dlq/retry"),
    ("POST", "/dlq/discard?backend=disk"),
    ("POST", "/dlq/1/retry"),
    ("POST", "/dlq/1/discard"),
    ("GET", "/findings"),
    ("GET", "/lifecycle/preview"),
    ("POST", "/catalog/backup?path=no-absolute-path"),
    ("POST", "/catalog/accept"),
    ("GET", "/verify"),
    ("POST", "/verify"),
    ("GET", "/audit"),
    ("GET", "/log-level"),
    ("PUT", "/log-level"),
]


def routes():
    """Every method and path below /admin/api that the server routes."""
    api = ROUTER.read_text().split("fn router(")[1].split(".fallback(")[0]
    for path, methods in re.findall(r'\.route\(\s*"([^"]+)",\s*(.+?)\)\n', api, re.DOTALL):
        for method in re.findall(r"\b(get|post|put|delete)\(", methods):
            yield method.upper(), path


def test_every_admin_route_is_covered_by_the_tests():
    covered = {(method, path.partition("?")[0]) for method, path in REQUESTS}
    found = set(routes())
    assert len(found) >= 16
    for method, path in found:
        pattern = re.compile(re.sub(r"\{[^}]+\}", "[^/]+", path))
        assert any(method == verb and pattern.fullmatch(at) for verb, at in covered), f"no test covers {method} {path}"


class TestApi:
    def test_every_route_needs_the_token(self, server):
        for method, path in REQUESTS:
            for token in (None, "wrong"):
                status, body = admin_request(server, method, path, token=token)
                assert (status, body["error"]["code"]) == (401, "unauthorized"), path
        status, body = admin_request(server, "GET", "/audit?event=admin.*")
        assert {line["event"] for line in body["items"]} == {"admin.AuthFailure"}
        assert len(body["items"]) == 2 * len(REQUESTS)

    def test_unknown_paths_and_workers_are_404(self, server):
        for verb in ("run", "pause", "resume"):
            status, body = admin_request(server, "POST", f"/workers/unknown/{verb}")
            assert (status, body["error"]["code"]) == (404, "no_such_worker")
        status, body = admin_request(server, "POST", "/backends/nowhere/accept")
        assert (status, body["error"]["code"]) == (404, "no_such_backend")
        assert admin_request(server, "GET", "/nothing")[0] == 404
        assert admin_request(server, "DELETE", "/status")[0] == 405

    def test_status(self, server):
        s3 = server.s3()
        s3.create_bucket(Bucket="shown")
        s3.put_object(Bucket="shown", Key="object", Body=b"12345")
        s3.create_multipart_upload(Bucket="shown", Key="open")
        status, body = admin_request(server, "GET", "/status")
        assert status == 200
        (disk,) = body["backends"]
        assert (disk["name"], disk["used"], disk["limit"], disk["orphan"]) == ("disk", 5, None, 0)
        assert (disk["health"], disk["frozen"], disk["draining"]) == ("ok", None, False)
        assert "reserved" in disk and "objects" in disk
        assert disk["usage"]["ingress_bytes"] == {"used": 5, "limit": None}
        assert [bucket["name"] for bucket in body["buckets"]] == ["shown"]
        assert body["queues"]["uploads"] == 1
        assert {worker["name"] for worker in body["workers"]} == WORKERS

    @pytest.mark.parametrize("worker", sorted(WORKERS))
    def test_every_worker_can_be_run_manually(self, server, worker):
        report = server.run_worker(worker)
        assert (report["worker"], report["outcome"], report["error"]) == (worker, "ok", None)
        started, finished = (datetime.fromisoformat(report[name]) for name in ("started_at", "finished_at"))
        assert report["run_id"] and started <= finished

    def test_workers_are_listed_in_pages(self, server):
        status, body = admin_request(server, "GET", "/workers")
        names = [worker["name"] for worker in body["items"]]
        assert status == 200 and body["next"] is None
        assert names == sorted(WORKERS)
        paged, after = [], ""
        while after is not None:
            page = admin_request(server, "GET", f"/workers?limit=1&after={after}")[1]
            paged += [worker["name"] for worker in page["items"]]
            after = page["next"]
        assert paged == names
        assert admin_request(server, "GET", "/workers?limit=many")[0] == 400

    def test_a_worker_is_paused_and_resumed(self, server):
        def paused():
            items = admin_request(server, "GET", "/workers")[1]["items"]
            return {worker["name"] for worker in items if worker["paused"]}

        assert paused() == set()
        assert admin_request(server, "POST", "/workers/cleanup/pause") == (200, {"worker": "cleanup", "paused": True})
        assert paused() == {"cleanup"}
        assert server.run_worker("cleanup")["outcome"] == "ok", "a manual run works while the worker is paused"
        server.stop()
        server.start()
        assert paused() == {"cleanup"}, "a pause survives a restart"
        assert admin_request(server, "POST", "/workers/cleanup/resume") == (200, {"worker": "cleanup", "paused": False})
        assert paused() == set()
        events = [line["event"] for line in admin_request(server, "GET", "/audit?event=admin.*")[1]["items"]]
        assert events == ["admin.workers.pause", "admin.workers.run", "admin.workers.resume"]

    def test_audit_lines_are_filtered_by_event_and_time(self, server):
        s3 = server.s3()
        s3.create_bucket(Bucket="trail")
        for number in range(5):
            s3.put_object(Bucket="trail", Key=f"{number}", Body=b"x")
        status, body = admin_request(server, "GET", "/audit?event=s3.PutObject&limit=3")
        assert status == 200
        assert [line["key"] for line in body["items"]] == ["2", "3", "4"], "the newest lines, newest last"
        events = [line["event"] for line in admin_request(server, "GET", "/audit?event=s3.*")[1]["items"]]
        assert events == ["s3.CreateBucket", *["s3.PutObject"] * 5]
        third = admin_request(server, "GET", "/audit?event=s3.PutObject")[1]["items"][2]["time"]
        since = admin_request(server, "GET", f"/audit?event=s3.PutObject&since={third}")[1]["items"]
        assert [line["key"] for line in since][-1] == "4" and all(line["time"] >= third for line in since)
        assert admin_request(server, "GET", "/audit?since=2999-01-01T00:00:00Z")[1]["items"] == []
        assert admin_request(server, "GET", "/audit?since=yesterday")[0] == 400

    def test_log_level_changes_at_runtime(self, server):
        assert admin_request(server, "GET", "/log-level") == (200, {"level": "info"})
        assert admin_request(server, "PUT", "/log-level", '{"level": "debug"}') == (200, {"level": "debug"})
        answer = server.s3().list_buckets()
        request_id = answer["ResponseMetadata"]["RequestId"]
        eventually(lambda: request_id in server.log(), 5, message="the request is not in the log")
        assert admin_request(server, "PUT", "/log-level", "warn") == (200, {"level": "warn"})
        quiet = server.s3().list_buckets()["ResponseMetadata"]["RequestId"]
        assert quiet not in server.log()
        for level in ("loud", "{}", "s3o_engine=loud", ""):
            status, body = admin_request(server, "PUT", "/log-level", level or " ")
            assert (status, body["error"]["code"]) == (400, "invalid_level"), level
        assert admin_request(server, "GET", "/log-level") == (200, {"level": "warn"})

    def test_log_lines_can_be_json(self, own_server, monkeypatch):
        monkeypatch.setenv("S3O_LOG_FORMAT", "json")
        monkeypatch.setenv("S3O_LOG", "debug")
        server = own_server("json").start()
        request_id = server.s3().list_buckets()["ResponseMetadata"]["RequestId"]

        def line():
            found = [json.loads(text) for text in server.log().splitlines() if text.startswith("{")]
            return [entry for entry in found if entry.get("request_id") == request_id]

        (entry,) = eventually(line, 5)
        assert (entry["message"], entry["operation"], entry["status"]) == ("s3 request", "ListBuckets", 200)


class TestCommands:
    def test_status(self, server):
        server.s3().create_bucket(Bucket="shown")
        shown = command(server, "status")
        assert shown.returncode == 0, shown.stderr
        for word in ("disk", "shown", "cleanup", "waiting:"):
            assert word in shown.stdout, shown.stdout
        as_json = command(server, "status", "--json")
        assert json.loads(as_json.stdout)["backends"][0]["name"] == "disk"

    def test_workers(self, server):
        listed = command(server, "workers")
        assert listed.returncode == 0 and all(name in listed.stdout for name in WORKERS), listed
        ran = command(server, "workers", "run", "cleanup")
        assert ran.returncode == 0 and "cleanup: ok" in ran.stdout, ran
        assert json.loads(command(server, "workers", "run", "cleanup", "--json").stdout)["outcome"] == "ok"
        assert command(server, "workers", "pause", "cleanup").returncode == 0
        items = json.loads(command(server, "workers", "--json").stdout)["items"]
        assert [worker["name"] for worker in items if worker["paused"]] == ["cleanup"]
        assert command(server, "workers", "resume", "cleanup").returncode == 0

    def test_backend_accept(self, server):
        shown = command(server, "backend", "accept", "disk")
        assert shown.returncode == 1 and "nothing was changed" in shown.stderr, shown
        status, view = admin_request(server, "POST", "/backends/disk/accept")
        assert status == 409 and {"expected", "found", "hash", "instances", "queued_deletes", "newest_missing"} <= set(
            view
        )
        assert view["hash"] in shown.stdout and view["found"]["mark"] == view["expected"]["mark"]
        assert admin_request(server, "POST", "/backends/disk/accept?found=another")[0] == 409
        accepted = command(server, "backend", "accept", "disk", "--found", view["hash"])
        assert (accepted.returncode, accepted.stdout) == (
            0,
            "disk: accepted; to find objects whose bytes are missing, run: s3o verify --deep\n",
        ), accepted
        events = [line["event"] for line in admin_request(server, "GET", "/audit")[1]["items"]]
        assert events[-2:] == ["backend.accepted", "admin.backends.accept"]

    def test_failed_commands_exit_with_1(self, server):
        for arguments in (("workers", "run", "unknown"), ("backend", "accept", "nowhere")):
            failed = command(server, *arguments)
            assert failed.returncode == 1 and failed.stderr.startswith("s3o: "), failed
        assert command(server, "status", token="wrong").returncode == 1
        assert command(server, "status", url="http://127.0.0.1:1").returncode == 1

    def test_bad_usage_exits_with_2(self, server):
        assert command(server, "status", token=None).returncode == 2
        assert command(server, "status", url="ftp://host").returncode == 2
        assert command(server, "workers", "stop", "cleanup").returncode == 2
        assert command(server, "workers", "run").returncode == 2

    def test_output_does_not_show_the_token(self, server):
        for output in (command(server, "status", "--help"), command(server, "status", token="hidden-token")):
            assert "hidden-token" not in output.stdout + output.stderr


@pytest.mark.parametrize(
    "path",
    ["/workers/cleanup/run?dry_run=true", "/workers/cleanup/run?x=1", "/verify?dep=true", "/dlq/retry?reason=%00"],
)
def test_unknown_query_parameters_are_refused(server, path):
    status, _ = admin_request(server, "POST", path)
    assert status == 400, path


def test_unknown_audit_query_parameters_are_refused(server):
    assert admin_request(server, "GET", "/audit?bogus=1")[0] == 400


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/admin/api/nothing", None, 404),
        ("GET", "/nothing", None, 404),
        ("GET", "/", None, 404),
        ("DELETE", "/admin/api/status", None, 405),
        ("POST", "/metrics", None, 405),
        ("GET", "/admin/api/audit?limit=many", None, 400),
        ("GET", "/admin/api/dlq?limit=-1", None, 400),
        ("GET", "/admin/api/cleanup-queue?limit=%FF", None, 400),
        ("POST", "/admin/api/workers/%FF/run", None, 400),
        ("POST", "/admin/api/dlq/%FF%FE/retry", None, 400),
        ("POST", "/admin/api/backends/%C3/accept", None, 400),
        ("PUT", "/admin/api/log-level", b"\xff\xfe", 400),
        ("PUT", "/admin/api/log-level", b"loud", 400),
        ("PUT", "/admin/api/log-level", b"x" * 3_000_000, 413),
    ],
)
def test_every_error_is_json(server, method, path, body, status):
    connection = http.client.HTTPConnection("127.0.0.1", server.admin_port, timeout=30)
    connection.request(method, path, body=body, headers={"Authorization": f"Bearer {ADMIN_TOKEN}"})
    response = connection.getresponse()
    assert response.status == status
    assert response.headers["content-type"] == "application/json"
    error = json.loads(response.read())["error"]
    assert set(error) == {"code", "message"} and error["code"] and error["message"]
    connection.close()


def test_a_missing_token_is_answered_with_json(server):
    for path in ("/admin/api/status", "/admin/api/nothing", "/admin/api/workers/%FF/run"):
        connection = http.client.HTTPConnection("127.0.0.1", server.admin_port, timeout=30)
        connection.request("GET", path)
        response = connection.getresponse()
        assert (response.status, response.headers["content-type"]) == (401, "application/json"), path
        assert json.loads(response.read())["error"]["code"]
        connection.close()
