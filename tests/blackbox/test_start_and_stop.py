"""Start and stop of the server: the catalog lock, unreadable catalogs, graceful shutdown and signals."""

import re
import shutil
import signal
import sqlite3
import subprocess
from pathlib import Path

import pytest

import tracing
from polling import eventually
from s3_checks import body_of, read
from server_process import binary
from test_cli import COMMAND_SECONDS


class TestCatalogFile:
    def refused(self, server):
        """Starts the server, which must exit by itself, and returns its output."""
        start = len(server.log())
        process = server.spawn().process
        assert process.wait(COMMAND_SECONDS) != 0
        return server.log()[start:].lower()

    def test_a_second_server_on_one_catalog_is_refused(self, own_server):
        first = own_server("first").start()
        second = own_server("second")
        second.config["database"] = first.config["database"]
        said = self.refused(second)
        assert any(word in said for word in ("in use", "another", "already", "locked")), said
        assert first.is_ready()

    def test_catalog_lock_holds_for_every_path_of_the_file(self, own_server):
        first = own_server("first").start()
        for kind in ("symbolic", "hard"):
            second = own_server(kind)
            link = second.folder / "link.db"
            link.symlink_to(first.catalog) if kind == "symbolic" else link.hardlink_to(first.catalog)
            second.config["database"] = {"url": f"sqlite:{link}"}
            said = self.refused(second)
            assert "another" in said, said

    def test_a_newer_catalog_is_refused_and_not_changed(self, own_server):
        server = own_server().start()
        assert server.stop() == 0
        connection = sqlite3.connect(server.catalog)
        connection.execute("PRAGMA user_version = 999999")
        connection.commit()
        connection.close()
        before = server.catalog.read_bytes()
        said = self.refused(server)
        assert "newer" in said, said
        assert server.catalog.read_bytes() == before

    def test_a_corrupt_catalog_is_refused_and_not_changed(self, own_server):
        server = own_server().start()
        assert server.stop() == 0
        for damage in (b"this is no database" * 300, server.catalog.read_bytes()[:100] + body_of(20000)):
            server.catalog.write_bytes(damage)
            said = self.refused(server)
            assert any(word in said for word in ("corrupt", "not a database", "malformed", "damaged")), said
            assert server.catalog.read_bytes() == damage


def test_a_graceful_shutdown_finishes_the_upload_in_flight(own_server):
    server = own_server().start()
    server.s3().create_bucket(Bucket="drain")
    raw = server.raw()
    body = body_of(300_000)
    target, headers, _ = raw.prepare("PUT", "/drain/object", headers={"Content-Length": str(len(body))})
    connection = raw.connect()
    raw.start(connection, "PUT", target, headers)
    connection.send(body[:100_000])
    eventually(lambda: server.rows("SELECT 1 FROM pending_objects"), 10, message="the upload has no intent")
    server.process.send_signal(signal.SIGTERM)
    eventually(lambda: not accepts(server), 10, message="a stopping server accepts no new requests")
    assert server.process.poll() is None, "the upload is still in flight"
    connection.send(body[100_000:])
    assert raw.finish(connection).status == 200
    assert server.process.wait(COMMAND_SECONDS) == 0
    server.start()
    assert read(server.s3(), "drain", "object") == body


def accepts(server):
    """True if the server accepts new requests."""
    try:
        raw = server.raw()
        return raw.request("GET", "/").status == 200
    except OSError:
        return False


def test_sigterm_during_startup_stops_the_server(own_server):
    """From its first output on, the process stops in order on SIGTERM."""
    for start in range(5):
        server = own_server(f"server-{start}").spawn()
        eventually(server.log, COMMAND_SECONDS, message="nothing was printed")
        assert server.stop() == 0, server.log()


def handles_sighup(process):
    caught = re.search(r"SigCgt:\s+(\w+)", Path(f"/proc/{process.pid}/status").read_text()).group(1)
    return int(caught, 16) & 1 << signal.SIGHUP - 1


def test_sighup_during_startup_is_applied_when_ready(own_server):
    for start in range(5):
        server = own_server(f"server-{start}").spawn()
        eventually(lambda: handles_sighup(server.process), COMMAND_SECONDS, 0.001, message="SIGHUP is not handled")
        server.process.send_signal(signal.SIGHUP)
        eventually(server.is_ready, COMMAND_SECONDS, message="it did not start")
        eventually(lambda: "config reloaded" in server.log(), COMMAND_SECONDS, message="not reloaded")
        assert server.stop() == 0, server.log()


def test_signal_handlers_are_installed_before_any_file_is_read(own_server, tmp_path):
    """Only the loading of the program itself comes before the handlers."""
    if not shutil.which("strace"):
        pytest.fail("strace is not installed: run scripts/setup.sh")
    server, output = own_server(), tmp_path / "trace"
    server.start(wrapper=tracing.command(output, "rt_sigaction,openat"))
    assert server.stop() == 0
    trace = tracing.Trace(output.read_text(errors="replace"))
    opened = trace.named(re.escape(server.config_path.name), "openat")[0].began
    for name in ("SIGHUP", "SIGTERM", "SIGINT"):
        taken = trace.named(rf"^\({name}, {{sa_handler=0x", "rt_sigaction")
        assert taken and taken[0].ended < opened, name


def test_sighup_is_handled_before_the_first_thread_starts(own_server, tmp_path):
    """`serve` does this first, so SIGHUP never ends the process during start-up."""
    if not shutil.which("strace"):
        pytest.fail("strace is not installed: run scripts/setup.sh")
    server, output = own_server(), tmp_path / "trace"
    server.start(wrapper=tracing.command(output, "rt_sigaction,clone,clone3,openat"))
    assert server.stop() == 0
    trace = tracing.Trace(output.read_text(errors="replace"))
    handled = trace.named(r"^\(SIGHUP, {sa_handler=0x", "rt_sigaction")[0].ended
    threads = trace.named("", "clone", "clone3")
    assert threads and handled < threads[0].began, "a thread was started first"


def test_sighup_ends_commands_other_than_serve(own_server, tmp_path):
    """They have nothing to reload, so a closed terminal ends them."""
    output = tmp_path / "trace"
    wrapper = tracing.command(output, "rt_sigaction")
    subprocess.run([*wrapper, binary(), "key", "new"], check=True, capture_output=True, timeout=COMMAND_SECONDS)
    assert not tracing.Trace(output.read_text(errors="replace")).named(r"^\(SIGHUP, {sa_handler=0x", "rt_sigaction")
