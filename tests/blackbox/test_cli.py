"""The command line: a first start needs nothing, faults are named with their path, one catalog has one server."""

import os
import re
import shutil
import signal
import sqlite3
import stat
import subprocess
from pathlib import Path

import pytest
import yaml

import tracing
from facts import body_of, read
from polling import eventually
from ports import free_ports
from running import binary, s3_client
from signing import Credentials

COMMAND_SECONDS = 30


def run(*arguments, folder, environment=None):
    """Runs a command of the binary that is meant to end."""
    return subprocess.run(
        [binary(), *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "S3O_ADMIN_TOKEN": "token", "NO_COLOR": "1", **(environment or {})},
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
    )


def printed(text, *names):
    """The value that stands behind one of these names in what was printed for a human."""
    for name in names:
        found = re.search(rf"(?im){name}\"?\s*[:=]?\s+?\"?([^\s\"']+)|{name}[:=]([^\s\"']+)", text)
        if found:
            return found.group(1) or found.group(2)
    raise AssertionError(f"none of {names} in:\n{text}")


@pytest.fixture
def embedded(tmp_path, request):
    """`s3o serve` without a configuration, in an empty folder; returns what it printed and its process."""
    processes = []
    folder = tmp_path / "empty"
    folder.mkdir()

    def start():
        port, admin = free_ports(2)
        log = folder.parent / f"log-{len(processes)}"
        arguments = ["serve", "--listen", f"127.0.0.1:{port}", "--admin-listen", f"127.0.0.1:{admin}"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("S3O_")}
        with open(log, "wb") as output:
            process = subprocess.Popen(
                [binary(), *arguments], cwd=folder, env={**environment, "NO_COLOR": "1"}, stdout=output, stderr=output
            )
        processes.append(process)
        eventually(
            lambda: process.poll() is not None or f"127.0.0.1:{port}" in log.read_text(), 30, message=log.read_text()
        )
        assert process.poll() is None, log.read_text()
        return process, f"http://127.0.0.1:{port}", log

    yield folder, start
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.wait()


@pytest.mark.usefixtures("s3o_only")
class TestWithoutConfiguration:
    def connect(self, endpoint, log):
        secret = r"(?:aws_)?secret[_ ](?:access[_ ])?key"
        eventually(lambda: re.search(f"(?i){secret}", log.read_text()), 10, message="no key was printed")
        text = log.read_text()
        key = printed(text, r"(?:aws_)?access[_ ]key[_ ]id", r"access[_ ]key")
        credentials = Credentials(key, printed(text, secret))
        return text, credentials, s3_client(endpoint, credentials)

    def test_serve_prints_how_to_connect_and_works_with_the_printed_keys(self, embedded):
        folder, start = embedded
        process, endpoint, log = start()
        text, credentials, s3 = self.connect(endpoint, log)
        assert endpoint in text
        s3.create_bucket(Bucket="first")
        s3.put_object(Bucket="first", Key="hello", Body=b"world")
        assert read(s3, "first", "hello") == b"world"
        kept = [path for path in (folder / "s3o-data").rglob("*") if path.is_file()]
        secret = credentials.secret_key.encode()
        holding = [path for path in kept if path.stat().st_size < 65536 and secret in path.read_bytes()]
        assert holding, "the keys are kept below ./s3o-data"
        for path in holding:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
        assert sorted(os.listdir(folder)) == ["s3o-data"]
        process.terminate()
        assert process.wait(COMMAND_SECONDS) == 0

    def test_a_second_start_keeps_keys_and_objects(self, embedded):
        _, start = embedded
        process, endpoint, log = start()
        _, credentials, s3 = self.connect(endpoint, log)
        s3.create_bucket(Bucket="first")
        s3.put_object(Bucket="first", Key="hello", Body=b"world")
        process.terminate()
        assert process.wait(COMMAND_SECONDS) == 0
        _, endpoint, _ = start()
        again = s3_client(endpoint, credentials)
        assert eventually(lambda: read(again, "first", "hello"), 10) == b"world"


