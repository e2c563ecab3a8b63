"""Three concurrent fault schedules, generated from a seed, and the class that executes them."""

import os
import random
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass

from database_proxy import AFTER, BEFORE
from fault_proxy import DELAY, LATE, REFUSE, RESET, SWALLOW
from polling import eventually
from server_process import START_SECONDS

KILL, FREEZE, FAST, IMMEDIATE = "kill", "freeze", "database fast", "database immediate"
HOST_KINDS = (KILL, FREEZE, FAST, IMMEDIATE)
STORE_KINDS = (DELAY, RESET, SWALLOW, LATE, REFUSE)
COMMIT_KINDS = (AFTER, BEFORE)
# Duration of each fault. A freeze lasts longer than leases and claims; late requests arrive within the late-write
# window.
SECONDS = {
    KILL: (0.0, 0.5),
    FREEZE: (2.6, 3.2),
    FAST: (0.1, 0.8),
    IMMEDIATE: (0.1, 0.8),
    DELAY: (0.1, 1.2),
    RESET: (0, 0),
    SWALLOW: (0, 0),
    LATE: (0.2, 2.0),
    REFUSE: (0.2, 1.2),
    AFTER: (0, 0),
    BEFORE: (0, 0),
}
HOST_PAUSE_SECONDS = (0.4, 1.2)
STORE_PAUSE_SECONDS = (0.1, 0.6)
COMMIT_PAUSE_SECONDS = (0.3, 1.2)
REQUESTS_MAX = 3
HOLD_SECONDS = 0.6


@dataclass(frozen=True)
class Event:
    """A fault that begins after `pause`, on one of two instances or proxies, for `seconds`."""

    pause: float
    kind: str
    target: int
    seconds: float
    requests: int


def schedule(seed, kinds, pause_seconds):
    """Yields events endlessly; every kind occurs once in each round."""
    rng = random.Random(f"{seed}/{kinds}")
    while True:
        for kind in rng.sample(kinds, len(kinds)):
            seconds = rng.uniform(*SECONDS[kind])
            yield Event(rng.uniform(*pause_seconds), kind, rng.randrange(2), seconds, rng.randint(1, REQUESTS_MAX))


class Chaos:
    """Executes the schedules until `end` is called, and leaves everything running."""

    def __init__(self, seed, servers, database, store_proxies, database_proxies):
        self.seed, self.servers, self.database = seed, servers, database
        self.store_proxies, self.database_proxies = store_proxies, database_proxies
        self.ending, self.fired, self.faults = threading.Event(), Counter(), []
        schedules = (
            (self.on_hosts, HOST_KINDS, HOST_PAUSE_SECONDS),
            (self.on_store_requests, STORE_KINDS, STORE_PAUSE_SECONDS),
            (self.on_commits, COMMIT_KINDS, COMMIT_PAUSE_SECONDS),
        )
        self.threads = [threading.Thread(target=self.run_schedule, args=each, daemon=True) for each in schedules]

    def start(self):
        for thread in self.threads:
            thread.start()

    def run_schedule(self, act, kinds, pause_seconds):
        try:
            for number, event in enumerate(schedule(self.seed, kinds, pause_seconds)):
                # The first round is completed, however long it takes.
                if self.ending.wait(event.pause) and number >= len(kinds):
                    return
                act(event)
        except BaseException as fault:
            self.faults.append(fault)

    def end(self):
        """Ends all faults; afterwards everything runs without faults."""
        self.ending.set()
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive(), "a fault schedule did not end"
        for proxy in (*self.store_proxies, *self.database_proxies):
            proxy.disarm()
            self.fired.update(proxy.fired)
        if self.faults:
            raise self.faults[0]

    def on_hosts(self, event):
        self.delay_some_requests()
        server = self.servers[event.target]
        if event.kind == KILL:
            assert "panicked" not in server.log()
            server.kill()
            time.sleep(event.seconds)
            start_like_a_supervisor(server)
        elif event.kind == FREEZE:
            os.kill(server.process.pid, signal.SIGSTOP)
            try:
                time.sleep(event.seconds)
            finally:
                os.kill(server.process.pid, signal.SIGCONT)
        else:
            self.database.stop(event.kind.split()[1])
            try:
                time.sleep(event.seconds)
            finally:
                self.database.restart()
        self.fired[event.kind] += 1

    def delay_some_requests(self):
        """Delays requests to the stores, so that the next fault hits writes in progress."""
        before = [proxy.fired[DELAY] for proxy in self.store_proxies]
        for proxy in self.store_proxies:
            proxy.arm(DELAY, HOLD_SECONDS, REQUESTS_MAX)
        deadline = time.monotonic() + HOLD_SECONDS
        while [proxy.fired[DELAY] for proxy in self.store_proxies] == before and time.monotonic() < deadline:
            time.sleep(0.01)

    def on_store_requests(self, event):
        proxy = self.store_proxies[event.target]
        if event.kind == REFUSE:
            proxy.refuse(event.seconds, self.ending)
        else:
            proxy.arm(event.kind, event.seconds, event.requests)

    def on_commits(self, event):
        self.database_proxies[event.target].arm(event.kind, event.requests)


def start_like_a_supervisor(server):
    """Starts the instance again if it exits during start-up because its database is unavailable."""

    def is_up():
        if server.process.poll() is not None:
            server.spawn()
        return server.process.poll() is None and server.is_ready()

    eventually(is_up, START_SECONDS, 0.05, "the instance did not start")
