"""A proxy between an instance and its database that drops connections around a COMMIT."""

import socket
import threading
from collections import Counter
from urllib.parse import urlsplit

CHUNK_BYTES = 65536
# AFTER: the database gets the COMMIT and its answer is lost. BEFORE: the COMMIT never arrives.
AFTER, BEFORE = "commit unanswered", "commit lost"
COMMIT = b"COMMIT"


class DatabaseProxy:
    """Forwards connections to the database; each armed fault applies to the next COMMIT."""

    def __init__(self, url):
        address = urlsplit(url)
        self.target = (address.hostname, address.port)
        self.fired, self._armed, self._lock = Counter(), [], threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def proxied_url(self, url):
        """URL of the same database through this proxy."""
        return urlsplit(url)._replace(netloc=f"postgres@127.0.0.1:{self.port}").geturl()

    def arm(self, kind, count):
        with self._lock:
            self._armed += [kind] * count

    def disarm(self):
        with self._lock:
            self._armed.clear()

    def close(self):
        self.listener.close()

    def take(self):
        with self._lock:
            if not self._armed:
                return None
            kind = self._armed.pop(0)
            self.fired[kind] += 1
            return kind

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self.target)
            except OSError:
                client.close()
                continue
            Session(self, client, server)


class Session:
    """One connection to the database."""

    def __init__(self, proxy, client, server):
        self.proxy, self.client, self.server = proxy, client, server
        # True if the next answer must be dropped.
        self.answer_is_lost = False
        for forward in (self.forward_requests, self.forward_answers):
            threading.Thread(target=self.run, args=(forward,), daemon=True).start()

    def run(self, forward):
        try:
            forward()
        except OSError:
            pass
        for connection in (self.client, self.server):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def forward_requests(self):
        while chunk := self.client.recv(CHUNK_BYTES):
            cut = self.proxy.take() if COMMIT in chunk else None
            if cut == BEFORE:
                return
            self.answer_is_lost = cut == AFTER
            self.server.sendall(chunk)

    def forward_answers(self):
        while chunk := self.server.recv(CHUNK_BYTES):
            if self.answer_is_lost:
                return
            self.client.sendall(chunk)