@pytest.mark.usefixtures("s3o_only")
class TestConfiguration:
    def test_init_writes_a_commented_configuration_that_is_valid(self, tmp_path):
        done = run("init", folder=tmp_path)
        assert done.returncode == 0, done
        written = (tmp_path / "s3o.yaml").read_text()
        assert "#" in written and "backends" in yaml.safe_load(written)
        checked = run("validate", "--config", "s3o.yaml", folder=tmp_path)
        assert checked.returncode == 0, checked

    def test_init_does_not_overwrite(self, tmp_path):
        (tmp_path / "s3o.yaml").write_text("# mine\n")
        assert run("init", folder=tmp_path).returncode != 0
        assert (tmp_path / "s3o.yaml").read_text() == "# mine\n"

    def test_validate_names_every_fault_with_its_path(self, tmp_path, own_server):
        config = own_server().config
        config["server"]["listen"] = "not an address"
        config["access_keys"][1]["access"] = "everything"
        config["backends"].append({"name": "disk", "kind": "fs", "root": "/tmp/other"})
        config["cleanup_queue"] = {"interval": "soon"}
        (tmp_path / "bad.yaml").write_text(yaml.safe_dump(config))
        done = run("validate", "--config", "bad.yaml", folder=tmp_path)
        assert done.returncode == 2, done
        output = done.stdout + done.stderr
        for path in ("server.listen", "access_keys[1].access", "backends[1].name", "cleanup_queue.interval"):
            assert path in output, output

    @pytest.mark.parametrize(
        "fault",
        [
            ("unknown field", {"sevrer": {}}, "sevrer"),
            ("unset variable", {"admin": {"token": "${S3O_TEST_NEVER_SET}"}}, "S3O_TEST_NEVER_SET"),
            ("no such kind", {"backends": [{"name": "x", "kind": "tape"}]}, "kind"),
            ("a bucket twice", {"buckets": [{"name": "twice", "dedup": True}, {"name": "twice"}]}, "buckets[1].name"),
            ("no lease", {"write_path": {"pending_intents": {"min_age": "0s"}}}, "min_age"),
            ("no time for uploads", {"cleanup_queue": {"multipart_stale_timeout": "0s"}}, "multipart_stale_timeout"),
        ],
        ids=lambda fault: fault[0],
    )
    def test_a_bad_configuration_is_refused_by_validate_and_serve(self, tmp_path, own_server, fault):
        _, change, named = fault
        (tmp_path / "bad.yaml").write_text(yaml.safe_dump({**own_server().config, **change}))
        for command in ("validate", "serve"):
            done = run(command, "--config", "bad.yaml", folder=tmp_path)
            assert done.returncode == 2, done
            assert named in done.stdout + done.stderr, done

    @pytest.mark.parametrize(
        ("change", "fault"),
        [
            ({"backends": [("a", "disk"), ("b", "disk")]}, "backends[1].root: is the same folder as that of backends[0]"),
            ({"backends": [("a", "disk"), ("b", "disk/deep")]}, "backends[1].root: lies inside the folder of backends[0]"),
            ({"backends": [("a", "disk/deep"), ("b", "disk")]}, "backends[1].root: contains the folder of backends[0]"),
            ({"admin": {"listen": "127.0.0.1:9000"}}, "admin.listen: 127.0.0.1:9000 is used by server.listen as well"),
            ({"cleanup_queue": {"batch_size": 1001}}, "cleanup_queue.batch_size: 1001 is not allowed, use at most 1000"),
            ({"expiry": {"batch_size": 5000}}, "expiry.batch_size: 5000 is not allowed, use at most 1000"),
        ],
    )
    def test_validate_refuses_places_used_twice_and_batches_too_large(self, tmp_path, change, fault):
        config = {"server": {"listen": "127.0.0.1:9000"}, "backends": [("a", "disk")], **change}
        config["backends"] = [{"name": name, "kind": "fs", "root": root} for name, root in config["backends"]]
        (tmp_path / "s3o.yaml").write_text(yaml.safe_dump(config))
        done = run("validate", folder=tmp_path)
        assert done.returncode == 2 and fault in done.stderr, done

    def test_validate_connect_tries_everything_and_changes_nothing(self, tmp_path, own_server):
        server = own_server().start()
        server.stop()
        before = {path: path.stat().st_mtime_ns for path in server.folder.rglob("*")}
        arguments = ("validate", "--connect", "--config", server.config_path)
        done = run(*arguments, folder=tmp_path)
        assert done.returncode == 0, done
        assert "is a SQLite database" in done.stdout and "backend disk: answers, in use by cluster" in done.stdout
        assert {path: path.stat().st_mtime_ns for path in server.folder.rglob("*")} == before
        database, redis, store = free_ports(3)
        server.config["database"] = {"url": f"postgres://u:secret@127.0.0.1:{database}/db"}
        server.config["cache"] = {"enabled": True, "shared": "redis"}
        server.config["redis"] = {"url": f"redis://:secret@127.0.0.1:{redis}"}
        away = {"name": "b2", "kind": "s3", "endpoint": f"http://127.0.0.1:{store}", "bucket": "b"}
        server.config["backends"].append({**away, "access_key_id": "a", "secret_access_key": "secret"})
        server.config_path.write_text(yaml.safe_dump(server.config))
        done = run(*arguments, folder=tmp_path)
        assert done.returncode == 1 and "backend disk: answers" in done.stdout, done
        for part in (f"database: catalog away: PostgreSQL at 127.0.0.1:{database}, database db: ", "redis: ", "backend b2: "):
            assert part in done.stderr, done
        assert "secret" not in done.stderr + done.stdout

    def test_a_file_that_is_none_is_refused_and_not_waited_for(self, tmp_path):
        os.mkfifo(tmp_path / "pipe.yaml")
        for path in ("pipe.yaml", "/dev/zero", "."):
            for command in ("validate", "serve"):
                done = run(command, "--config", path, folder=tmp_path)
                assert done.returncode == 2, done
                assert "not a regular file" in done.stdout + done.stderr, done

    def test_a_missing_file_and_bad_usage_exit_with_2(self, tmp_path):
        assert run("serve", "--config", "missing.yaml", folder=tmp_path).returncode == 2
        assert run("no-such-command", folder=tmp_path).returncode == 2


