"""Health of backends (ok, away, frozen, full): it is probed, logged, and shown in the status and in answers."""

import json
import os
import re
import subprocess

import pytest

from polling import eventually
from ports import free_ports
from s3_checks import body_of, keys_of, read
from server_process import binary
from test_disk_faults import small_disk

pytestmark = pytest.mark.timeout(120)

QUICK_PROBES = {"identity": {"probe_interval": "100ms"}}


def status_of(server, name):
    status, body = server.admin("GET", "/admin/api/status")
    assert status == 200, body
    return next(backend for backend in json.loads(body)["backends"] if backend["name"] == name)


def health_of(server, name):
    return status_of(server, name)["health"]


def ready(server):
    status, body = server.admin_get("/health/ready")
    return status, body.decode().splitlines()


def message_of(answer):
    return re.search(rb"<Message>(.*?)</Message>", answer.body).group(1).decode()


def two_disks(own_server, settings=None, first=None):
    server = own_server(settings=settings or QUICK_PROBES, backend=first)
    server.config["backends"].append({"name": "second", "kind": "fs", "root": str(server.folder / "second")})
    return server


def located_on(server):
    return {row[0] for row in server.rows("SELECT backend_name FROM object_locations")}


def test_full_disk_sends_writes_to_the_next_backend(tmp_path, own_server):
    with small_disk(tmp_path / "small") as folder:
        server = two_disks(own_server, first={"name": "disk", "kind": "fs", "root": str(folder / "root")}).start()
        try:
            server.s3().create_bucket(Bucket="bucket")
            server.s3().put_object(Bucket="bucket", Key="kept", Body=body_of(100_000))
            raw = server.raw()
            # 16 MiB do not fit on 8 MiB, and the disk reports that only after part of the body was read.
            answer = raw.request("PUT", "/bucket/large", body=body_of(16 << 20))
            assert (answer.status, answer.code) == (503, "ServiceUnavailable")
            assert message_of(answer) == "backend full, repeat the request"
            assert (health_of(server, "disk"), status_of(server, "disk")["full_from"]) == ("full", 16 << 20)
            assert raw.request("PUT", "/bucket/large", body=body_of(16 << 20)).status == 200
            assert raw.request("PUT", "/bucket/small", body=body_of(1000)).status == 200
            assert located_on(server) == {"disk", "second"}
            with open(folder / "ballast", "wb") as ballast, pytest.raises(OSError):
                while True:
                    ballast.write(bytes(1 << 16))
                    ballast.flush()
            # A small body is buffered until it is written, so no client sees that the disk is full.
            assert raw.request("PUT", "/bucket/moved", body=body_of(100_000)).status == 200
            for key, size in (("large", 16 << 20), ("small", 1000), ("moved", 100_000), ("kept", 100_000)):
                assert read(server.s3(), "bucket", key) == body_of(size)
        finally:
            server.kill()


def test_unreachable_backend_is_away_until_it_answers(own_server):
    server = two_disks(own_server).start()
    s3 = server.s3()
    s3.create_bucket(Bucket="bucket")
    s3.put_object(Bucket="bucket", Key="kept", Body=b"kept")
    assert (health_of(server, "disk"), ready(server)) == ("ok", (200, ["ok"]))
    metrics = server.metrics()
    assert (metrics['s3o_backend_up{backend="disk"}'], metrics['s3o_backend_frozen{backend="disk"}']) == (1, 0)
    assert any(name.startswith('s3o_build_info{version="') and value == 1 for name, value in metrics.items())
    away = server.root.rename(server.root.with_suffix(".away"))
    eventually(lambda: health_of(server, "disk") == "away", 20, 0.1, "the probes did not detect the missing disk")
    shown = status_of(server, "disk")
    assert shown["since"].startswith("20") and shown["error"]
    assert server.metrics()['s3o_backend_up{backend="disk"}'] == 0
    assert ready(server) == (200, ["ok", "backend disk: away"])
    answer = server.raw().request("GET", "/bucket/kept")
    assert (answer.status, message_of(answer)) == (503, "backend unreachable")
    away.rename(server.root)
    eventually(lambda: health_of(server, "disk") == "ok", 20, 0.1, "the probes did not detect that the backend is back")
    assert (ready(server), server.metrics()['s3o_backend_up{backend="disk"}']) == ((200, ["ok"]), 1)
    assert read(s3, "bucket", "kept") == b"kept"
    log = server.log()
    assert "backend health changed" in log and "backend health is ok" in log


