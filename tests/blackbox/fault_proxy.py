"""A proxy to a real S3 server that injects faults into single requests and counts them."""

import socket
import struct
import threading
import time
from collections import Counter
from dataclasses import dataclass
from urllib.parse import unquote

from refusing_proxy import ProxyHandler, RefusingProxy
from settled_state import IDENTITY, PROBE_OBJECTS

# Faults of a request; `refuse` stops the whole proxy.
DELAY, RESET, SWALLOW, LATE, REFUSE = "delay", "reset", "swallow", "late", "refuse"
CHANGES = {"PUT", "POST", "DELETE"}
DELAYED_SECONDS_MAX = 60
CLOSE_AT_ONCE = struct.pack("ii", 1, 0)


@dataclass
class ProxyFault:
    """A fault that is armed for the next request it fits."""

    kind: str
    seconds: float

    def fits(self, command, path):
        place = unquote(path)
        if self.kind == DELAY:
            return True
        # Faults on probe objects would keep the store from ever being attached.
        if PROBE_OBJECTS in place:
            return False
        # A late identity mark looks like an older store, which s3o freezes as it should.
        return self.kind == RESET or (command in CHANGES and not (self.kind == LATE and IDENTITY in place))


class FaultHandler(ProxyHandler):
    """Forwards requests, and applies the armed fault to those that it fits."""

    def handle(self):
        try:
            super().handle()
        except OSError:
            # The client is gone.
            pass

    def answer_request(self):
        proxy = self.server.proxy
        fault = None if proxy.is_down else proxy.take(self.command, self.path)
        if proxy.is_down or (fault and fault.kind == RESET):
            return self.reset_connection()
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        if len(body) < length:
            self.close_connection = True
            return None
        try:
            return self.forward_with_fault(fault, body)
        except OSError:
            # The client or the store is gone.
            self.close_connection = True
            return None

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer_request

    def forward_with_fault(self, fault, body):
        kind = fault and fault.kind
        if kind == LATE:
            self.server.proxy.send_later(fault.seconds, lambda: self.forward(body))
            return self.reset_connection()
        if kind == DELAY:
            time.sleep(fault.seconds)
        answer = self.forward(body)
        if kind == SWALLOW:
            return self.reset_connection()
        return self.reply(*answer)

    def reset_connection(self):
        """Closes with a TCP reset."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, CLOSE_AT_ONCE)


class FaultProxy(RefusingProxy):
    """Each armed fault applies to the next request that it fits."""

    def __init__(self, endpoint):
        self.fired = Counter()
        self._armed, self._delayed = [], []
        self._lock = threading.Lock()
        super().__init__(endpoint, FaultHandler)

    def arm(self, kind, seconds, count=1):
        with self._lock:
            self._armed += [ProxyFault(kind, seconds) for _ in range(count)]

    def take(self, command, path):
        with self._lock:
            fault = next((fault for fault in self._armed if fault.fits(command, path)), None)
            if fault:
                self._armed.remove(fault)
                self.fired[fault.kind] += 1
            return fault

    def refuse(self, seconds, ending):
        """Refuses connections for a time."""
        self.stop()
        self.fired[REFUSE] += 1
        ending.wait(seconds)
        self.start()

    def send_later(self, seconds, act):
        """Sends a request after a delay, when its client is gone."""

        def send():
            time.sleep(seconds)
            try:
                act()
            except OSError:
                pass

        thread = threading.Thread(target=send, daemon=True)
        self._delayed.append(thread)
        thread.start()

    def disarm(self):
        """Disarms all faults; returns once all delayed requests were sent."""
        with self._lock:
            self._armed.clear()
        for thread in self._delayed:
            thread.join(DELAYED_SECONDS_MAX)
            assert not thread.is_alive(), "a delayed request was not sent"