class TestCatalogFile:
    def refused(self, server):
        """Starts the server, which must end by itself, and returns what it said."""
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

    def test_no_other_name_of_a_catalog_leads_around_its_lock(self, own_server):
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
    eventually(lambda: not accepts(server), 10, message="a server that stops takes no new work")
    assert server.process.poll() is None, "the upload is still in flight"
    connection.send(body[100_000:])
    assert raw.finish(connection).status == 200
    assert server.process.wait(COMMAND_SECONDS) == 0
    server.start()
    assert read(server.s3(), "drain", "object") == body


def accepts(server):
    """Whether the server still takes new requests."""
    try:
        raw = server.raw()
        return raw.request("GET", "/").status == 200
    except OSError:
        return False


def test_a_stop_while_it_starts_is_a_stop(own_server):
    """From the first word it prints, the process ends in order when it is asked to."""
    for start in range(5):
        server = own_server(f"server-{start}").spawn()
        eventually(server.log, COMMAND_SECONDS, message="nothing was printed")
        assert server.stop() == 0, server.log()


def hears_hang_ups(process):
    caught = re.search(r"SigCgt:\s+(\w+)", Path(f"/proc/{process.pid}/status").read_text()).group(1)
    return int(caught, 16) & 1 << signal.SIGHUP - 1


def test_a_hang_up_while_it_starts_is_heard_when_it_is_up(own_server):
    for start in range(5):
        server = own_server(f"server-{start}").spawn()
        eventually(lambda: hears_hang_ups(server.process), COMMAND_SECONDS, 0.001, message="SIGHUP is not heard")
        server.process.send_signal(signal.SIGHUP)
        eventually(server.is_ready, COMMAND_SECONDS, message="it did not start")
        eventually(lambda: "settings were read again" in server.log(), COMMAND_SECONDS, message="not read again")
        assert server.stop() == 0, server.log()


def test_signals_are_heard_before_anything_else_is_done(own_server, tmp_path):
    """What comes before the file is read is the program itself being loaded."""
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
    """It is the first thing that `serve` does, so no moment of a start is left in which SIGHUP ends the process."""
    if not shutil.which("strace"):
        pytest.fail("strace is not installed: run scripts/setup.sh")
    server, output = own_server(), tmp_path / "trace"
    server.start(wrapper=tracing.command(output, "rt_sigaction,clone,clone3,openat"))
    assert server.stop() == 0
    trace = tracing.Trace(output.read_text(errors="replace"))
    handled = trace.named(r"^\(SIGHUP, {sa_handler=0x", "rt_sigaction")[0].ended
    threads = trace.named("", "clone", "clone3")
    assert threads and handled < threads[0].began, "a thread was started first"


def test_commands_other_than_serve_end_at_a_hang_up(own_server, tmp_path):
    """They have nothing to reload: a terminal that closes ends them."""
    output = tmp_path / "trace"
    wrapper = tracing.command(output, "rt_sigaction")
    subprocess.run([*wrapper, binary(), "key", "new"], check=True, capture_output=True, timeout=COMMAND_SECONDS)
    assert not tracing.Trace(output.read_text(errors="replace")).named(r"^\(SIGHUP, {sa_handler=0x", "rt_sigaction")
