"""A proxy to a real S3 server that counts requests and the bytes of their bodies, independently of s3o."""

import threading
import time

from refusing_proxy import ProxyHandler, RefusingProxy


class CountingHandler(ProxyHandler):
    """Forwards requests and counts each of them."""

    def answer_request(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        proxy = self.server.proxy
        proxy.count(self.command, len(body))
        status, headers, answer = self.forward(body)
        try:
            self.reply(status, headers, answer)
        finally:
            proxy.count_answer(0 if self.command == "HEAD" else len(answer))

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer_request


class CountingProxy(RefusingProxy):
    """Counts what passes."""

    def __init__(self, endpoint):
        # Pairs of monotonic time and method, one per request.
        self.requests = []
        self.ingress_bytes = self.egress_bytes = self.answered = 0
        self._lock = threading.Lock()
        super().__init__(endpoint, CountingHandler)

    def count(self, method, body_bytes):
        with self._lock:
            self.requests.append((time.monotonic(), method))
            self.ingress_bytes += body_bytes

    def count_answer(self, body_bytes):
        with self._lock:
            self.egress_bytes += body_bytes
            self.answered += 1

    def totals(self):
        """Requests, egress bytes and ingress bytes; `None` while a request is in flight."""
        with self._lock:
            if self.answered != len(self.requests):
                return None
            return len(self.requests), self.egress_bytes, self.ingress_bytes

    def since(self, moment):
        """Number of requests after this moment."""
        with self._lock:
            return sum(at > moment for at, _ in self.requests)

    def busiest_second(self):
        """The largest number of requests within one second."""
        with self._lock:
            times = sorted(at for at, _ in self.requests)
        first, most = 0, 0
        for last, at in enumerate(times):
            while at - times[first] >= 1:
                first += 1
            most = max(most, last - first + 1)
        return most
