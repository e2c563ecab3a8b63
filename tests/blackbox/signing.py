"""An own SigV4 implementation, so that a test can sign requests that no SDK would send.

It is independent of any SDK: a fault shared by client and test would hide a fault of the server.
"""

import datetime
import hashlib
import hmac
from dataclasses import dataclass
from urllib.parse import quote

ALGORITHM = "AWS4-HMAC-SHA256"
UNSIGNED = "UNSIGNED-PAYLOAD"
SIGNED_CHUNKS = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
SIGNED_CHUNKS_TRAILER = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
UNSIGNED_CHUNKS_TRAILER = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()


def encode_key(key):
    """A key in a request path: every byte except unreserved ones and `/` is escaped."""
    return quote(key, safe="/~")


def encode_query(query):
    """A query in canonical order; a value of None is a bare name, as in `?uploads`."""
    return "&".join(f"{quote(name, safe='~')}={quote(value or '', safe='~')}" for name, value in sorted(query.items()))


@dataclass(frozen=True)
class Credentials:
    """A key pair and the region of signatures."""

    access_key: str
    secret_key: str
    region: str = "us-east-1"

    def signing_key(self, day):
        key = f"AWS4{self.secret_key}".encode()
        for word in (day, self.region, "s3", "aws4_request"):
            key = hmac.digest(key, word.encode(), "sha256")
        return key


def timestamp(when=None):
    when = when or datetime.datetime.now(datetime.timezone.utc)
    return when.strftime("%Y%m%dT%H%M%SZ")


class Signature:
    """The signature of one request, and of the chunks that follow it."""

    def __init__(self, credentials, stamp):
        self.stamp = stamp
        self.scope = f"{stamp[:8]}/{credentials.region}/s3/aws4_request"
        self.key = credentials.signing_key(stamp[:8])
        self.value = None

    def _sign(self, text):
        self.value = hmac.new(self.key, text.encode(), hashlib.sha256).hexdigest()
        return self.value

    def request(self, canonical):
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        return self._sign("\n".join((ALGORITHM, self.stamp, self.scope, digest)))

    def chunk(self, piece):
        digest = hashlib.sha256(piece).hexdigest()
        return self._sign("\n".join((f"{ALGORITHM}-PAYLOAD", self.stamp, self.scope, self.value, EMPTY_SHA256, digest)))

    def trailer(self, block):
        digest = hashlib.sha256(block).hexdigest()
        return self._sign("\n".join((f"{ALGORITHM}-TRAILER", self.stamp, self.scope, self.value, digest)))


def sign_headers(credentials, method, path, query, headers, payload_hash, when=None):
    """Adds date, payload hash and Authorization to `headers`; returns the signature for chunks to follow."""
    stamp = timestamp(when)
    headers["x-amz-date"] = stamp
    headers["x-amz-content-sha256"] = payload_hash
    lowered = {name.lower(): " ".join(str(value).split()) for name, value in headers.items()}
    names = sorted(lowered)
    signed = ";".join(names)
    canonical = "\n".join(
        (method, path, encode_query(query), *(f"{name}:{lowered[name]}" for name in names), "", signed, payload_hash)
    )
    signature = Signature(credentials, stamp)
    value = signature.request(canonical)
    headers["Authorization"] = (
        f"{ALGORITHM} Credential={credentials.access_key}/{signature.scope}, SignedHeaders={signed}, Signature={value}"
    )
    return signature


def chunked(body, signature=None, chunk_bytes=65536, trailers=None, trailer_signature=True):
    """`body` in `aws-chunked` framing: signed if a signature is given, with the given trailers."""
    framed = bytearray()
    pieces = [body[at : at + chunk_bytes] for at in range(0, len(body), chunk_bytes)] + [b""]
    for piece in pieces:
        extension = f";chunk-signature={signature.chunk(piece)}" if signature else ""
        framed += f"{len(piece):x}{extension}\r\n".encode()
        framed += piece
        if piece:
            framed += b"\r\n"
    if trailers is not None:
        for name, value in trailers.items():
            framed += f"{name}:{value}\r\n".encode()
        if signature and trailer_signature:
            block = "".join(f"{name}:{value}\n" for name, value in trailers.items()).encode()
            framed += f"x-amz-trailer-signature:{signature.trailer(block)}\r\n".encode()
    framed += b"\r\n"
    return bytes(framed)
