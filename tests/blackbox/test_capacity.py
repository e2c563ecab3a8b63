"""Several writers on two instances fill three small disks: no limit is exceeded at any time, all capacity is used, and
then a write is refused before its body is sent."""

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from catalogs import PostgresCatalog
from s3_checks import body_of, keys_of
from settled_state import QUICK, settle

pytestmark = [pytest.mark.alone, pytest.mark.timeout(150)]

LIMIT_BYTES = 64 * 1024 * 1024
SMALL_BYTES = 64 * 1024
SIZES = (700_000, 1_500_000, 3_100_000)
WRITERS = 16
# Leases that hold on a busy machine.
SETTINGS = {
    **QUICK,
    "write_path": {"pending_intents": {"min_age": "5s", "reaper_tick": "100ms", "late_write_window": "300ms"}},
}


def bytes_on_disk(backend):
    """Bytes of all files, temporary ones included, without the objects that s3o keeps for itself."""
    found = 0
    for path in Path(backend["root"]).rglob("*"):
        try:
            own = path.relative_to(backend["root"]).parts[:2] in ((".s3o", "marks"), (".s3o", "identity.json"))
            found += path.stat().st_size if path.is_file() and not own else 0
        except FileNotFoundError:
            # It was renamed or deleted after the folder was read.
            continue
    return found


class Watcher:
    """Compares the bytes on every disk with its limit, every 100 ms."""

    def __init__(self, backends):
        self.backends, self.exceeded, self.checks = backends, [], 0
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def watch(self):
        while not self.stopping.wait(0.1):
            self.checks += 1
            self.exceeded += [size for size in map(bytes_on_disk, self.backends) if size > LIMIT_BYTES]

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *failure):
        self.stopping.set()
        self.thread.join()


@pytest.fixture
def servers(own_server):
    catalog, servers = PostgresCatalog(), []
    for number in range(2):
        server = own_server(name=f"instance-{number}", settings=SETTINGS, catalog=catalog)
        roots = servers[0].folder if servers else server.folder
        server.config["backends"] = [
            {"name": name, "kind": "fs", "root": str(roots / name), "quota": LIMIT_BYTES} for name in ("a", "b", "c")
        ]
        servers.append(server.start())
    servers[0].s3().create_bucket(Bucket="bucket")
    return servers


def listed(server):
    return [{"Key": key} for key in keys_of(server.s3(), "bucket")]


def fill(servers, prefix, size_of):
    """Every writer writes until its first 507; returns the number of stored objects."""

    def write(writer):
        raw, stored = servers[writer % 2].raw(), 0
        for number in range(10_000):
            answer = raw.request("PUT", f"/bucket/{prefix}-{writer}-{number}", body=body_of(size_of(number), writer))
            if answer.status == 507:
                return stored
            assert answer.status == 200, answer
            stored += 1
        raise AssertionError("the disks were never full")

    with ThreadPoolExecutor(WRITERS) as pool:
        return sum(pool.map(write, range(WRITERS)))


def test_writers_use_all_capacity_and_never_exceed_a_limit(servers):
    backends = servers[0].config["backends"]
    with Watcher(backends) as watcher:
        for round_number in range(3):
            assert fill(servers, f"large-{round_number}", lambda number: SIZES[number % len(SIZES)]) > 30
            servers[0].s3().delete_objects(Bucket="bucket", Delete={"Objects": listed(servers[0])})
            settle(servers[0])
        fill(servers, "large", lambda number: SIZES[number % len(SIZES)])
        fill(servers, "small", lambda number: SMALL_BYTES)
    assert watcher.exceeded == [] and watcher.checks > 10, watcher.checks
    settle(servers[0])
    query = "SELECT backend_name, sum(used_bytes + orphan_bytes + reserved_bytes) FROM backend_quotas GROUP BY 1"
    used = {name: int(size) for name, size in servers[0].rows(query)}
    assert used == {backend["name"]: bytes_on_disk(backend) for backend in backends}
    assert max(LIMIT_BYTES - size for size in used.values()) < SMALL_BYTES, used
    for server in servers:
        for expects_continue in (True, False):
            assert status_without_body(server, expects_continue) == 507
    # What is smaller than the rest of a disk still fits.
    rest = max(LIMIT_BYTES - size for size in used.values())
    assert servers[0].raw().request("PUT", "/bucket/rest", body=body_of(rest)).status == 200


def status_without_body(server, expects_continue):
    """The first answer to the head of a PUT of 64 KiB; not a byte of its body is sent."""
    raw = server.raw()
    headers = {"Content-Length": str(SMALL_BYTES), **({"Expect": "100-continue"} if expects_continue else {})}
    target, headers, _ = raw.prepare("PUT", "/bucket/refused", headers=headers)
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with socket.create_connection((raw.host, raw.port), timeout=10) as connection:
        connection.sendall(f"PUT {target} HTTP/1.1\r\n{head}\r\n".encode())
        # `100 Continue` would be an answer, too.
        return int(connection.makefile("rb").readline().split()[1])
