"""Measures the workers that write and move copies; called by bench_moves.sh.

bench_moves.py stores KIND FOLDER                        prints entries of `backends`, `|`, and the places of four stores
bench_moves.py heading PART                              prints the heading of a table
bench_moves.py rates WORKER KIND URL ADMIN SIZE COUNT ROUNDS PLACES   worker, plain loop and rclone in turns
bench_moves.py beside KIND URL ADMIN SIZE COUNT ROUNDS   requests with the replicator paused and running, in turns
bench_moves.py large URL ADMIN COUNT                     writes objects of 1 GiB
bench_moves.py memory WORKER KIND ADMIN PID COUNT        private memory while these objects are copied or moved
"""

import concurrent.futures
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from pathlib import Path

CONCURRENCY = 8
GIB = 1 << 30
POLL_SECONDS = 0.02
DRAIN_SECONDS_MAX = 180
REQUEST_SECONDS = 2
REQUEST_CONNECTIONS = 8
LIMITS = {"4KiB": 0.35, "1MiB": 0.6}
KEEP_LIMIT = 0.8
MEMORY_MIB_MAX = 64
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20}
HEADINGS = {
    "rates": """
| worker | store | size | objects | worker/s | plain loop/s | rclone copy/s | worker / loop, all turns | median | limit | |
|---|---|---|---:|---|---|---|---|---:|---:|---|""",
    "beside": """
| requests | store | objects copied | paused, requests/s | running, requests/s | kept, all turns | median | limit \
| copied/s meanwhile | |
|---|---|---|---|---|---|---:|---:|---:|---|""",
    "memory": """
| worker | store | objects of 1 GiB | seconds | idle MiB | peak MiB | above idle | limit | |
|---|---|---:|---:|---:|---:|---:|---:|---|""",
}


def size_of(name):
    return int(name[:-3]) * UNITS[name[-3:]]


def verdict(met):
    return "met" if met else "MISSED"


def print_row(*cells):
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def stores(kind, folder):
    """Two stores for s3o, and two that take the copies of the loop and of rclone."""
    if kind == "fs":
        entries = [{"name": name, "kind": "fs", "root": f"{folder}/{name}"} for name in ("front", "back")]
        places = [f"{folder}/{name}" for name in ("front", "back", "loop", "rclone")]
    else:
        import seaweed

        made = [seaweed.fresh_bucket() for _ in range(4)]
        entries = [{**store, "name": name} for store, name in zip(made, ("front", "back"))]
        places = [f"{store['endpoint']}/{store['bucket']}" for store in made]
    print("\\n  - ".join(map(json.dumps, entries)) + "|" + " ".join(places))


def client(url):
    import seaweed

    return seaweed.connect(url, os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"])


def ask(admin, path, method="GET"):
    headers = {"X-Admin-Token": os.environ["S3O_ADMIN_TOKEN"]}
    request = urllib.request.Request(admin + path, method=method, headers=headers)
    with urllib.request.urlopen(request, timeout=300) as response:
        return response.read().decode()


def summed(admin, name, words=""):
    lines = [line for line in ask(admin, "/metrics").splitlines() if line.startswith(name) and words in line]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def pause(admin, *workers):
    for worker in workers:
        ask(admin, f"/admin/api/workers/{worker}/pause", "POST")


def fill(url, bucket, size, count):
    """Writes objects of random bytes."""
    client(url).create_bucket(Bucket=bucket)
    with tempfile.TemporaryDirectory() as folder:
        noise = os.urandom(size)
        for number in range(count):
            Path(folder, f"{number:06}").write_bytes(uuid.uuid4().bytes + noise[16:])
        program = str(Path(sys.executable).parent / "s5cmd")
        options = ["--endpoint-url", url, "--numworkers", "16", "cp", f"{folder}/*", f"s3://{bucket}/"]
        subprocess.run([program, *options], capture_output=True, check=True)


def store_environment():
    """The keys of the store, if it has keys."""
    keys = {name: os.environ.get(f"S3O_TEST_S3_{name}") for name in ("ACCESS_KEY", "SECRET_KEY")}
    if keys["ACCESS_KEY"] is None:
        return os.environ
    return {**os.environ, "AWS_ACCESS_KEY_ID": keys["ACCESS_KEY"], "AWS_SECRET_ACCESS_KEY": keys["SECRET_KEY"]}


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, env=store_environment(), check=False)
    if done.returncode != 0:
        raise SystemExit(f"{command[0]} failed: {done.stderr[-2000:]}")
    return done.stdout


