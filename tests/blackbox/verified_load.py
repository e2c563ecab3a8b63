"""Clients that write and read through several instances, and check every byte that they get back.

Each key has one writer. After a failed PUT either body may be there, until a later PUT of the key is acknowledged.
A request to an instance that was killed is sent to another one.
"""

import http.client
import random
import threading
import time
from dataclasses import dataclass, field

from s3_checks import body_of

BUCKET = "bucket"
KEYS_PER_WRITER = 12
TRIES_MAX = 3
# Small bodies are buffered by the server and sent to another store again; larger ones are not.
SIZES = (1_000, 20_000, 20_000, 100_000, 200_000, 700_000)
BROKEN = (OSError, http.client.HTTPException)
PAUSE_SECONDS = 0.02


@dataclass
class Sample:
    """One request: what it was, when it began, how long it took, and after how many tries it succeeded."""

    kind: str
    phase: str
    began: float
    seconds: float
    tries: int = 1


@dataclass
class LoadResults:
    """What all clients saw. `failures` must stay empty."""

    phase: str = "healthy"
    samples: list = field(default_factory=list)
    failures: list = field(default_factory=list)

    def slowest(self, kind, is_chosen):
        """The longest duration of a kind of request in the chosen phases."""
        chosen = [sample.seconds for sample in self.samples if sample.kind == kind and is_chosen(sample.phase)]
        assert chosen, f"no {kind} in these phases: {sorted({sample.phase for sample in self.samples})}"
        return max(chosen)

    def count(self, kind, phase):
        return sum(sample.kind == kind and sample.phase == phase for sample in self.samples)


class LoadClient(threading.Thread):
    """One client; `run` repeats `step` until the load stops."""

    pause_seconds = PAUSE_SECONDS

    def __init__(self, name, servers, results, stopping):
        super().__init__(daemon=True)
        self.name, self.servers = name, servers
        self.results, self.stopping = results, stopping
        self.random = random.Random(name)
        # The phase in which the request that is in progress began.
        self.waiting_since = None

    def run(self):
        try:
            while not self.stopping.is_set():
                self.waiting_since = self.results.phase
                self.step()
                self.waiting_since = None
                self.stopping.wait(self.pause_seconds)
        except BaseException as fault:
            self.results.failures.append(f"{self.name} ended: {fault!r}")

    def request(self, method, key, **options):
        """Sends a request to an instance that runs."""
        while True:
            server = self.random.choice([server for server in self.servers if server.process.poll() is None])
            try:
                return server.raw().request(method, f"/{BUCKET}/{key}", **options)
            except BROKEN:
                # SIGKILL closes the connection a moment before the process has ended.
                time.sleep(PAUSE_SECONDS)
                if server.process.poll() is None:
                    raise

    def note(self, kind, began, phase, tries=1):
        self.results.samples.append(Sample(kind, phase, began, time.monotonic() - began, tries))

    def fail(self, what):
        self.results.failures.append(f"{time.monotonic():.3f} {self.results.phase}: {what}")

    def read(self, key, bodies, span=None):
        """A GET must return one of the bodies, on its first try and with its full length."""
        began, phase = time.monotonic(), self.results.phase
        headers = {"Range": f"bytes={span[0]}-{span[1]}"} if span else None
        try:
            answer = self.request("GET", key, headers=headers)
        except BROKEN as broken:
            return self.fail(f"GET of {key}, begun in {phase}, was cut off: {broken!r}")
        self.note("GET", began, phase)
        expected = [body[span[0] : span[1] + 1] if span else body for body in bodies]
        if answer.status != (206 if span else 200):
            return self.fail(f"GET of {key}: {answer.status} {answer.body[:300]}")
        if answer.body not in expected:
            self.fail(f"GET of {key} returned {len(answer.body)} wrong bytes, expected {[*map(len, expected)]}")
        return None


class Writer(LoadClient):
    """Overwrites, reads and deletes its own keys."""

    def __init__(self, *arguments, sizes=SIZES):
        super().__init__(*arguments)
        self.sizes = sizes
        self.keys = [f"{self.name}-{number}" for number in range(KEYS_PER_WRITER)]
        # The bodies that a read may return; none for a deleted key.
        self.bodies = {key: [] for key in self.keys}
        self.number = 0

    def step(self):
        key = self.random.choice(self.keys)
        if self.random.random() < 0.6 or not self.bodies[key]:
            self.put(key)
        elif self.random.random() < 0.15:
            self.delete(key)
        else:
            self.read(key, self.bodies[key])

    def put(self, key):
        self.number += 1
        body = body_of(self.random.choice(self.sizes), f"{key}/{self.number}")
        began, phase, answers = time.monotonic(), self.results.phase, []
        for tried in range(1, TRIES_MAX + 1):
            self.bodies[key] = [*self.bodies[key], body]
            answers.append(self.send("PUT", key, body))
            if answers[-1] == 200:
                self.bodies[key] = [body]
                return self.note("PUT", began, phase, tried)
        return self.fail(f"PUT of {key} failed {TRIES_MAX} times: {answers}")

    def delete(self, key):
        for _ in range(TRIES_MAX):
            if self.send("DELETE", key, b"") == 204:
                self.bodies[key] = []
                return
        self.fail(f"DELETE of {key} failed {TRIES_MAX} times")

    def send(self, method, key, body):
        """The status of a change, or why it got none."""
        try:
            answer = self.request(method, key, body=body)
        except BROKEN as broken:
            return repr(broken)
        return answer.status if answer.status < 300 else (answer.status, answer.code, answer.body[:200])


class Reader(LoadClient):
    """Reads objects that do not change."""

    def __init__(self, bodies, *arguments):
        super().__init__(*arguments)
        self.bodies = bodies

    def step(self):
        key = self.random.choice(list(self.bodies))
        body = self.bodies[key]
        span = None
        if self.random.random() < 0.3:
            first = self.random.randrange(len(body))
            span = (first, self.random.randrange(first, len(body)))
        self.read(key, [body], span)
