"""A proxy that holds chosen requests, which stops the server in the middle of its work."""

import socket
import threading
from urllib.parse import urlsplit

CHUNK_BYTES = 65536


class HoldingProxy:
    """Forwards connections to `endpoint`; held requests wait until `release`."""

    def __init__(self, endpoint):
        address = urlsplit(endpoint)
        self.target = (address.hostname, address.port)
        self.words = None
        self.held = threading.Event()
        self.released = threading.Event()
        # Number of requests that were held so far, and of those that are never forwarded.
        self.held_count, self.discarded_count = 0, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def hold(self, *words):
        """From now on, requests whose first line contains all of these words wait."""
        self.words = [word.encode() for word in words]

    def discard_held(self):
        """Requests that are held at this moment are never forwarded: their client is gone."""
        self.discarded_count = self.held_count

    def release(self):
        """Forwards held requests, and holds no more."""
        self.words = None
        self.released.set()

    def close(self):
        self.release()
        self.listener.close()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(self.target)
            for source, sink, holds in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._forward, args=(source, sink, holds), daemon=True).start()

    def _forward(self, source, sink, holds):
        try:
            while chunk := source.recv(CHUNK_BYTES):
                if holds and self._matches(chunk):
                    self.held_count += 1
                    number = self.held_count
                    self.held.set()
                    self.released.wait()
                    if number <= self.discarded_count:
                        raise OSError("the client is gone")
                sink.sendall(chunk)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            # Closes both sides, whichever broke.
            source.close()
            sink.close()

    def _matches(self, chunk):
        first_line = chunk.split(b"\r\n", 1)[0]
        return self.words is not None and all(word in first_line for word in self.words)