def loop_rate(source, target, prefix, count):
    options = ["--transfer", source, "--transfer-to", target, "--transfer-prefix", f"{prefix}/"]
    options += ["--concurrency", str(CONCURRENCY)]
    figures = json.loads(run([os.environ["S3O_BENCH_PROGRAM"], "bench", *options]))
    assert figures["objects"] == count, figures
    return figures["objects_per_second"]


def of_rclone(place):
    if not place.startswith("http"):
        return place
    endpoint, bucket = place.rsplit("/", 1)
    return f":s3,provider=Other,env_auth=true,endpoint='{endpoint}':{bucket}"


def rclone_rate(source, target, prefix, count):
    program = str(Path(sys.executable).parent / "rclone")
    options = ["--config", "/dev/null", "--transfers", str(CONCURRENCY), "--checkers", str(CONCURRENCY)]
    # A copy within a store would not move the bytes through the client.
    options += ["--disable", "Copy", "--s3-no-check-bucket"]
    began = time.monotonic()
    run([program, "copy", *options, f"{of_rclone(source)}/{prefix}", f"{of_rclone(target)}/{prefix}"])
    return count / (time.monotonic() - began)


def replicator_rate(admin, count):
    began = time.monotonic()
    report = json.loads(ask(admin, "/admin/api/workers/replicator/run", "POST"))
    seconds = time.monotonic() - began
    assert report["items"].get("copied") == count, report
    return count / seconds


def drain_rate(admin, count):
    drained_seconds = drain(admin, count)
    ask(admin, "/admin/api/backends/front/drain", "DELETE")
    return count / drained_seconds


def drain(admin, count):
    """Seconds from when the backend is closed for writes until all objects were moved."""
    ask(admin, "/admin/api/backends/front/drain", "POST")
    began, left = time.monotonic(), count
    while left > 0:
        assert time.monotonic() < began + DRAIN_SECONDS_MAX, f"{left} of {count} objects were not moved"
        time.sleep(POLL_SECONDS)
        left = json.loads(ask(admin, "/admin/api/backends/front/drain"))["remaining"]
    return time.monotonic() - began


def rates(worker, kind, url, admin, size, count, rounds, places):
    count, (front, _, loop, rclone) = int(count), places.split()
    # A manual run ignores that the replicator is paused. Moved bytes stay for the other turns.
    pause(admin, "cleanup", "over_replication", "replicator")
    measured = {"worker": [], "loop": [], "rclone": []}
    for number in range(int(rounds)):
        bucket = f"round-{number}"
        fill(url, bucket, size_of(size), count)
        turns = [
            ("worker", lambda: (replicator_rate if worker == "replicator" else drain_rate)(admin, count)),
            ("loop", lambda: loop_rate(front, loop, bucket, count)),
            ("rclone", lambda: rclone_rate(front, rclone, bucket, count)),
        ]
        for name, turn in turns[number % 3 :] + turns[: number % 3]:
            os.sync()
            measured[name].append(turn())
    ratios = [a / b for a, b in zip(measured["worker"], measured["loop"])]
    middle, limit = statistics.median(ratios), LIMITS.get(size)
    cells = [", ".join(f"{rate:.0f}" for rate in measured[name]) for name in ("worker", "loop", "rclone")]
    met = verdict(middle >= limit) if limit else ""
    print_row(worker, kind, size, count, *cells, listed(ratios), f"{middle:.2f}", f">= {limit}" if limit else "", met)


def listed(ratios):
    return ", ".join(f"{ratio:.2f}" for ratio in ratios)


