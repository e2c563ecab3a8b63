"""The states that each key may have after a kill: the last acknowledged one, or one requested since.

Every body is unique, so a read identifies the request that wrote it.
"""

import hashlib
import threading
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Outcome:
    """A state of one key: the request that made it, and the digest of its body (None: no object)."""

    request: str
    digest: str | None


ABSENT = Outcome("never written", None)


def digest_of(body):
    return hashlib.sha256(body).hexdigest()


@dataclass
class KeyHistory:
    """The possible states of a key, oldest first. The first is certain unless a later one took effect."""

    possible: list = field(default_factory=lambda: [ABSENT])

    def acknowledged(self, outcome):
        self.possible = [outcome]

    def unknown(self, outcome):
        self.possible.append(outcome)

    def certain(self):
        return self.possible[0] if len(self.possible) == 1 else None

    def observe(self, digest):
        """Records a read: states before the one that was read can never come back."""
        for position in reversed(range(len(self.possible))):
            if self.possible[position].digest == digest:
                self.possible = self.possible[position:]
                return True
        return False


class Model:
    """Every key's history. Each key belongs to one thread, so its requests never overlap."""

    def __init__(self):
        self.histories = {}
        self.counts = {}
        self._lock = threading.Lock()

    def history(self, key):
        with self._lock:
            return self.histories.setdefault(key, KeyHistory())

    def count(self, operation, outcome):
        with self._lock:
            self.counts[operation, outcome] = self.counts.get((operation, outcome), 0) + 1

    def check(self, read):
        """Reads every key and lists those with an impossible state."""
        wrong = []
        for key, history in sorted(self.histories.items()):
            digest = read(key)
            if not history.observe(digest):
                wrong.append(f"{key}: read {digest}, possible {history.possible}")
        return wrong

    def summary(self):
        """Per operation: numbers of acknowledged requests and of unknown outcomes."""
        lines = []
        for operation in sorted({operation for operation, _ in self.counts}):
            known, unknown = (self.counts.get((operation, outcome), 0) for outcome in ("acknowledged", "unknown"))
            lines.append(f"{operation} {known}+{unknown}?")
        return ", ".join(lines)
