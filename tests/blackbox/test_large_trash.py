"""A large prefix is deleted to trash and restored while clients write to it.

`S3O_TRASH_OBJECTS` is the number of objects (default 10,000).
"""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from admin_client import admin_request
from polling import eventually
from s3_checks import body_of
from settled_state import QUICK, settle

pytestmark = [pytest.mark.alone]

OBJECTS = int(os.environ.get("S3O_TRASH_OBJECTS", "10000"))
LOADERS, WRITERS = 16, 4
WEEK_MS = 7 * 24 * 3600 * 1000
SECONDS = 60 + OBJECTS / 100
SETTINGS = {
    **QUICK,
    # Leases that hold on a busy machine.
    "write_path": {"pending_intents": {"min_age": "5s", "reaper_tick": "100ms", "late_write_window": "2s"}},
    "expiry": {"interval": "500ms"},
}


def key_of(number):
    return f"a/{number % 50}/{number:06}"


def store(server):
    def store_share(loader):
        s3 = server.s3()
        for number in range(loader, OBJECTS, LOADERS):
            key = key_of(number)
            s3.put_object(
                Bucket="bucket", Key=key, Body=body_of(500, key), Metadata={"number": str(number)}, Tagging="k=v"
            )

    with ThreadPoolExecutor(LOADERS) as pool:
        list(pool.map(store_share, range(LOADERS)))


def listed(s3):
    """Key, ETag, size and time of every object."""
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket="bucket")
    return {
        entry["Key"]: (entry["ETag"], entry["Size"], entry["LastModified"])
        for page in pages
        for entry in page.get("Contents", [])
    }


class Writers:
    """Write keys below the prefix again and again, some of them new."""

    def __init__(self, server):
        self.written, self.failures, self.stopping = {}, [], threading.Event()
        self.threads = [threading.Thread(target=self.write, args=(server.s3(), number)) for number in range(WRITERS)]
        for thread in self.threads:
            thread.start()

    def write(self, s3, writer):
        number = 0
        while not self.stopping.is_set():
            key = key_of((number * WRITERS + writer) % OBJECTS) if number % 2 else f"a/new/{writer}/{number}"
            try:
                s3.put_object(Bucket="bucket", Key=key, Body=f"{writer} {number}".encode())
                self.written[key] = f"{writer} {number}".encode()
            except Exception as error:
                self.failures.append(repr(error))
            number += 1

    def stop(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join()
        assert not self.failures, self.failures[:3]
        return self.written


def test_large_prefix_is_deleted_and_restored_under_writes(disks):
    server = disks(2, **SETTINGS)
    s3 = server.s3()
    store(server)
    settle(server)
    before = listed(s3)
    assert len(before) == OBJECTS
    used_before = sum(backend["used"] for backend in server.admin_get("/admin/api/status")["backends"])
    began = time.monotonic()
    status, answer = admin_request(server, "DELETE", "/objects?bucket=bucket&prefix=a/")
    print(f"rm of {OBJECTS} objects: {time.monotonic() - began:.1f} s")
    assert (status, answer["objects"], listed(s3)) == (200, OBJECTS, {})
    assert sum(backend["used"] for backend in server.admin_get("/admin/api/status")["backends"]) == used_before
    admin_request(server, "POST", "/backends/disk0/drain")
    eventually(lambda: admin_request(server, "GET", "/backends/disk0/drain")[1]["complete"], SECONDS, 0.5)
    writers = Writers(server)
    began = time.monotonic()
    status, answer = admin_request(server, "POST", "/objects/restore?bucket=bucket&prefix=a/")
    print(f"restore beside {WRITERS} writers: {time.monotonic() - began:.1f} s")
    assert (status, answer["objects"] + answer["existing"]) == (200, OBJECTS), answer
    written = writers.stop()
    after = listed(s3)
    assert {key: after[key] for key in before if key not in written} == {
        key: value for key, value in before.items() if key not in written
    }
    head = s3.head_object(Bucket="bucket", Key=next(key for key in before if key not in written))
    assert head["Metadata"]["number"], head
    # A second deletion beside writers takes what was there, and keeps what they write meanwhile.
    writers = Writers(server)
    status, answer = admin_request(server, "DELETE", "/objects?bucket=bucket&prefix=a/")
    ended = time.time()
    assert status == 200, answer
    time.sleep(0.2)
    newer = writers.stop()
    left = listed(s3)
    for key in list(newer)[:50]:
        if key in left:
            assert s3.get_object(Bucket="bucket", Key=key)["Body"].read() == newer[key], key
    assert set(left) <= set(newer) and left, ended
    status, answer = admin_request(server, "DELETE", "/objects?bucket=bucket&prefix=&purge=true")
    assert status == 200 and answer["objects"] >= OBJECTS - len(newer), answer
    server.database.change(
        f"UPDATE trash_objects SET deleted_at = deleted_at - {WEEK_MS}, purge_at = purge_at - {WEEK_MS}"
    )
    settle(server, SECONDS)
    assert listed(s3).keys() == left.keys()