def test_not_ready_when_no_backend_was_readable_for_half_a_minute(own_server):
    server = own_server(settings=QUICK_PROBES).start()
    away = server.root.rename(server.root.with_suffix(".away"))
    eventually(lambda: ready(server) == (200, ["ok", "backend disk: away"]), 20, 0.1)
    eventually(lambda: ready(server) == (503, ["not ready", "backend disk: away"]), 60, 0.5)
    away.rename(server.root)
    eventually(lambda: ready(server) == (200, ["ok"]), 20, 0.1)


def test_probes_can_be_disabled(own_server):
    server = own_server(settings={"identity": {"probe_interval": "0s"}}).start()
    before = {name: value for name, value in server.metrics().items() if 'operation="read_own"' in name}
    server.root.rename(server.root.with_suffix(".away"))
    assert server.raw().request("GET", "/").status == 200
    assert health_of(server, "disk") == "ok"
    assert {name: value for name, value in server.metrics().items() if 'operation="read_own"' in name} == before


def test_backend_of_another_cluster_is_frozen_by_a_probe(own_server):
    server = own_server(settings=QUICK_PROBES).start()
    server.s3().create_bucket(Bucket="bucket")
    mark = server.root / ".s3o" / "identity.json"
    found = json.loads(mark.read_text())
    (server.root / "other").write_text(json.dumps({**found, "cluster": "another"}))
    os.replace(server.root / "other", mark)
    eventually(lambda: health_of(server, "disk") == "frozen", 20, 0.1)
    assert server.metrics()['s3o_backend_frozen{backend="disk"}'] == 1
    assert ready(server) == (200, ["ok", "backend disk: frozen"])
    answer = server.raw().request("PUT", "/bucket/new", body=b"new")
    assert (answer.status, message_of(answer)) == (503, "backend frozen")


def test_backend_that_holds_objects_and_is_not_configured_is_named(own_server):
    server = two_disks(own_server).start()
    server.s3().create_bucket(Bucket="bucket")
    server.s3().put_object(Bucket="bucket", Key="left", Body=body_of(1000))
    server.stop()
    del server.config["backends"][0]
    server.start()
    answer = server.raw().request("GET", "/bucket/left")
    assert (answer.status, message_of(answer)) == (503, "backend not configured")
    warning = "backend disk holds 1000 bytes of objects and is not configured: configure it again to read them"
    assert json.loads(server.admin("GET", "/admin/api/status")[1])["warnings"] == [warning]
    arguments = ["--admin", f"http://127.0.0.1:{server.admin_port}", "--token", server.config["admin"]["token"]]
    shown = subprocess.run([binary(), "status", *arguments], capture_output=True, text=True, timeout=30)
    assert f"warning: {warning}" in shown.stdout, shown
    assert re.search(r"WARN.*backend holds objects and is not configured.*backend=disk", server.log())
    assert keys_of(server.s3(), "bucket") == ["left"]


def test_message_about_postgres_names_host_database_and_reason(own_server):
    (port,) = free_ports(1)
    server = own_server()
    server.config["database"] = {"url": f"postgres://someone:secret@127.0.0.1:{port}/missing"}
    server.spawn()
    server.process.wait(60)
    assert server.process.returncode == 1
    log = server.log()
    assert f"PostgreSQL at 127.0.0.1:{port}, database missing: " in log and "Connection refused" in log, log
    assert "secret" not in log
