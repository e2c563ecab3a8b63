"""Fills a store and a catalog with expired objects and measures how fast they are deleted.

bench_expiry.py fill-folder FOLDER COUNT           writes COUNT bodies of 4 KiB under the names that `fill-catalog` uses
bench_expiry.py fill-catalog URL BACKEND N [alive] inserts N objects of the bucket `bench` that have expired, or with
                                                   `alive` never expire; a third of them share content
bench_expiry.py watch ADMIN PID N                  resumes the worker and prints a line when rows and bytes are deleted
bench_expiry.py drained ADMIN                      returns when no bytes wait for deletion
bench_expiry.py own-rate STORE COUNT               deletes COUNT bodies by batch calls of the store (JSON of an s3
                                                   backend), several at a time, without listing them
bench_expiry.py beside ADMIN BINARY URL SECONDS ROUNDS
                                                   PUTs at that endpoint without and beside expiry and cleanup, in turn
"""

import concurrent.futures
import json
import os
import re
import statistics
import subprocess
import sys
import time
import urllib.request
import uuid

BODY = os.urandom(4096)
# As many concurrent calls as s3o uses.
CALLS_AT_ONCE = 4
# One of this many objects shares the content of another.
SHARING = 3
POLL_SECONDS = 0.1


def physical_key(number):
    return f"bench/{number // 1000:05}/{number:07}~{uuid.UUID(int=number).hex}"


def contents_of(objects):
    return objects - objects // SHARING


def client(store):
    import seaweed

    return seaweed.connect(store["endpoint"], store["access_key_id"], store["secret_access_key"])


def fill_folder(folder, count):
    for number in range(int(count)):
        path = os.path.join(folder, physical_key(number))
        if number % 1000 == 0:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(BODY)


CONTENTS = """INSERT INTO contents (id, kind, md5, size_bytes, ref_count)
    SELECT {id}, 'whole', {id}, {size}, CASE WHEN i < {shared} THEN 2 ELSE 1 END FROM n WHERE i < {contents}"""
LOCATIONS = """INSERT INTO object_locations (content_id, backend_name, physical_key, size_bytes, stripe, verified_at)
    SELECT {id}, '{backend}', {key}, {size}, 0, {now} FROM n WHERE i < {contents}"""
# The last objects refer to the first contents.
OBJECTS = """INSERT INTO objects (bucket_id, key, content_id, version_id, size_bytes, etag, headers, metadata, tags,
    last_modified, expires_at)
    SELECT (SELECT id FROM buckets WHERE name = 'bench'), {name},
    CASE WHEN i < {contents} THEN {id} ELSE {shared_id} END, {id}, {size}, {id}, '{{}}', '{{}}', '{{}}',
    {now}, {expiry} FROM n"""
QUOTAS = """UPDATE backend_quotas SET used_bytes = used_bytes + {bytes}
    WHERE backend_name = '{backend}' AND stripe = 0"""


def statements(url, backend, objects, expiry):
    sqlite = url.startswith("sqlite:")
    numbers = (
        f"WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {objects - 1}) "
        if sqlite
        else f"WITH n AS (SELECT i FROM generate_series(0, {objects - 1}) i) "
    )
    hexadecimal = "printf('%032x', {})" if sqlite else "lpad(to_hex({}), 32, '0')"
    key = (
        "printf('bench/%05d/%07d~%032x', i / 1000, i, i)"
        if sqlite
        else "'bench/' || lpad((i / 1000)::text, 5, '0') || '/' || lpad(i::text, 7, '0') || '~' || "
        "lpad(to_hex(i), 32, '0')"
    )
    contents = contents_of(objects)
    words = {
        "id": hexadecimal.format("i"),
        "shared_id": hexadecimal.format(f"i - {contents}"),
        "name": "printf('%07d', i)" if sqlite else "lpad(i::text, 7, '0')",
        "key": key,
        "size": len(BODY),
        "bytes": len(BODY) * contents,
        "contents": contents,
        "shared": objects - contents,
        "backend": backend,
        "now": int(time.time() * 1000),
        "expiry": expiry,
    }
    # s3o would keep the condemned contents of an earlier run for an hour.
    yield "DELETE FROM contents WHERE state = 'condemned'"
    for statement in (CONTENTS, LOCATIONS, OBJECTS):
        head, select = statement.format(**words).split("SELECT", 1)
        yield f"{head} {numbers} SELECT{select}"
    yield QUOTAS.format(**words)


def fill_catalog(url, backend, objects, alive=None):
    objects, expiry = int(objects), "NULL" if alive else int(time.time() * 1000)
    if url.startswith("sqlite:"):
        import sqlite3

        with sqlite3.connect(url.removeprefix("sqlite:")) as catalog:
            catalog.execute("PRAGMA synchronous = OFF")
            for statement in statements(url, backend, objects, expiry):
                catalog.execute(statement)
        return
    script = ";\n".join([*statements(url, backend, objects, expiry), "ANALYZE"])
    subprocess.run(["psql", "--quiet", "--set=ON_ERROR_STOP=1", url], input=script, text=True, check=True)


