"""A door in front of a real S3 server that a test can make refuse deletes, or shut altogether."""

import html
import http.client
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

from ports import free_ports

DENIED = b"<Error><Code>AccessDenied</Code><Message>Access Denied.</Message></Error>"
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


class Door(BaseHTTPRequestHandler):
    """Passes requests on as they are, so that their signatures hold."""

    protocol_version = "HTTP/1.1"

    def answer_request(self):
        keeper = self.server.keeper
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if keeper.is_shut:
            self.close_connection = True
            return
        doomed = self.doomed(body)
        if doomed:
            keeper.asked.extend((time.monotonic(), key) for key in doomed)
        if doomed and keeper.refuses_deletes and self.command == "DELETE":
            self.reply(403, {"Content-Type": "application/xml"}, DENIED)
        elif doomed and keeper.refuses_deletes:
            errors = "".join(
                f"<Error><Key>{html.escape(key)}</Key><Code>AccessDenied</Code><Message>no</Message></Error>" for key in doomed
            )
            self.reply(200, {"Content-Type": "application/xml"}, f"<DeleteResult>{errors}</DeleteResult>".encode())
        else:
            self.pass_on(body)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer_request

    def doomed(self, body):
        """The keys that a request wants to delete, s3o's own left out."""
        place = urlsplit(self.path)
        if self.command == "DELETE":
            keys = [unquote(place.path).split("/", 2)[2]]
        elif self.command == "POST" and place.query.startswith("delete"):
            keys = [html.unescape(key) for key in re.findall(r"<Key>(.*?)</Key>", body.decode())]
        else:
            keys = []
        return [key for key in keys if not key.startswith(".s3o/")]

    def pass_on(self, body):
        answer = self.ask_target(body)
        if self.server.keeper.withholds(self.command, self.path):
            self.close_connection = True
            return
        self.reply(*answer)

    def ask_target(self, body):
        """What the server behind the door says: status, headers, body."""
        target = http.client.HTTPConnection(self.server.keeper.target, timeout=30)
        try:
            target.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                target.putheader(name, value)
            target.endheaders(body or None)
            answer = target.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            target.close()

    def reply(self, status, headers, body):
        self.send_response_only(status)
        length = headers.get("Content-Length") if self.command == "HEAD" else None
        for name, value in headers.items():
            if name.lower() not in HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", length or str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *arguments):
        pass


class Listener(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128


class Gatekeeper:
    """Listens on a port of its own for as long as it is open."""

    def __init__(self, endpoint, door=Door):
        self.door = door
        self.target = urlsplit(endpoint).netloc
        self.port = free_ports(1)[0]
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.refuses_deletes = False
        # When which key was asked to be deleted.
        self.asked = []
        # The word whose PUTs are done and never answered.
        self.silent_about = None
        self.withheld = threading.Event()
        self.spoken = threading.Event()
        self.open()

    def open(self):
        self.is_shut = False
        self.listener = Listener(("127.0.0.1", self.port), self.door)
        self.listener.keeper = self
        threading.Thread(target=self.listener.serve_forever, args=(0.05,), daemon=True).start()

    def fall_silent(self, word):
        """From now on, PUTs to paths with this word take effect, and nobody hears of it."""
        self.silent_about = word
        self.withheld.clear()
        self.spoken.clear()

    def speak(self):
        self.silent_about = None
        self.spoken.set()

    def withholds(self, command, path):
        """Whether an answer is lost; if so, it is kept back until somebody speaks again."""
        if command != "PUT" or self.silent_about is None or self.silent_about not in path:
            return False
        self.withheld.set()
        self.spoken.wait()
        return True

    def shut(self):
        """Nobody connects any more, and who is connected gets no answer."""
        self.is_shut = True
        self.listener.shutdown()
        self.listener.server_close()
