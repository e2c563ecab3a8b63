"""The command line: a first start needs no configuration, and every error of a configuration has its path."""

import os
import re
import stat
import subprocess

import pytest
import yaml

from polling import eventually
from ports import free_ports
from s3_checks import read
from server_process import binary, s3_client
from signing import Credentials

COMMAND_SECONDS = 30


def run(*arguments, folder, environment=None):
    """Runs a command that ends by itself."""
    return subprocess.run(
        [binary(), *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "S3O_ADMIN_TOKEN": "token", "NO_COLOR": "1", **(environment or {})},
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
    )


def printed(text, *names):
    """The value after one of these names in printed output."""
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

    def test_validate_reports_every_error_with_its_path(self, tmp_path, own_server):
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
            (
                {"backends": [("a", "disk"), ("b", "disk")]},
                "backends[1].root: is the same folder as that of backends[0]",
            ),
            (
                {"backends": [("a", "disk"), ("b", "disk/deep")]},
                "backends[1].root: is inside the folder of backends[0]",
            ),
            ({"backends": [("a", "disk/deep"), ("b", "disk")]}, "backends[1].root: contains the folder of backends[0]"),
            (
                {"admin": {"listen": "127.0.0.1:9000"}},
                "admin.listen: 127.0.0.1:9000 is also used by server.listen, use another address",
            ),
            (
                {"cleanup_queue": {"batch_size": 1001}},
                "cleanup_queue.batch_size: 1001 is not allowed, use at most 1000",
            ),
            ({"expiry": {"batch_size": 5000}}, "expiry.batch_size: 5000 is not allowed, use at most 1000"),
        ],
    )
    def test_validate_refuses_shared_folders_addresses_and_large_batches(self, tmp_path, change, fault):
        config = {"server": {"listen": "127.0.0.1:9000"}, "backends": [("a", "disk")], **change}
        config["backends"] = [{"name": name, "kind": "fs", "root": root} for name, root in config["backends"]]
        (tmp_path / "s3o.yaml").write_text(yaml.safe_dump(config))
        done = run("validate", folder=tmp_path)
        assert done.returncode == 2 and fault in done.stderr, done

    def test_validate_connect_tries_every_connection_and_changes_nothing(self, tmp_path, own_server):
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
        for part in (
            f"database: catalog unavailable: PostgreSQL at 127.0.0.1:{database}, database db: ",
            "redis: ",
            "backend b2: ",
        ):
            assert part in done.stderr, done
        assert "secret" not in done.stderr + done.stdout

    def test_config_that_is_not_a_regular_file_is_refused_at_once(self, tmp_path):
        os.mkfifo(tmp_path / "pipe.yaml")
        for path in ("pipe.yaml", "/dev/zero", "."):
            for command in ("validate", "serve"):
                done = run(command, "--config", path, folder=tmp_path)
                assert done.returncode == 2, done
                assert "not a regular file" in done.stdout + done.stderr, done

    def test_a_missing_file_and_bad_usage_exit_with_2(self, tmp_path):
        assert run("serve", "--config", "missing.yaml", folder=tmp_path).returncode == 2
        assert run("no-such-command", folder=tmp_path).returncode == 2


def test_closed_pipe_ends_a_command_quietly(tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        ended = subprocess.run([binary(), "key", "new"], stdout=closed, stderr=subprocess.PIPE, timeout=COMMAND_SECONDS)
    assert (ended.returncode, ended.stderr) == (0, b"")