def requests_per_second(url, workload):
    options = ["--workloads", workload, "--sizes", "4KiB", "--concurrency", str(REQUEST_CONNECTIONS), "--json"]
    options += ["--endpoint", url, "--duration", f"{REQUEST_SECONDS}s"]
    program = os.environ["S3O_BENCH_PROGRAM"]
    done = subprocess.run([program, "bench", *options], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["cells"][0][0]["ops_per_second"]


def pending(admin):
    return summed(admin, "s3o_replication_pending")


def requests_beside(admin, url, workload):
    """Requests per second while the replicator runs, and the copies per second meanwhile."""
    before = pending(admin)
    ask(admin, "/admin/api/workers/replicator/resume", "POST")
    deadline = time.monotonic() + 30
    while pending(admin) == before:
        assert time.monotonic() < deadline, "the replicator did not start"
        time.sleep(POLL_SECONDS)
    before, began = pending(admin), time.monotonic()
    rate = requests_per_second(url, workload)
    left, seconds = pending(admin), time.monotonic() - began
    pause(admin, "replicator")
    if left == 0:
        raise SystemExit("the replicator was done before the requests ended, use more objects")
    # A batch in progress ends before the next turn.
    seen = None
    while seen != (seen := pending(admin)):
        time.sleep(1.5)
    return rate, (before - left) / seconds


def beside(kind, url, admin, size, count, rounds):
    pause(admin, "replicator", "over_replication")
    fill(url, "backlog", size_of(size), int(count))
    for workload in ("get", "put"):
        paused, running = [], []
        for number in range(int(rounds)):
            for is_running in (number % 2 == 0, number % 2 == 1):
                os.sync()
                if is_running:
                    running.append(requests_beside(admin, url, workload))
                else:
                    paused.append(requests_per_second(url, workload))
        requests, copies = zip(*running)
        print_beside(workload, kind, size, paused, requests, copies)


def print_beside(workload, kind, size, paused, running, copies):
    ratios = [a / b for a, b in zip(running, paused)]
    middle = statistics.median(ratios)
    shown = [", ".join(f"{rate:.0f}" for rate in figures) for figures in (paused, running)]
    cells = [listed(ratios), f"{middle:.2f}", f">= {KEEP_LIMIT}", f"{statistics.median(copies):.0f}"]
    print_row(f"{workload.upper()} 4KiB", kind, size, *shown, *cells, verdict(middle >= KEEP_LIMIT))


def large(url, admin, count):
    """One PUT for each object; the bodies begin with different bytes."""
    pause(admin, "cleanup", "replicator", "over_replication")
    client(url).create_bucket(Bucket="large")
    body = Path("/dev/shm" if os.path.isdir("/dev/shm") else "/tmp") / f"s3o-bench-{uuid.uuid4().hex}"
    noise = os.urandom(1 << 20)
    try:
        with open(body, "wb") as file:
            for _ in range(GIB >> 20):
                file.write(noise)
        for number in range(int(count)):
            with open(body, "r+b") as file:
                file.write(number.to_bytes(8, "big"))
            with open(body, "rb") as file:
                client(url).put_object(Bucket="large", Key=str(number), Body=file)
    finally:
        body.unlink(missing_ok=True)


def private_mib(pid):
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(re.search(r"RssAnon:\s+(\d+) kB", text).group(1)) / 1024


def memory(worker, kind, admin, pid, count):
    count = int(count)
    time.sleep(3)
    idle, peak, began = private_mib(pid), 0, time.monotonic()
    work = replicator_rate if worker == "replicator" else drain
    with concurrent.futures.ThreadPoolExecutor(1) as lane:
        done = lane.submit(work, admin, count)
        while not done.done():
            time.sleep(POLL_SECONDS)
            peak = max(peak, private_mib(pid))
        done.result()
    above, seconds = peak - idle, time.monotonic() - began
    shown = [f"{number:.0f}" for number in (seconds, idle, peak, above)]
    print_row(worker, kind, count, *shown, f"<= {MEMORY_MIB_MAX}", verdict(above <= MEMORY_MIB_MAX))


COMMANDS = {
    "stores": stores,
    "heading": lambda part: print(HEADINGS[part], flush=True),
    "rates": rates,
    "beside": beside,
    "large": large,
    "memory": memory,
}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])
