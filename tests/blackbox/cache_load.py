"""Concurrent readers and writers whose every answer is checked against the acknowledged changes.

Every change of a key has a number, and every body contains the number of its change. A reader records the last change
that was answered before it sends its request; the answer must show that change or a later one.
"""

import random
import socket
import threading
import time
from dataclasses import dataclass, field

BODY_BYTES = 2048
PIPELINED = 8
EXPIRY_MILLIS = 50


def body_of(key, change):
    """The body of one change: unique, and recognisable if it is truncated or mixed."""
    return (f"{key}:{change:08d}:" * (BODY_BYTES // 8)).encode()[:BODY_BYTES]


@dataclass
class Key:
    """The changes of one key."""

    name: str
    # For each change: True if an object exists after it.
    exists: list = field(default_factory=lambda: [False])
    begun: int = 0
    answered: int = 0

    def begin(self, exists):
        self.exists.append(exists)
        self.begun += 1
        return self.begun

    def end(self, change):
        self.answered = change

    def check(self, floor, status, body):
        """The error in an answer to a request that was sent after change `floor` was answered; None if it is right."""
        possible = range(floor, self.begun + 1)
        if status == 404:
            return None if any(not self.exists[change] for change in possible) else "it is missing"
        for change in possible:
            if self.exists[change] and body == body_of(self.name, change):
                return None
        return f"it is {body[:40]!r}, not one of changes {floor} to {self.begun}"


class Connection:
    """One persistent connection; requests are signed once and sent repeatedly."""

    def __init__(self, server):
        self.raw, self.requests = server.raw(), {}
        self.connect()

    def connect(self):
        self.socket = socket.create_connection(("127.0.0.1", self.raw.port), 60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream = self.socket.makefile("rb", 1 << 16)

    def request(self, key):
        if key.name not in self.requests:
            target, headers, _ = self.raw.prepare("GET", self.raw.path("bucket", key.name))
            lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            self.requests[key.name] = f"GET {target} HTTP/1.1\r\n{lines}\r\n".encode()
        return self.requests[key.name]

    def send(self, keys):
        self.socket.sendall(b"".join(map(self.request, keys)))

    def receive(self):
        status, length = int(self.stream.readline().split()[1]), 0
        while (line := self.stream.readline()) != b"\r\n":
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        return status, self.stream.read(length)


class Load:
    """Readers and writers on several instances, until a number of answers were checked."""

    def __init__(self, servers, checks, keys=24, readers=4):
        self.servers, self.wanted = servers, checks
        self.keys = [Key(f"key-{number}") for number in range(keys)]
        self.readers = readers
        self.checked = self.changes = 0
        # Bodies of 503 answers.
        self.unavailable = []
        self.wrong, self.ended, self.lock = [], threading.Event(), threading.Lock()

    def run(self, meanwhile=None):
        """Runs to the end; calls `meanwhile` with this load while it runs."""
        threads = [threading.Thread(target=self._guarded, args=(self._write, number)) for number in range(2)]
        threads += [threading.Thread(target=self._guarded, args=(self._read, number)) for number in range(self.readers)]
        for thread in threads:
            thread.start()
        try:
            if meanwhile:
                meanwhile(self)
        finally:
            for thread in threads:
                thread.join()
        assert not self.wrong, self.wrong[:5]
        return self

    def wait_until(self, share):
        """Returns when this share of the checks is done."""
        while self.checked < share * self.wanted and not self.ended.is_set():
            time.sleep(0.02)

    def _guarded(self, work, number):
        try:
            work(number)
        except Exception as error:  # noqa: BLE001 - any error of a thread fails the test
            self.wrong.append(repr(error))
        finally:
            self.ended.set()

    def _read(self, number):
        connection, rng = Connection(self.servers[number % len(self.servers)]), random.Random(number)
        while not self.ended.is_set():
            asked = [(key, key.answered) for key in rng.choices(self.keys, k=PIPELINED)]
            connection.send([key for key, _ in asked])
            faults, checked = [], 0
            for key, floor in asked:
                status, body = connection.receive()
                if status == 503:
                    self.unavailable.append(body)
                    continue
                checked += 1
                fault = key.check(floor, status, body) if status in (200, 404) else f"status {status}"
                if fault:
                    faults.append(f"{key.name} on instance {number % len(self.servers)}: {fault}")
            self._note(checked, faults)

    def _note(self, checked, faults):
        with self.lock:
            self.checked += checked
            self.wrong += faults
            if self.wrong or self.checked >= self.wanted:
                self.ended.set()

    def _write(self, number):
        raws, rng = [server.raw() for server in self.servers], random.Random(100 + number)
        connections = [raw.connect() for raw in raws]
        mine = self.keys[number::2]
        while not self.ended.is_set():
            key, at = rng.choice(mine), rng.randrange(len(raws))
            path = raws[at].path("bucket", key.name)
            what = rng.random()
            if what < 0.25:
                self._put_expiring(key, raws[at], path, connections[at])
            elif not key.exists[-1] or what < 0.75:
                self._put(key, raws[at], path, connections[at])
            else:
                change = key.begin(False)
                assert raws[at].request("DELETE", path, on=connections[at]).status == 204
                key.end(change)
            with self.lock:
                self.changes += 1
            time.sleep(0.01)

    @staticmethod
    def _put(key, raw, path, connection):
        change = key.begin(True)
        answer = raw.request("PUT", path, body=body_of(key.name, change), on=connection)
        assert answer.status == 200, answer
        key.end(change)

    @staticmethod
    def _put_expiring(key, raw, path, connection):
        """Writes an object that expires soon; no request deletes it."""
        written, gone = key.begin(True), key.begin(False)
        headers = {"x-s3o-expires-after": f"{EXPIRY_MILLIS}ms"}
        answer = raw.request("PUT", path, body=body_of(key.name, written), headers=headers, on=connection)
        assert answer.status == 200, answer
        key.end(written)
        # Its lifetime began at the commit, before the answer.
        time.sleep((EXPIRY_MILLIS + 2) / 1000)
        key.end(gone)
