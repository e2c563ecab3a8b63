"""The states that a key may have while requests on it are lost, answered late or finished by the reaper.

A change is *acknowledged*, *refused*, or *unknown*: its answer was an error or a broken connection. An unknown change
has happened or not. One that declared a digest may also be finished later, until a change that began afterwards is
acknowledged. A change is *detached* while its client has abandoned it and its suspended server still holds it: it may
happen at any moment until the server answers.
"""

import hashlib
import itertools
import threading
import time
from dataclasses import dataclass, field

from s3_checks import body_of

_serials = itertools.count(1)
LOG_LINES = 40


@dataclass(frozen=True)
class Outcome:
    """A state of a key: the request that made it, and what a read returns (no ETag: no object)."""

    request: str
    etag: str | None = None
    pieces: tuple = ()
    # True if the reaper may finish it after its request has ended.
    is_declared: bool = False
    serial: int = field(default_factory=lambda: next(_serials))

    def body(self):
        return b"".join(body_of(size, seed) for size, seed in self.pieces)

    def size_bytes(self):
        return sum(size for size, _ in self.pieces)

    def __repr__(self):
        return f"<{self.request}>"


def absent():
    return Outcome("never written")


class History:
    """The requests on one key and the states that reads showed."""

    def __init__(self, key):
        self.key, self.lock = key, threading.RLock()
        self.log = []

    def note(self, text):
        self.log.append(f"{time.monotonic():.3f} {text}")
        del self.log[:-LOG_LINES]

    def assert_seen(self, is_possible, fits, what):
        self.note(f"{what}{'' if is_possible else '  <-- impossible'}")
        if not is_possible:
            raise AssertionError(f"{self.key}: {what}; {self.possible()}\n  " + "\n  ".join(self.log))


class OwnKey(History):
    """A key that one client changes, one request after the other.

    Keeps every pair (current state, pending changes) that is consistent with all answers and reads.
    """

    def __init__(self, key):
        super().__init__(key)
        self.states = {(absent(), frozenset())}
        self.floating = set()
        # Number of detached requests that were answered.
        self.late_completions = 0

    def possible(self):
        return f"possible {self.states}, floating {self.floating}"

    def begin(self, outcome):
        """An interrupted earlier write may be finished before this request takes effect."""
        with self.lock:
            self.note(f"asks {outcome}")
            self.states = self.reachable()
            return outcome, frozenset(self.floating)

    def acknowledged(self, ticket):
        outcome, beside = ticket
        with self.lock:
            self.note(f"acknowledged {outcome}")
            self.states = {(outcome, beside | self.floating)}

    def refused(self, ticket):
        with self.lock:
            self.note(f"refused {ticket[0]}")

    def unknown(self, ticket):
        outcome, beside = ticket
        with self.lock:
            self.note(f"unknown {outcome}")
            happened = {(outcome, beside | self.floating)}
            if outcome.is_declared:
                self.states = {(there, ahead | {outcome}) for there, ahead in self.states}
            self.states |= happened

    def detached(self, ticket):
        with self.lock:
            outcome = ticket[0]
            self.note(f"given up {outcome}")
            self.floating.add(outcome)
            self.states = {(there, ahead | {outcome}) for there, ahead in self.states}

    def completed_late(self, ticket, verdict):
        """The server has answered a detached request."""
        outcome = ticket[0]
        with self.lock:
            self.note(f"{verdict} after all {outcome}")
            self.late_completions += 1
            self.floating.discard(outcome)
            states = set()
            for there, ahead in self.states:
                left = ahead - {outcome}
                if verdict == "unknown" and outcome.is_declared:
                    states.add((there, ahead))
                elif verdict != "acknowledged" or there.serial >= outcome.serial or outcome not in ahead:
                    states.add((there, left))
                if verdict != "refused" and outcome in ahead:
                    states.add((outcome, left))
            self.states = states

    def begin_read(self):
        """The states that a read which begins now may show, including changes that complete before its answer."""
        with self.lock:
            return self.late_completions, self.reachable()

    def observe(self, read, fits, what):
        """A read showed a state for which `fits` is true; histories that do not lead to it are discarded.

        If a detached change completed during the read, the read may have come before or after it and excludes nothing.
        """
        late_completions, reachable_before = read
        with self.lock:
            is_plain = late_completions == self.late_completions
            reachable = self.reachable() if is_plain else self.reachable() | reachable_before
            seen = {state for state in reachable if fits(state[0])}
            self.assert_seen(seen, fits, what)
            if is_plain:
                self.states = seen

    def reachable(self):
        reachable = set(self.states)
        for _, ahead in self.states:
            # A late promotion ends all other pending changes, except detached ones.
            reachable |= {(late, frozenset(ahead & self.floating) - {late}) for late in ahead}
        return reachable

    def certain(self):
        """The state, if only one is possible and nothing is pending; otherwise None."""
        with self.lock:
            state = next(iter(self.states))
            return state[0] if len(self.states) == 1 and not state[1] else None


@dataclass
class Change:
    """One change of a shared key: when it began, and when it could no longer happen except by a late promotion."""

    outcome: Outcome
    began: float
    ended: float = float("inf")
    is_acknowledged: bool = False


class SharedKey(History):
    """A key that many clients change: a read shows a requested state that no acknowledged change replaced before."""

    def __init__(self, key):
        super().__init__(key)
        self.changes = [Change(absent(), float("-inf"), float("-inf"), True)]

    def possible(self):
        return f"{len(self.changes)} changes"

    def begin(self, outcome):
        with self.lock:
            self.changes.append(Change(outcome, time.monotonic()))
            self.note(f"asks {outcome}")
            return self.changes[-1]

    def acknowledged(self, change):
        with self.lock:
            change.ended, change.is_acknowledged = time.monotonic(), True
            self.note(f"acknowledged {change.outcome}")

    def unknown(self, change):
        with self.lock:
            change.ended = time.monotonic()
            self.note(f"unknown {change.outcome}")

    def refused(self, change):
        with self.lock:
            self.changes.remove(change)
            self.note(f"refused {change.outcome}")

    def detached(self, change):
        self.note(f"given up {change.outcome}")

    def completed_late(self, change, verdict):
        getattr(self, verdict)(change)

    def begin_read(self):
        return time.monotonic()

    def observe(self, read, fits, what):
        with self.lock:
            # The latest beginning of a change that was acknowledged before the read began.
            settled = max(change.began for change in self.changes if change.is_acknowledged and change.ended < read)
            possible = [change for change in self.changes if change.ended >= settled and fits(change.outcome)]
            self.assert_seen(possible, fits, what)

    def certain(self):
        return None


def etag_of_parts(bodies):
    joined = b"".join(hashlib.md5(body).digest() for body in bodies)
    return f'"{hashlib.md5(joined).hexdigest()}-{len(bodies)}"'
