"""Damages copies of one catalog, runs a server on each and records what it answers and deletes.

All random choices follow from a seed. A copy has its own catalog and hard links to the bytes, so a delete affects only
its copy.
"""

import json
import os
import random
import shutil
import sqlite3
import time
from pathlib import Path
from urllib.error import URLError

from botocore.exceptions import BotoCoreError, ClientError

from server_process import Server
from settled_state import QUICK

PAGE = 4096
BUCKET = "bucket"
OBJECTS = 60
LATER_OBJECTS = 20
START_SECONDS = 60
WORKERS = (
    "watchdog",
    "quota_audit",
    "pending_reaper",
    "expiry",
    "stale_multipart",
    "replicator",
    "over_replication",
    "rebalancer",
    "scrubber",
    "drain",
    "usage_flush",
    "cleanup",
    "quota_audit",
    "cleanup",
)
KINDS = (
    "flip",
    "flip",
    "garbage",
    "swap",
    "repeat",
    "older_pages",
    "older_pages",
    "truncate",
    "older_file",
    "foreign_log",
)


def body(name):
    return f"the bytes of {name} ".encode() * 7


class Original:
    """A catalog that was used, stopped cleanly several times and killed once, with snapshots of the steps."""

    def __init__(self, folder):
        self.folder = Path(folder)
        server = Server(self.folder, settings=QUICK).start()
        server.s3().create_bucket(Bucket=BUCKET)
        self.names = []
        self._fill(server, range(OBJECTS))
        server.stop()
        self.older = self._keep("older.db", server.catalog)
        for generation in range(2):
            server.start()
            self._fill(server, range(OBJECTS + generation * LATER_OBJECTS, OBJECTS + (generation + 1) * LATER_OBJECTS))
            server.stop()
        self.catalog = self._keep("newest.db", server.catalog)
        self.generation = server.folder / "catalog.db.generation"
        self.noted = self.generation.read_bytes() if self.generation.exists() else None
        self.bytes = self.folder / "kept"
        shutil.copytree(server.root, self.bytes)
        self.log = self._foreign_log(server)
        found = {str(path.relative_to(self.bytes)) for path in self.bytes.rglob("*") if path.is_file()}
        self.files = {name for name in found if not name.startswith(".s3o/")}

    def _fill(self, server, numbers):
        s3 = server.s3()
        for number in numbers:
            name = f"object-{number:04}"
            s3.put_object(Bucket=BUCKET, Key=name, Body=body(name))
            self.names.append(name)
        s3.copy_object(Bucket=BUCKET, Key=f"copy-{number}", CopySource=f"{BUCKET}/{name}")
        s3.put_object(Bucket=BUCKET, Key="replaced", Body=body(f"replaced {number}"))
        s3.put_object(Bucket=BUCKET, Key="deleted", Body=b"deleted")
        s3.delete_object(Bucket=BUCKET, Key="deleted")
        server.run_worker("cleanup")

    def _keep(self, name, path):
        shutil.copyfile(path, self.folder / name)
        return self.folder / name

    def _foreign_log(self, server):
        """The write-ahead log of another server that was killed, with other objects."""
        server.start()
        for number in range(10):
            server.s3().put_object(Bucket=BUCKET, Key=f"other-{number}", Body=b"of another run")
        server.kill()
        return self._keep("foreign-wal", f"{server.catalog}-wal")


