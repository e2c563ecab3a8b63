"""One s3o process: the real binary in its own folder, which tests start, kill, restart and inspect."""

import json
import os
import re
import signal
import subprocess
import urllib.request
from pathlib import Path
from urllib.error import HTTPError, URLError

import boto3
import yaml
from botocore.config import Config

from catalogs import SqliteCatalog
from polling import eventually
from ports import free_ports
from raw_client import RawClient
from signing import Credentials

ADMIN_TOKEN = "token-of-the-tests"
KEYS = {
    "admin": Credentials("admin-key", "admin-secret-0123456789abcdef"),
    "writer": Credentials("writer-key", "writer-secret-0123456789abcdef"),
    "reader": Credentials("reader-key", "reader-secret-0123456789abcdef"),
    "unknown": Credentials("unknown-key", "unknown-secret-0123456789abcdef"),
}
GRANTS = {
    "admin": {"buckets": ["*"], "access": "admin"},
    "writer": {"buckets": ["granted-*"], "access": "read_write"},
    "reader": {"buckets": ["granted-*"], "access": "read_only"},
}
START_SECONDS = 30
STOP_SECONDS = 30
ROOT = Path(__file__).resolve().parents[2]


def binary():
    """Absolute path of the binary under test; servers run in other folders."""
    path = Path(os.environ.get("S3O_BIN", ROOT / "target/debug/s3o"))
    return str(path if path.is_absolute() else ROOT / path)


def s3_client(endpoint, credentials, **options):
    """boto3 with its defaults, but without retries, which would hide a refusal."""
    options.setdefault("retries", {"total_max_attempts": 1})
    options.setdefault("s3", {"addressing_style": "path"})
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name=credentials.region,
        aws_access_key_id=credentials.access_key,
        aws_secret_access_key=credentials.secret_key,
        config=Config(connect_timeout=5, read_timeout=60, signature_version="s3v4", **options),
    )


class Endpoint:
    """An S3 endpoint, of s3o or of another server, and its keys."""

    def __init__(self, port, keys):
        self.port, self.keys = port, keys
        self.endpoint = f"http://127.0.0.1:{port}"
        self._clients = {}

    def s3(self, key="admin"):
        if key not in self._clients:
            self._clients[key] = s3_client(self.endpoint, self.keys[key])
        return self._clients[key]

    def raw(self, key="admin"):
        return RawClient("127.0.0.1", self.port, self.keys.get(key))


class Server(Endpoint):
    """The binary, its configuration and its folder."""

    def __init__(self, folder, backend=None, settings=None, catalog=None):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        port, self.admin_port = free_ports(2)
        super().__init__(port, KEYS)
        self.root = self.folder / "disk"
        self.catalog = self.folder / "catalog.db"
        self.database = catalog or SqliteCatalog(self.catalog)
        self.log_path = self.folder / "server.log"
        self.config_path = self.folder / "s3o.yaml"
        self.process = None
        self.config = {
            "server": {"listen": f"127.0.0.1:{port}"},
            "admin": {"listen": f"127.0.0.1:{self.admin_port}", "token": ADMIN_TOKEN},
            "database": {"url": self.database.url},
            "access_keys": [
                {"access_key_id": KEYS[name].access_key, "secret_access_key": KEYS[name].secret_key, **grant}
                for name, grant in GRANTS.items()
            ],
            "backends": [backend or {"name": "disk", "kind": "fs", "root": str(self.root)}],
            # Deletes begin at once, except in tests of the delay.
            "identity": {"delete_delay": "0s"},
            **(settings or {}),
        }
        self.config["identity"].setdefault("delete_delay", "0s")
        if self.config["backends"][0]["kind"] == "fs":
            self.root = Path(self.config["backends"][0]["root"])
            self.root.mkdir(parents=True, exist_ok=True)

    def spawn(self, wrapper=(), arguments=()):
        """Starts the process without waiting until it is ready."""
        assert self.process is None or self.process.poll() is not None, "the server is running already"
        self.config_path.write_text(yaml.safe_dump(self.config, sort_keys=False))
        environment = {**os.environ, "RUST_BACKTRACE": "1", "NO_COLOR": "1"}
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [*wrapper, binary(), "serve", "--config", str(self.config_path), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=environment,
            )
        return self

    def start(self, wrapper=()):
        self.spawn(wrapper)
        eventually(self.is_ready, START_SECONDS, message="the server is not ready")
        return self

    def clock(self):
        """The clock in the server's status."""
        return json.loads(self.admin("GET", "/admin/api/status")[1]).get("clock", {})

    def is_ready(self):
        if self.process.poll() is not None:
            raise AssertionError(f"s3o exited with {self.process.returncode}:\n{self.log()[-4000:]}")
        try:
            return self.admin_get("/health/ready")[0] == 200
        except (URLError, OSError):
            return False

    def kill(self):
        """SIGKILL: no destructor, no flush."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(STOP_SECONDS)

    def stop(self):
        """Sends SIGTERM and returns the exit code."""
        if self.process is None or self.process.poll() is not None:
            return self.process and self.process.returncode
        self.process.terminate()
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError("s3o did not stop on SIGTERM") from None

    def log(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def admin(self, method, path, token=ADMIN_TOKEN):
        request = urllib.request.Request(f"http://127.0.0.1:{self.admin_port}{path}", method=method)
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.status, response.read()
        except HTTPError as refusal:
            return refusal.code, refusal.read()

    def admin_get(self, path):
        return self.admin("GET", path, token=None)

    def run_worker(self, name):
        """Runs one worker now and returns its report."""
        status, body = self.admin("POST", f"/admin/api/workers/{name}/run")
        assert status == 200, (name, status, body)
        return json.loads(body)

    def metrics(self):
        """Every sample as {name with labels: value}."""
        status, body = self.admin_get("/metrics")
        assert status == 200
        found = re.findall(r"^([a-z_0-9]+(?:\{.*\})?) (\S+)(?: \S+)?$", body.decode(), re.MULTILINE)
        return {name: float(value) for name, value in found}

    def rows(self, sql):
        """Rows of the catalog, through a read-only connection beside the server."""
        return self.database.rows(sql)

    def files(self):
        """Every file below the folder backend's root, except its identity and marks."""
        found = {str(path.relative_to(self.root)) for path in self.root.rglob("*") if not path.is_dir()}
        return {name for name in found if name != ".s3o/identity.json" and not name.startswith(".s3o/marks/")}

    def status_kib(self, field):
        """A memory value of the process in KiB, such as VmHWM."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"^{field}:\s+(\d+) kB", text, re.MULTILINE).group(1))
