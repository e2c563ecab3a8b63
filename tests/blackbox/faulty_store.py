"""A proxy to a real S3 server that fails as a whole: it stops, hangs, answers with errors, cuts or stalls bodies."""

import contextlib
import socket
import struct
import threading

import seaweed
from refusing_proxy import ProxyHandler, RefusingProxy

# What the store does. `WORKS` is the healthy state; `STOPS` refuses connections.
WORKS, STOPS, HANGS, ERRORS, WRITES_FAIL, CUTS = "works", "stops", "hangs", "errors", "writes fail", "cuts bodies"
STALLS = "stalls bodies"
INTERNAL_ERROR = b"<Error><Code>InternalError</Code><Message>no</Message></Error>"
WRITES = {"PUT", "POST"}
CLOSE_AT_ONCE = struct.pack("ii", 1, 0)


class FaultyHandler(ProxyHandler):
    """Forwards requests as long as the store works."""

    def handle(self):
        # The client or the store may be gone.
        with contextlib.suppress(OSError):
            super().handle()

    def answer_request(self):
        store = self.server.proxy
        if store.mode == HANGS:
            return self.never_answer()
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if store.mode == ERRORS or (store.mode == WRITES_FAIL and self.command in WRITES):
            store.failed += 1
            return self.reply(500, {"Content-Type": "application/xml"}, INTERNAL_ERROR)
        answer = self.forward(body)
        # A store that hangs or stops meanwhile has done what was asked, and does not answer.
        if store.mode == HANGS:
            return self.never_answer()
        if store.mode in (CUTS, STALLS) and self.command == "GET" and "/.s3o/" not in self.path:
            return self.send_half(*answer)
        return self.reply(*answer)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer_request

    def never_answer(self):
        store = self.server.proxy
        store.failed += 1
        store.resumed.wait()
        self.close_connection = True

    def send_half(self, status, headers, body):
        """Sends the head of the answer and half of the body; then resets the connection, or leaves it open."""
        if status >= 300 or len(body) < 2:
            return self.reply(status, headers, body)
        store = self.server.proxy
        stalls = store.mode == STALLS
        store.failed += 1
        self.reply(status, headers, body, sent=len(body) // 2)
        if stalls:
            self.wfile.flush()
            store.resumed.wait()
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, CLOSE_AT_ONCE)


class FaultyStore(RefusingProxy):
    """One bucket of a real S3 server, behind a proxy with a mode."""

    def __init__(self, name):
        self.direct = seaweed.fresh_bucket()
        self.mode, self.failed = WORKS, 0
        self.resumed = threading.Event()
        super().__init__(self.direct["endpoint"], FaultyHandler)
        self.name = name
        self.backend = {**self.direct, "name": name, "endpoint": self.endpoint}

    def fail(self, mode):
        self.failed = 0
        self.resumed.clear()
        self.mode = mode
        if mode == STOPS:
            self.stop()

    def recover(self):
        stopped, self.mode = self.mode == STOPS, WORKS
        self.resumed.set()
        if stopped:
            self.start()

    def wipe(self):
        """Deletes everything in the bucket, the identity included; returns the number of deleted objects."""
        direct, deleted = self.direct, 0
        store = seaweed.connect(direct["endpoint"], direct["access_key_id"], direct["secret_access_key"])
        while listed := store.list_objects_v2(Bucket=direct["bucket"]).get("Contents", []):
            # The keys are sorted: the identity is deleted before the bytes.
            doomed = [{"Key": entry["Key"]} for entry in listed]
            store.delete_objects(Bucket=direct["bucket"], Delete={"Objects": doomed})
            deleted += len(doomed)
        return deleted

    def close(self):
        self.resumed.set()
        if not self.is_down:
            self.stop()