def damage(original, catalog, rng):
    """Damages the copy of a catalog and returns a description."""
    kind = rng.choice(KINDS)
    pages = bytearray(catalog.read_bytes())
    count = len(pages) // PAGE
    # Without its first page a database cannot be opened at all, so that page is kept.
    some = [rng.randrange(1, count) for _ in range(rng.choice((1, 1, 2, 4)))]
    older = original.older.read_bytes()

    def put(number, page):
        pages[number * PAGE : (number + 1) * PAGE] = page

    def page(number):
        return bytes(pages[number * PAGE : (number + 1) * PAGE])

    if kind == "flip":
        for number in some:
            for _ in range(rng.choice((1, 1, 4, 32))):
                pages[number * PAGE + rng.randrange(PAGE)] ^= 1 << rng.randrange(8)
    elif kind == "garbage":
        for number in some:
            put(number, rng.choice((bytes(PAGE), rng.randbytes(PAGE))))
    elif kind == "swap":
        one, other = some[0], rng.randrange(1, count)
        first, second = page(one), page(other)
        put(one, second)
        put(other, first)
    elif kind == "repeat":
        put(some[0], page(rng.randrange(1, count)))
    elif kind == "older_pages":
        for number in (number % (len(older) // PAGE) or 1 for number in some):
            put(number, older[number * PAGE : (number + 1) * PAGE])
    elif kind == "truncate":
        del pages[rng.randrange(PAGE, len(pages)) :]
    elif kind in ("older_file", "foreign_log"):
        pages = bytearray(older)
    catalog.write_bytes(pages)
    return add_foreign_log(original, catalog, rng) if kind == "foreign_log" else kind


def add_foreign_log(original, catalog, rng):
    """Puts the write-ahead log of another database beside the catalog, as after a clean stop or after a crash."""
    shutil.copyfile(original.log, f"{catalog}-wal")
    if rng.random() >= 0.5:
        return "foreign_log"
    generation = catalog.with_name("catalog.db.generation")
    if generation.exists():
        generation.write_text(json.dumps({**json.loads(generation.read_text()), "clean": False}))
    return "foreign_log_after_crash"


def is_whole(catalog):
    """The result of SQLite's integrity check on a copy of the damaged files."""
    scratch = catalog.with_name("scratch")
    scratch.mkdir()
    for ending in ("", "-wal"):
        if Path(f"{catalog}{ending}").exists():
            shutil.copyfile(f"{catalog}{ending}", scratch / f"catalog.db{ending}")
    try:
        connection = sqlite3.connect(scratch / "catalog.db")
        found = connection.execute("PRAGMA integrity_check").fetchall()
        broken = connection.execute("PRAGMA foreign_key_check").fetchall()
        connection.close()
        return found == [("ok",)] and not broken
    except sqlite3.DatabaseError:
        return False
    finally:
        shutil.rmtree(scratch)


class Case:
    """One damaged copy and a server on it."""

    def __init__(self, original, folder, seed):
        self.original, self.seed = original, seed
        rng = random.Random(seed)
        self.server = Server(folder, settings=QUICK)
        shutil.rmtree(self.server.root)
        shutil.copytree(original.bytes, self.server.root, copy_function=link_bytes)
        shutil.copyfile(original.catalog, self.server.catalog)
        if original.noted:
            (self.server.folder / "catalog.db.generation").write_bytes(original.noted)
        self.kind = damage(original, self.server.catalog, rng)
        self.whole = is_whole(self.server.catalog)
        self.answers, self.state = {}, None

    def play(self):
        """Starts the server, runs every worker, reads every object, and stops the server."""
        self.server.spawn()
        try:
            self.state = self._settled_state()
            if self.state != "refused":
                for worker in WORKERS:
                    self.server.admin("POST", f"/admin/api/workers/{worker}/run")
                self._ask()
        finally:
            if self.server.process.poll() is None:
                self.server.kill()
        return self

    def _settled_state(self):
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self.server.process.poll() is not None:
                return "refused"
            try:
                status, answer = self.server.admin("GET", "/admin/api/status")
                if status == 200:
                    state = json.loads(answer).get("catalog", {}).get("state", "ok")
                    if state != "checking":
                        return state
                elif self.server.admin_get("/health/ready")[0] != 200:
                    return "degraded"
            except (URLError, OSError):
                pass
            time.sleep(0.05)
        raise AssertionError(f"seed {self.seed}: no state within the timeout")

    def _ask(self):
        for name in self.original.names:
            try:
                found = self.server.s3().get_object(Bucket=BUCKET, Key=name)["Body"].read()
                answer = "right" if found == body(name) else "wrong bytes"
            except ClientError as refusal:
                answer = str(refusal.response["ResponseMetadata"]["HTTPStatusCode"])
            except (BotoCoreError, OSError):
                answer = "cut off"
            self.answers[answer] = self.answers.get(answer, 0) + 1
        self.state = self._settled_state() if self.server.process.poll() is None else "refused"

    def lost(self):
        """Files of live objects that were deleted."""
        return sorted(self.original.files - self.server.files())

    def __str__(self):
        whole = "whole" if self.whole else "broken"
        return f"seed {self.seed}: {self.kind}, {whole}, {self.state}, {self.answers}, {len(self.lost())} lost"


def link_bytes(source, target):
    """Hard-links object bytes, which are only deleted; copies marks, which are overwritten in place."""
    if "/.s3o/" in str(source):
        shutil.copyfile(source, target)
    else:
        os.link(source, target)
