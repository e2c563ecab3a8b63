"""A proxy to a real S3 server that can refuse deletes, drop answers to PUTs, or refuse all connections."""

import contextlib
import html
import http.client
import re
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

from ports import free_ports

DENIED = b"<Error><Code>AccessDenied</Code><Message>Access Denied.</Message></Error>"
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


class ProxyHandler(BaseHTTPRequestHandler):
    """Forwards requests unchanged, so that their signatures stay valid."""

    protocol_version = "HTTP/1.1"

    def answer_request(self):
        proxy = self.server.proxy
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if proxy.is_down:
            self.close_connection = True
            return
        keys = self.deleted_keys(body)
        if keys:
            proxy.delete_requests.extend((time.monotonic(), key) for key in keys)
        if keys and proxy.refuses_deletes and self.command == "DELETE":
            self.reply(403, {"Content-Type": "application/xml"}, DENIED)
        elif keys and proxy.refuses_deletes:
            errors = "".join(
                f"<Error><Key>{html.escape(key)}</Key><Code>AccessDenied</Code><Message>no</Message></Error>"
                for key in keys
            )
            self.reply(200, {"Content-Type": "application/xml"}, f"<DeleteResult>{errors}</DeleteResult>".encode())
        else:
            self.forward_and_reply(body)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer_request

    def deleted_keys(self, body):
        """Keys that a request deletes, without s3o's own below `.s3o/`."""
        place = urlsplit(self.path)
        if self.command == "DELETE":
            keys = [unquote(place.path).split("/", 2)[2]]
        elif self.command == "POST" and place.query.startswith("delete"):
            keys = [html.unescape(key) for key in re.findall(r"<Key>(.*?)</Key>", body.decode())]
        else:
            keys = []
        return [key for key in keys if not key.startswith(".s3o/")]

    def forward_and_reply(self, body):
        answer = self.forward(body)
        if self.server.proxy.drops_answer(self.command, self.path):
            self.close_connection = True
            return
        self.reply(*answer)

    def forward(self, body):
        """Status, headers and body of the real server's answer."""
        target = http.client.HTTPConnection(self.server.proxy.target, timeout=30)
        try:
            target.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                target.putheader(name, value)
            target.endheaders(body or None)
            answer = target.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            target.close()

    def reply(self, status, headers, body, sent=None):
        """Sends an answer, or only the first `sent` bytes of its body."""
        self.send_response_only(status)
        length = headers.get("Content-Length") if self.command == "HEAD" else None
        for name, value in headers.items():
            if name.lower() not in HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", length or str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[:sent])

    def log_message(self, *arguments):
        pass


class Listener(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.connections = set()

    def get_request(self):
        connection, address = super().get_request()
        self.connections.add(connection)
        return connection, address

    def shutdown_request(self, connection):
        self.connections.discard(connection)
        super().shutdown_request(connection)

    def close_connections(self):
        for connection in list(self.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class RefusingProxy:
    """Listens on its own port between `start` and `stop`."""

    def __init__(self, endpoint, handler=ProxyHandler):
        self.handler = handler
        self.target = urlsplit(endpoint).netloc
        self.port = free_ports(1)[0]
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.refuses_deletes = False
        # Pairs of time and key, one per requested delete.
        self.delete_requests = []
        # PUTs to paths with this word take effect and are never answered.
        self.dropped_word = None
        self.answer_dropped = threading.Event()
        self.restored = threading.Event()
        self.start()

    def start(self):
        self.is_down = False
        self.listener = Listener(("127.0.0.1", self.port), self.handler)
        self.listener.proxy = self
        threading.Thread(target=self.listener.serve_forever, args=(0.05,), daemon=True).start()

    def drop_put_answers(self, word):
        """From now on, PUTs to paths with this word take effect, and their answers are dropped."""
        self.dropped_word = word
        self.answer_dropped.clear()
        self.restored.clear()

    def restore_answers(self):
        self.dropped_word = None
        self.restored.set()

    def drops_answer(self, command, path):
        """True if the answer must be dropped; then waits for `restore_answers` first."""
        if command != "PUT" or self.dropped_word is None or self.dropped_word not in path:
            return False
        self.answer_dropped.set()
        self.restored.wait()
        return True

    def stop(self):
        """Refuses new connections and closes the open ones."""
        self.is_down = True
        self.listener.shutdown()
        self.listener.server_close()
        self.listener.close_connections()
