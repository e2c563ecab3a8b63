"""A wire to a real S3 server on which things go wrong on purpose: one request at a time, each fault counted."""

import socket
import struct
import threading
import time
from collections import Counter
from dataclasses import dataclass
from urllib.parse import unquote

from gatekeeper import Door, Gatekeeper
from rest import CANARIES, IDENTITY

# What can happen to a request; `refuse` happens to the whole door.
DELAY, RESET, SWALLOW, LATE, REFUSE = "delay", "reset", "swallow", "late", "refuse"
CHANGES = {"PUT", "POST", "DELETE"}
LAND_SECONDS_MAX = 60
CLOSE_AT_ONCE = struct.pack("ii", 1, 0)


@dataclass
class WireFault:
    """Waits for a request that it can happen to."""

    kind: str
    seconds: float

    def fits(self, command, path):
        place = unquote(path)
        if self.kind == DELAY:
            return True
        # A store that is being tried out would hardly ever be attached, and then meets no more faults.
        if CANARIES in place:
            return False
        # An identity mark that lands late would be a store that went back in time, which freezes it: rightly.
        return self.kind == RESET or (command in CHANGES and not (self.kind == LATE and IDENTITY in place))


class FaultyDoor(Door):
    """Passes requests on, but for those that a fault is waiting for."""

    def handle(self):
        try:
            super().handle()
        except OSError:
            # Whoever asked is gone.
            pass

    def answer_request(self):
        wire = self.server.keeper
        fault = None if wire.is_shut else wire.take(self.command, self.path)
        if wire.is_shut or (fault and fault.kind == RESET):
            return self.hang_up()
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        if len(body) < length:
            self.close_connection = True
            return None
        try:
            return self.go_on(fault, body)
        except OSError:
            # Whoever asked is gone, or the store is.
            self.close_connection = True
            return None

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer_request

    def go_on(self, fault, body):
        kind = fault and fault.kind
        if kind == LATE:
            self.server.keeper.land_later(fault.seconds, lambda: self.ask_target(body))
            return self.hang_up()
        if kind == DELAY:
            time.sleep(fault.seconds)
        answer = self.ask_target(body)
        if kind == SWALLOW:
            return self.hang_up()
        return self.reply(*answer)

    def hang_up(self):
        """The other side sees a connection that was reset, with what it sent still on the way."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, CLOSE_AT_ONCE)


class FaultProxy(Gatekeeper):
    """Faults are armed one by one; each happens to the first request that fits it."""

    def __init__(self, endpoint):
        self.fired = Counter()
        self._armed, self._landing = [], []
        self._lock = threading.Lock()
        super().__init__(endpoint, FaultyDoor)

    def arm(self, kind, seconds, count=1):
        with self._lock:
            self._armed += [WireFault(kind, seconds) for _ in range(count)]

    def take(self, command, path):
        with self._lock:
            fault = next((fault for fault in self._armed if fault.fits(command, path)), None)
            if fault:
                self._armed.remove(fault)
                self.fired[fault.kind] += 1
            return fault

    def refuse(self, seconds, ending):
        """Nobody can connect for a while."""
        self.shut()
        self.fired[REFUSE] += 1
        ending.wait(seconds)
        self.open()

    def land_later(self, seconds, act):
        """Does what nobody waits for any more."""

        def land():
            time.sleep(seconds)
            try:
                act()
            except OSError:
                pass

        thread = threading.Thread(target=land, daemon=True)
        self._landing.append(thread)
        thread.start()

    def behave(self):
        """No fault happens from now on; returns once everything that was late has landed."""
        with self._lock:
            self._armed.clear()
        for thread in self._landing:
            thread.join(LAND_SECONDS_MAX)
            assert not thread.is_alive(), "a late request did not land"
