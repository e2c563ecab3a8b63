"""What a key may show while requests on it are lost, answered late or finished by somebody else.

A change is *acknowledged*, *refused*, or *unknown*: its answer was an error or a broken connection. An unknown change
has happened or not; one that declared a digest of its bytes may also be finished later, until a change that began
afterwards is acknowledged. A change *floats* while its client has given it up and its server still has it, frozen: it may
happen at any moment until its server answers.
"""

import hashlib
import itertools
import threading
import time
from dataclasses import dataclass, field

from facts import body_of

_serials = itertools.count(1)
LOG_LINES = 40


@dataclass(frozen=True)
class Outcome:
    """A state of a key: which request made it, and what a read then gives (no ETag: no object)."""

    request: str
    etag: str | None = None
    pieces: tuple = ()
    # Whether somebody else may finish it after its request has ended.
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
    """What was asked of one key and what was seen of it."""

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

    Keeps every pair (what is there, what may still happen) that agrees with all that was answered and seen.
    """

    def __init__(self, key):
        super().__init__(key)
        self.states = {(absent(), frozenset())}
        self.floating = set()
        # How many requests that floated were answered.
        self.landings = 0

    def possible(self):
        return f"possible {self.states}, floating {self.floating}"

    def begin(self, outcome):
        """A write that was cut off earlier may be finished before this request takes effect."""
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

    def floats(self, ticket):
        with self.lock:
            outcome = ticket[0]
            self.note(f"given up {outcome}")
            self.floating.add(outcome)
            self.states = {(there, ahead | {outcome}) for there, ahead in self.states}

    def landed(self, ticket, verdict):
        """The server has answered a request that its client had given up."""
        outcome = ticket[0]
        with self.lock:
            self.note(f"{verdict} after all {outcome}")
            self.landings += 1
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

    def look(self):
        """What a read that begins now may show, whatever lands before its answer is here."""
        with self.lock:
            return self.landings, self.reachable()

    def saw(self, look, fits, what):
        """A read showed something that these outcomes fit: all that does not lead there did not happen.

        A read during which something landed may have come before or after it, and so rules out nothing.
        """
        landings, reachable_before = look
        with self.lock:
            is_plain = landings == self.landings
            reachable = self.reachable() if is_plain else self.reachable() | reachable_before
            seen = {state for state in reachable if fits(state[0])}
            self.assert_seen(seen, fits, what)
            if is_plain:
                self.states = seen

    def reachable(self):
        reachable = set(self.states)
        for _, ahead in self.states:
            # What is finished late puts an end to everything else that waited, unless its server still has it.
            reachable |= {(late, frozenset(ahead & self.floating) - {late}) for late in ahead}
        return reachable

    def certain(self):
        """The one state that it can be in and stay in."""
        with self.lock:
            state = next(iter(self.states))
            return state[0] if len(self.states) == 1 and not state[1] else None


@dataclass
class Change:
    """One change of a shared key: when it began, and when it could no longer happen unless it was finished late."""

    outcome: Outcome
    began: float
    ended: float = float("inf")
    is_acknowledged: bool = False


class SharedKey(History):
    """A key that many clients change at once: a read shows what somebody asked for and nobody later replaced."""

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

    def floats(self, change):
        self.note(f"given up {change.outcome}")

    def landed(self, change, verdict):
        getattr(self, verdict)(change)

    def look(self):
        return time.monotonic()

    def saw(self, look, fits, what):
        with self.lock:
            # The latest beginning of a change that was acknowledged before the look began.
            settled = max(change.began for change in self.changes if change.is_acknowledged and change.ended < look)
            possible = [change for change in self.changes if change.ended >= settled and fits(change.outcome)]
            self.assert_seen(possible, fits, what)

    def certain(self):
        return None


def etag_of_parts(bodies):
    joined = b"".join(hashlib.md5(body).digest() for body in bodies)
    return f'"{hashlib.md5(joined).hexdigest()}-{len(bodies)}"'
