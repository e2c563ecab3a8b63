"""Signed requests over plain sockets, in which a test can change every part: method, path, headers, framing, timing."""

import hashlib
import http.client
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass

import signing

TIMEOUT_SECONDS = 60


@dataclass
class Answer:
    """One response, read to its end."""

    status: int
    headers: dict
    body: bytes

    def xml(self):
        """The body as elements without namespaces."""
        root = ElementTree.fromstring(self.body)
        for element in root.iter():
            element.tag = element.tag.rpartition("}")[2]
        return root

    @property
    def code(self):
        """The S3 error code, or None if the body is no error."""
        if not self.body.lstrip().startswith(b"<"):
            return None
        return self.xml().findtext("Code")


class RawClient:
    """One key pair on one endpoint; each request on its own connection unless one is passed in."""

    def __init__(self, host, port, credentials):
        self.host, self.port, self.credentials = host, port, credentials

    def connect(self, timeout=TIMEOUT_SECONDS):
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def path(self, bucket, key=None):
        return f"/{bucket}" if key is None else f"/{bucket}/{signing.encode_key(key)}"

    def prepare(self, method, path, query=None, headers=None, payload_hash=signing.UNSIGNED, when=None):
        """The request target, the signed headers, and the signature that chunks continue."""
        query = query or {}
        headers = {"Host": f"{self.host}:{self.port}", **(headers or {})}
        signature = None
        if self.credentials:
            signature = signing.sign_headers(self.credentials, method, path, query, headers, payload_hash, when)
        text = signing.encode_query(query)
        return (f"{path}?{text}" if text else path), headers, signature

    def request(
        self, method, path, *, query=None, headers=None, body=b"", payload_hash=None, when=None, alter=None, on=None
    ):
        """Sends one request; `alter` may change the headers after they were signed."""
        if payload_hash is None:
            payload_hash = hashlib.sha256(body).hexdigest()
        target, headers, _ = self.prepare(method, path, query, headers, payload_hash, when)
        if method in ("PUT", "POST") or body:
            headers.setdefault("Content-Length", str(len(body)))
        if alter:
            alter(headers)
        return self.send(method, target, headers, [body] if body else [], on=on)

    def send(self, method, target, headers, pieces=(), on=None):
        """Sends exactly these headers and body pieces, and reads the answer."""
        connection = on or self.connect()
        try:
            self.start(connection, method, target, headers)
            try:
                for piece in pieces:
                    connection.send(piece)
            except (BrokenPipeError, ConnectionResetError):
                pass  # refused before the body was read: the answer is still readable
            return self.finish(connection, close=on is None)
        finally:
            if on is None:
                connection.close()

    @staticmethod
    def start(connection, method, target, headers):
        connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()

    @staticmethod
    def finish(connection, close=True):
        response = connection.getresponse()
        body = response.read()
        answer = Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, body)
        if close:
            connection.close()
        return answer

    def put_chunked(self, path, body, mode, *, headers=None, trailers=None, chunk_bytes=65536, alter_body=None):
        """A PUT in `aws-chunked` framing of the given kind."""
        headers = {
            "Content-Encoding": "aws-chunked",
            "x-amz-decoded-content-length": str(len(body)),
            **(headers or {}),
        }
        if trailers:
            headers["x-amz-trailer"] = ",".join(trailers)
        target, headers, signature = self.prepare("PUT", path, None, headers, mode)
        signed = signature if mode != signing.UNSIGNED_CHUNKS_TRAILER else None
        framed = signing.chunked(body, signed, chunk_bytes, trailers)
        if alter_body:
            framed = alter_body(framed)
        headers["Content-Length"] = str(len(framed))
        return self.send("PUT", target, headers, [framed])


def assert_refused(answer, status, code, resource=None):
    """The answer is complete S3 error XML with the same request ID in header and body."""
    assert (answer.status, answer.code) == (status, code), answer
    error = answer.xml()
    assert error.tag == "Error", answer
    assert error.findtext("Message"), answer
    assert answer.headers.get("x-amz-request-id"), answer
    assert error.findtext("RequestId") == answer.headers["x-amz-request-id"], answer
    shown = error.findtext("Resource")
    assert shown and shown.startswith("/"), answer
    if resource is not None:
        assert shown == resource, answer
