"""A Redis server that a test may kill, suspend and fill with invalid values, and a minimal client for it."""

import os
import signal
import socket
import subprocess
from pathlib import Path

from server_process import ROOT

SCRIPT = ROOT / "scripts/redis.sh"


def encoded(*words):
    """A command in the Redis protocol."""
    framed = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(framed) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in framed)


def answer_from(stream):
    kind, line = (head := stream.readline())[:1], head[1:-2]
    if kind == b"$":
        return None if line == b"-1" else stream.read(int(line) + 2)[:-2]
    if kind == b"*":
        return [answer_from(stream) for _ in range(int(line))]
    if kind == b":":
        return int(line)
    assert kind == b"+", head
    return line


class OwnRedis:
    """One Redis server in its own folder."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.url = self._script("start").strip()
        self.port = int(self.url.rpartition(":")[2])

    def _script(self, verb):
        done = subprocess.run([SCRIPT, verb, self.folder], check=True, capture_output=True, text=True, timeout=30)
        return done.stdout

    def _signal(self, number):
        os.kill(int((self.folder / "pid").read_text()), number)

    def kill(self):
        self._script("stop")

    def restart(self):
        self._script("restart")

    def suspend(self):
        self._signal(signal.SIGSTOP)

    def resume(self):
        self._signal(signal.SIGCONT)

    def run(self, *words):
        """Sends one command and returns its answer."""
        with socket.create_connection(("127.0.0.1", self.port), 10) as connection:
            connection.sendall(encoded(*words))
            with connection.makefile("rb") as stream:
                return answer_from(stream)

    def bodies(self):
        """The keys of all cached bodies."""
        return self.run("KEYS", "s3o:*:body:*")
