"""First use: the first commands of a new user work, and a failed start leaves nothing behind."""

import json
import os
import re
import signal
import socket
import subprocess
from pathlib import Path

import pytest
import yaml

from admin_client import admin_request, command
from catalogs import PostgresCatalog
from polling import eventually
from ports import free_ports
from s3_checks import read
from server_process import binary, s3_client
from signing import Credentials

SECONDS = 30


def clean_environment():
    return {name: value for name, value in os.environ.items() if not name.startswith(("S3O_", "AWS_"))}


def tree(folder):
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*"))


def run(*arguments, folder):
    return subprocess.run(
        [binary(), *map(str, arguments)],
        cwd=folder,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


class Started:
    """Runs `s3o serve` with these arguments in this folder until the context ends."""

    def __init__(self, folder, *arguments, ports=None):
        self.folder, self.arguments = Path(folder), list(arguments)
        self.port, self.admin_port = ports or free_ports(2)
        self.log_path = self.folder.parent / f"{self.folder.name}.log"

    def __enter__(self):
        listen = ["--listen", f"127.0.0.1:{self.port}", "--admin-listen", f"127.0.0.1:{self.admin_port}"]
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                [binary(), "serve", *listen, *self.arguments],
                cwd=self.folder,
                env=clean_environment(),
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        eventually(
            lambda: self.process.poll() is not None or "s3o serves S3" in self.log(), SECONDS, message=self.log()
        )
        assert self.process.poll() is None, self.log()
        return self

    def log(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def exports(self):
        eventually(lambda: "stored in" in self.log(), SECONDS, message=f"no keys were printed: {self.log()}")
        return dict(re.findall(r"(?m)^\s*export (\w+)=(\S+)$", self.log()))

    def s3(self, exports):
        pair = Credentials(exports["AWS_ACCESS_KEY_ID"], exports["AWS_SECRET_ACCESS_KEY"])
        return s3_client(f"http://127.0.0.1:{self.port}", pair)

    def __exit__(self, *_):
        self.process.terminate()
        assert self.process.wait(SECONDS) == 0, self.log()


@pytest.fixture
def work(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.mark.usefixtures("s3o_only")
class TestConfigurationFile:
    def test_serve_uses_the_file_in_the_working_folder_and_says_so(self, work):
        config = {
            "backends": [{"name": "from-the-file", "kind": "fs", "root": "elsewhere"}],
            "buckets": [{"name": "made"}],
        }
        (work / "s3o.yaml").write_text(yaml.safe_dump(config))
        with Started(work) as started:
            exports = started.exports()
            assert "./s3o.yaml" in started.log()
            assert [entry["Name"] for entry in started.s3(exports).list_buckets()["Buckets"]] == ["made"]
            assert (work / "elsewhere" / ".s3o" / "identity.json").exists()

    def test_config_option_overrides_the_file_in_the_working_folder(self, work):
        (work / "s3o.yaml").write_text("surprise: 1\n")
        (work / "other.yaml").write_text("backends: [{name: disk, kind: fs}]\n")
        with Started(work, "--config", "other.yaml") as started:
            assert "./s3o.yaml" not in started.log()

    def test_invalid_file_in_the_working_folder_is_refused(self, work):
        (work / "s3o.yaml").write_text("surprise: 1\n")
        done = run("serve", folder=work)
        assert done.returncode == 2 and "surprise" in done.stderr, done
        assert tree(work) == ["s3o.yaml"]

    @pytest.mark.parametrize("configuration", ["none", "init", "minimal"])
    def test_data_moves_everything_that_is_not_configured_elsewhere(self, work, configuration):
        if configuration == "init":
            assert run("init", folder=work).returncode == 0
        if configuration == "minimal":
            (work / "s3o.yaml").write_text("backends: [{name: disk, kind: fs}]\n")
        before = tree(work)
        data = work.parent / "data"
        with Started(work, "--data", data) as started:
            s3 = started.s3(started.exports())
            s3.create_bucket(Bucket="bucket")
            s3.put_object(Bucket="bucket", Key="k", Body=b"x" * 100_000)
            assert read(s3, "bucket", "k") == b"x" * 100_000
            assert tree(work) == before, "nothing was written beside the data folder"
            assert {"catalog.db", "audit.jsonl", "credentials.json", "disk"} <= set(os.listdir(data))

    def test_data_does_not_move_configured_paths(self, work):
        config = {
            "backends": [{"name": "disk", "kind": "fs", "root": "bytes"}],
            "database": {"url": "sqlite:rows/c.db"},
            "audit": {"path": "a.jsonl"},
        }
        (work / "s3o.yaml").write_text(yaml.safe_dump(config))
        with Started(work, "--data", "data") as started:
            started.exports()
            assert {"bytes", "rows", "a.jsonl", "data"} <= set(os.listdir(work))
            assert os.listdir(work / "data") == ["credentials.json"]


@pytest.mark.usefixtures("s3o_only")
class TestFailedStart:
    def fails(self, work, *arguments):
        done = run("serve", *arguments, folder=work)
        assert done.returncode == 1, done
        return done.stderr

    @pytest.mark.parametrize("flag", ["--listen", "--admin-listen"])
    def test_an_address_in_use_leaves_nothing_behind(self, work, flag):
        (free,) = free_ports(1)
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            other = "--admin-listen" if flag == "--listen" else "--listen"
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            said = self.fails(work, flag, address, other, f"127.0.0.1:{free}")
            assert address in said
        assert tree(work) == []

    @pytest.mark.parametrize(
        "settings",
        [
            {"audit": {"path": "in-the-way/audit.jsonl"}},
            {"database": {"url": "sqlite:in-the-way/catalog.db"}},
            {"database": {"url": "sqlite:new/folder/catalog.db"}, "audit": {"path": "in-the-way/audit.jsonl"}},
            {"database": {"url": "postgres://unknown:x@127.0.0.1:1/none"}},
        ],
        ids=["audit", "catalog", "audit with another catalog", "database away"],
    )
    def test_failed_open_leaves_nothing_behind(self, work, settings):
        port, admin = free_ports(2)
        config = {
            "server": {"listen": f"127.0.0.1:{port}"},
            "admin": {"listen": f"127.0.0.1:{admin}"},
            "backends": [{"name": "disk", "kind": "fs"}],
            **settings,
        }
        (work / "s3o.yaml").write_text(yaml.safe_dump(config))
        (work / "in-the-way").write_text("a file, no folder")
        before = tree(work)
        self.fails(work)
        assert tree(work) == before

    def test_catalog_in_use_is_not_changed(self, work):
        with Started(work) as started:
            exports = started.exports()
            before = set(tree(work))
            port, admin = free_ports(2)
            said = self.fails(work, "--listen", f"127.0.0.1:{port}", "--admin-listen", f"127.0.0.1:{admin}")
            assert "another" in said or "in use" in said, said
            assert before <= set(tree(work))
            started.s3(exports).create_bucket(Bucket="still-there")
        with Started(work) as started:
            assert [entry["Name"] for entry in started.s3(exports).list_buckets()["Buckets"]] == ["still-there"]


@pytest.mark.usefixtures("s3o_only")
def test_key_new_prints_a_key_pair_that_works(work):
    first, second = (yaml.safe_load(run("key", "new", folder=work).stdout) for _ in range(2))
    assert set(first) == {"access_key_id", "secret_access_key"} and first != second
    assert set(json.loads(run("key", "new", "--json", folder=work).stdout)) == set(first)
    config = {
        "backends": [{"name": "disk", "kind": "fs"}],
        "access_keys": [{**first, "buckets": ["*"], "access": "admin"}],
    }
    (work / "s3o.yaml").write_text(yaml.safe_dump(config))
    with Started(work) as started:
        pair = Credentials(first["access_key_id"], first["secret_access_key"])
        s3_client(f"http://127.0.0.1:{started.port}", pair).create_bucket(Bucket="bucket")
        assert first["secret_access_key"] not in started.log()


def test_status_lists_backends_in_the_order_in_which_they_fill(own_server):
    server = own_server()
    names = ["zeta", "middle", "alpha"]
    server.config["backends"] = [{"name": name, "kind": "fs", "root": str(server.folder / name)} for name in names]
    server.start()
    status, shown = admin_request(server, "GET", "/status")
    assert status == 200
    assert [backend["name"] for backend in shown["backends"]] == names
    printed = command(server, "status").stdout
    assert sorted(names, key=printed.index) == names, printed
    assert server.stop() == 0
    server.config["backends"] = [server.config["backends"][2], server.config["backends"][0]]
    server.start()
    assert [backend["name"] for backend in admin_request(server, "GET", "/status")[1]["backends"]] == [
        "alpha",
        "zeta",
        "middle",
    ]


@pytest.mark.usefixtures("s3o_only")
def test_instances_on_postgres_share_generated_credentials(tmp_path):
    catalog, exports = PostgresCatalog(), None
    disk = {"name": "disk", "kind": "fs", "root": str(tmp_path / "disk")}
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        config = {"database": {"url": catalog.url}, "backends": [disk]}
        (folder / "s3o.yaml").write_text(yaml.safe_dump(config))
    with Started(tmp_path / "first") as first, Started(tmp_path / "second") as second:
        exports = first.exports()
        eventually(lambda: "generated_credentials" in second.log(), SECONDS, message=second.log())
        assert exports["AWS_SECRET_ACCESS_KEY"] not in second.log(), "printed once"
        first.s3(exports).create_bucket(Bucket="bucket")
        second.s3(exports).put_object(Bucket="bucket", Key="k", Body=b"shared")
        assert read(first.s3(exports), "bucket", "k") == b"shared"
        done = subprocess.run(
            [binary(), "status", "--admin", f"http://127.0.0.1:{second.admin_port}"],
            env={**clean_environment(), "S3O_ADMIN_TOKEN": exports["S3O_ADMIN_TOKEN"]},
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        assert done.returncode == 0, done
        os.kill(second.process.pid, signal.SIGHUP)
        audit = tmp_path / "second" / "s3o-data" / "audit.jsonl"
        eventually(lambda: "config.reloaded" in audit.read_text(), SECONDS, message="not reloaded")
        assert read(second.s3(exports), "bucket", "k") == b"shared", "a reload keeps the shared keys"
    for name in ("first", "second"):
        assert not (tmp_path / name / "s3o-data" / "credentials.json").exists()


@pytest.mark.usefixtures("s3o_only")
def test_credentials_of_an_earlier_version_beside_postgres_stay_valid(work):
    catalog = PostgresCatalog()
    config = {"database": {"url": catalog.url}, "backends": [{"name": "disk", "kind": "fs"}]}
    (work / "s3o.yaml").write_text(yaml.safe_dump(config))
    (work / "s3o-data").mkdir(mode=0o700)
    pair = {
        "access_key_id": "S3OOLD",
        "secret_access_key": "old-secret-of-the-file",
        "admin_token": "old-token-0123456789",
    }
    (work / "s3o-data" / "credentials.json").write_text(json.dumps(pair))
    with Started(work) as started:
        old = Credentials(pair["access_key_id"], pair["secret_access_key"])
        assert s3_client(f"http://127.0.0.1:{started.port}", old).list_buckets()["Buckets"] == []
        assert pair["secret_access_key"] not in started.log()
