"""A mixed load for kill tests: PUT, overwrite, multipart, copy and delete, some of them deliberately slow."""

import http.client
import random
import time

from kill_model import Outcome, digest_of
from s3_checks import PART_BYTES_MIN, body_of

BUCKET = "load"
KEYS_PER_THREAD = 6
SLOW_PIECES = 24
SLOW_PAUSE_SECONDS = 0.008
REQUEST_SECONDS = 20
GONE = (OSError, http.client.HTTPException)


class Unknown(Exception):
    """The request may or may not have taken effect."""


class Loader:
    """One thread of load on its own keys, one request at a time."""

    def __init__(self, name, raw, model, seed):
        self.name, self.raw, self.model = name, raw, model
        self.random = random.Random(seed)
        self.serial = 0
        self.keys = [f"{name}/key-{number}" for number in range(KEYS_PER_THREAD)]
        self.connection = None

    def run(self, stopping):
        """Sends requests until it is stopped or the server is gone."""
        self.connection = self.raw.connect(timeout=REQUEST_SECONDS)
        operations = [self.put] * 3 + [self.slow_put] * 5 + [self.copy] * 2 + [self.delete] * 2 + [self.multipart] * 2
        try:
            while not stopping.is_set():
                operation = self.random.choice(operations)
                try:
                    operation(self.random.choice(self.keys))
                except Unknown:
                    return
        finally:
            self.connection.close()

    def body(self, size_bytes):
        self.serial += 1
        return body_of(size_bytes, f"{self.name}-{self.serial}")

    def attempt(self, operation, key, digest, act):
        """Runs one request and records its possible outcomes in the model."""
        history = self.model.history(key)
        outcome = Outcome(f"{operation} {self.name}-{self.serial}", digest)
        try:
            answer = act()
        except GONE:
            history.unknown(outcome)
            self.model.count(operation, "unknown")
            raise Unknown from None
        if answer.status >= 500 or (answer.status == 200 and answer.code):
            history.unknown(outcome)
            self.model.count(operation, "unknown")
            if answer.status not in (500, 503):
                raise AssertionError(f"{operation} of {key}: {answer}")
            return answer
        assert answer.status in (200, 204), f"{operation} of {key}: {answer}"
        history.acknowledged(outcome)
        self.model.count(operation, "acknowledged")
        return answer

    def send(self, method, key, body=b"", query=None, headers=None, slow=False):
        """One request on the persistent connection; a slow body leaves time for a kill."""
        headers = dict(headers or {})
        if method in ("PUT", "POST"):
            headers["Content-Length"] = str(len(body))
        target, headers, _ = self.raw.prepare(method, self.raw.path(BUCKET, key), query, headers)
        self.raw.start(self.connection, method, target, headers)
        if slow:
            step = max(1, len(body) // SLOW_PIECES)
            for at in range(0, len(body), step):
                self.connection.send(body[at : at + step])
                time.sleep(SLOW_PAUSE_SECONDS)
        elif body:
            self.connection.send(body)
        return self.raw.finish(self.connection, close=False)

    def put(self, key, slow=False):
        body = self.body(self.random.choice([0, 100, 5_000, 70_000]) if not slow else 400_000)
        operation = "slow PUT" if slow else "PUT"
        self.attempt(operation, key, digest_of(body), lambda: self.send("PUT", key, body, slow=slow))

    def slow_put(self, key):
        self.put(key, slow=True)

    def delete(self, key):
        self.serial += 1
        self.attempt("DELETE", key, None, lambda: self.send("DELETE", key))

    def copy(self, key):
        """Copies from a key whose state is certain, so that the copy's state is known too."""
        sources = [other for other in self.keys if other != key and self.model.history(other).certain()]
        sources = [other for other in sources if self.model.history(other).certain().digest]
        if not sources:
            return self.put(key)
        source = self.random.choice(sources)
        self.serial += 1
        digest = self.model.history(source).certain().digest
        headers = {"x-amz-copy-source": self.raw.path(BUCKET, source)}
        return self.attempt("COPY", key, digest, lambda: self.send("PUT", key, headers=headers))

    def multipart(self, key):
        """Create, one or two parts, then Complete, Abort or neither: an upload left open is not an object."""
        large = self.random.random() < 0.15
        bodies = ([self.body(PART_BYTES_MIN)] if large else []) + [self.body(60_000)]
        try:
            answer = self.send("POST", key, query={"uploads": None})
            if answer.status != 200:
                return
            upload = answer.xml().findtext("UploadId")
            parts = ""
            for number, body in enumerate(bodies, 1):
                query = {"partNumber": str(number), "uploadId": upload}
                answer = self.send("PUT", key, body, query=query, slow=not large)
                if answer.status != 200:
                    return
                etag = answer.headers["etag"]
                parts += f"<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>"
        except GONE:
            self.model.count("part", "unknown")
            raise Unknown from None
        fate = self.random.random()
        if fate < 0.15:
            return
        if fate < 0.3:
            try:
                self.send("DELETE", key, query={"uploadId": upload})
            except GONE:
                raise Unknown from None
            return
        complete = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
        self.attempt(
            "Complete",
            key,
            digest_of(b"".join(bodies)),
            lambda: self.send("POST", key, complete, query={"uploadId": upload}),
        )
