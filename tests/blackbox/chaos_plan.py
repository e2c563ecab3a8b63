"""What goes wrong and when, drawn from a seed: three plans that run side by side, and the hands that carry them out."""

import os
import random
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass

from database_wire import AFTER, BEFORE
from fault_proxy import DELAY, LATE, REFUSE, RESET, SWALLOW
from polling import eventually
from running import START_SECONDS

KILL, FREEZE, FAST, IMMEDIATE = "kill", "freeze", "database fast", "database immediate"
HOST_KINDS = (KILL, FREEZE, FAST, IMMEDIATE)
WIRE_KINDS = (DELAY, RESET, SWALLOW, LATE, REFUSE)
COMMIT_KINDS = (AFTER, BEFORE)
# How long each lasts. A freeze outlasts leases and claims, whatever is late lands within the window for that.
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
WIRE_PAUSE_SECONDS = (0.1, 0.6)
COMMIT_PAUSE_SECONDS = (0.3, 1.2)
REQUESTS_MAX = 3
HOLD_SECONDS = 0.6


@dataclass(frozen=True)
class Event:
    """After a pause, something goes wrong with one of two instances or one of two wires of a kind, for a while."""

    pause: float
    kind: str
    target: int
    seconds: float
    requests: int


def plan(seed, kinds, pause_seconds):
    """Events without end; every kind happens once in each round."""
    dice = random.Random(f"{seed}/{kinds}")
    while True:
        for kind in dice.sample(kinds, len(kinds)):
            seconds = dice.uniform(*SECONDS[kind])
            yield Event(dice.uniform(*pause_seconds), kind, dice.randrange(2), seconds, dice.randint(1, REQUESTS_MAX))


class Chaos:
    """Carries the plans out until it is told to end, and leaves everything running."""

    def __init__(self, seed, servers, database, wires, database_wires):
        self.seed, self.servers, self.database = seed, servers, database
        self.wires, self.database_wires = wires, database_wires
        self.ending, self.fired, self.faults = threading.Event(), Counter(), []
        plans = (
            (self.on_hosts, HOST_KINDS, HOST_PAUSE_SECONDS),
            (self.on_wires, WIRE_KINDS, WIRE_PAUSE_SECONDS),
            (self.on_commits, COMMIT_KINDS, COMMIT_PAUSE_SECONDS),
        )
        self.threads = [threading.Thread(target=self.carry_out, args=each, daemon=True) for each in plans]

    def start(self):
        for thread in self.threads:
            thread.start()

    def carry_out(self, act, kinds, pause_seconds):
        try:
            for number, event in enumerate(plan(self.seed, kinds, pause_seconds)):
                # The first round is done in full, however long it takes.
                if self.ending.wait(event.pause) and number >= len(kinds):
                    return
                act(event)
        except BaseException as fault:
            self.faults.append(fault)

    def end(self):
        """Everything runs again and behaves."""
        self.ending.set()
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive(), "a fault does not end"
        for wire in (*self.wires, *self.database_wires):
            wire.behave()
            self.fired.update(wire.fired)
        if self.faults:
            raise self.faults[0]

    def on_hosts(self, event):
        self.hold_up_some_requests()
        server = self.servers[event.target]
        if event.kind == KILL:
            assert "panicked" not in server.log()
            server.kill()
            time.sleep(event.seconds)
            start_as_a_supervisor(server)
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

    def hold_up_some_requests(self):
        """What happens to an instance or to the database then meets writes that are on their way to a store."""
        before = [wire.fired[DELAY] for wire in self.wires]
        for wire in self.wires:
            wire.arm(DELAY, HOLD_SECONDS, REQUESTS_MAX)
        deadline = time.monotonic() + HOLD_SECONDS
        while [wire.fired[DELAY] for wire in self.wires] == before and time.monotonic() < deadline:
            time.sleep(0.01)

    def on_wires(self, event):
        wire = self.wires[event.target]
        if event.kind == REFUSE:
            wire.refuse(event.seconds, self.ending)
        else:
            wire.arm(event.kind, event.seconds, event.requests)

    def on_commits(self, event):
        self.database_wires[event.target].arm(event.kind, event.requests)


def start_as_a_supervisor(server):
    """An instance that loses its database while it starts ends, and is started again."""

    def is_up():
        if server.process.poll() is not None:
            server.spawn()
        return server.process.poll() is None and server.is_ready()

    eventually(is_up, START_SECONDS, 0.05, "the instance does not start")