def ask(admin, path, method="GET"):
    request = urllib.request.Request(
        admin + path, method=method, headers={"X-Admin-Token": os.environ["S3O_ADMIN_TOKEN"]}
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return response.read().decode()


def metrics(admin):
    found = {}
    for line in ask(admin, "/metrics").splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            found[name] = float(value)
    return found


def summed(seen, name, words=""):
    return sum(value for key, value in seen.items() if key.startswith(name) and words in key)


def own_mebibytes(pid):
    """Resident memory of the process without mapped files, in MiB."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return int(re.search(r"RssAnon:\s+(\d+) kB", status.read()).group(1)) / 1024


def watch(admin, pid, objects):
    objects = int(objects)
    before, began = metrics(admin), time.monotonic()
    ask(admin, "/admin/api/workers/expiry/resume", "POST")
    rows_gone, peak = None, 0
    while True:
        time.sleep(POLL_SECONDS)
        peak = max(peak, own_mebibytes(pid))
        seen, passed = metrics(admin), time.monotonic() - began
        if rows_gone is None and seen['s3o_oldest_due_seconds{queue="expiry"}'] == 0:
            rows_gone = passed
        if rows_gone is not None and seen["s3o_cleanup_queue_depth"] == 0:
            break
    calls = summed(seen, "s3o_backend_requests_total", "delete") - summed(
        before, "s3o_backend_requests_total", "delete"
    )
    commits = seen["s3o_catalog_commits_total"] - before["s3o_catalog_commits_total"]
    print(
        f"| {objects} | {rows_gone:.1f} | {objects / rows_gone:.0f} | {passed:.1f} | {objects / passed:.0f} "
        f"| {commits:.0f} | {calls:.0f} | {peak:.0f} |",
        flush=True,
    )


def drained(admin):
    while metrics(admin)["s3o_cleanup_queue_depth"] > 0:
        time.sleep(POLL_SECONDS)


def own_rate(store, count):
    store, count = json.loads(store), int(count)
    clients = [client(store) for _ in range(CALLS_AT_ONCE)]

    def delete(lane):
        for first in range(lane * 1000, count, CALLS_AT_ONCE * 1000):
            keys = [{"Key": physical_key(number)} for number in range(first, min(first + 1000, count))]
            clients[lane].delete_objects(Bucket=store["bucket"], Delete={"Objects": keys, "Quiet": True})

    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(CALLS_AT_ONCE) as lanes:
        list(lanes.map(delete, range(CALLS_AT_ONCE)))
    seconds = time.monotonic() - began
    print(f"| the store's own batch calls | {count} | {seconds:.1f} | {count / seconds:.0f} |", flush=True)


def beside(admin, binary, url, seconds, rounds):
    """Measures PUTs with and without expiry in turn, because the speed of a disk varies."""
    without, busy, before = [], [], bodies_deleted(admin)
    for _ in range(int(rounds)):
        both(admin, "pause")
        # Writes pending file system changes first, so that they do not slow down these PUTs.
        os.sync()
        without.append(puts(binary, url, seconds))
        both(admin, "resume")
        busy.append(puts(binary, url, seconds))
        if metrics(admin)["s3o_cleanup_queue_depth"] == 0:
            raise SystemExit("the queue was empty before the PUTs ended, use more objects")
    both(admin, "pause")
    # A run updates its counters when it ends.
    time.sleep(2)
    gone = bodies_deleted(admin) - before
    slower = statistics.median(1 - pair[1] / pair[0] for pair in zip(without, busy))
    print(
        f"\nPUTs/s without: {listed(without)}; beside: {listed(busy)}; slower by {slower:.0%} (median of the rounds); "
        f"bodies gone/s beside: {gone / (int(rounds) * float(seconds)):.0f}",
        flush=True,
    )


def both(admin, what):
    for worker in ("expiry", "cleanup"):
        ask(admin, f"/admin/api/workers/{worker}/{what}", "POST")


def bodies_deleted(admin):
    return summed(metrics(admin), "s3o_worker_items_total", 'worker="cleanup"')


def puts(binary, url, seconds):
    """PUTs of 4 KiB per second, 8 at a time."""
    options = ["--workloads", "put", "--sizes", "4KiB", "--concurrency", "8", "--duration", f"{seconds}s", "--json"]
    done = subprocess.run([binary, "bench", "--endpoint", url, *options], capture_output=True, text=True, check=True)
    figures = json.loads(done.stdout)["cells"][0][0]
    if figures["errors"]:
        raise SystemExit(f"{figures['errors']} PUTs failed")
    return figures["ops_per_second"]


def listed(rates):
    return ", ".join(f"{rate:.0f}" for rate in rates)


COMMANDS = {
    "fill-folder": fill_folder,
    "fill-catalog": fill_catalog,
    "watch": watch,
    "drained": drained,
    "own-rate": own_rate,
    "beside": beside,
}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])
