"""One client of the chaos test: random requests to both instances, each checked against the model."""

import random
import threading
from xml.sax.saxutils import escape

import signing
from chaos_outcomes import Outcome, etag_of_parts
from chaos_requests import (
    BROKEN,
    BUCKET,
    Abandoned,
    NotSent,
    content_md5,
    send,
    verdict_of,
    verdict_of_condition,
    verdict_of_one,
)
from s3_checks import PART_BYTES_MIN, body_of, etag_of

LATE_SECONDS_MAX = 60
SIZES = [16, 300, 4_000, 4_000, 30_000, 70_000]
# Larger than a single PUT to a backend may be.
LARGE_BYTES = PART_BYTES_MIN + 100_000
SMALL_PART_BYTES = 20_000
# Pause of a client after a request without an answer, as real clients do.
PAUSE_SECONDS = (0.02, 0.3)


class ChaosClient(threading.Thread):
    """Changes its own keys and a few shared ones, one request at a time."""

    def __init__(self, name, servers, model, seed):
        super().__init__(daemon=True)
        self.name, self.model = name, model
        self.raws = [server.raw() for server in servers]
        self.seed, self.random = seed, random.Random(f"{seed}/{name}")
        self.serial, self.fault, self.late_completions = 0, None, []
        # The key of the request that was just abandoned: its next change may run beside the detached one.
        self.next_key = None
        changes = [self.put] * 6 + [self.first_put] * 2 + [self.replace] * 2 + [self.delete] * 2
        changes += [self.delete_many] + [self.copy] * 2 + [self.multipart] * 2
        self.operations = changes + [self.get] * 3 + [self.get_range] * 2 + [self.head] * 2 + [self.list]

    def run(self):
        try:
            while not self.model.ending.is_set():
                self.random.choice(self.operations)(self.pick_key())
        except BaseException as fault:
            self.fault = fault
            self.model.ending.set()

    def pick_key(self):
        key, self.next_key = self.next_key, None
        if key is None or self.random.random() < 0.3:
            key = self.random.choice(self.model.keys_of(self.name) + self.random.sample(self.model.shared, 1))
        return key

    # Requests

    def ask(self, method, key, body=b"", query=None, headers=None, **options):
        """One request to either instance."""
        return send(self.random.choice(self.raws), method, key, body, {"query": query, "headers": headers, **options})

    def change(self, operation, outcomes, act, judge):
        """Sends a change of one or more keys and records its outcome in the model."""
        tickets = [
            (self.model.history(key), self.model.history(key).begin(outcome)) for key, outcome in outcomes.items()
        ]
        try:
            answer = act()
        except Abandoned as abandoned:
            self.model.count(operation, "given up")
            self.next_key = self.random.choice(list(outcomes))
            for history, ticket in tickets:
                history.detached(ticket)
            self.wait_in_background(abandoned.connection, tickets, judge)
            return None
        except NotSent:
            answer, judge = None, lambda *_: "refused"
        except BROKEN:
            answer = None
        for history, ticket in tickets:
            verdict = judge(answer, history.key)
            self.model.count(operation, verdict)
            getattr(history, verdict)(ticket)
        if answer is None or answer.status >= 500:
            self.pause()
        return answer

    def pause(self):
        self.model.ending.wait(self.random.uniform(*PAUSE_SECONDS))

    def wait_in_background(self, connection, tickets, judge):
        """Waits on a thread for the answer to an abandoned request, while this client continues."""

        def wait():
            try:
                answer = self.late_answer(connection)
                for history, ticket in tickets:
                    history.completed_late(ticket, judge(answer, history.key))
            except BaseException as fault:
                self.fault = fault
                self.model.ending.set()

        self.late_completions.append(threading.Thread(target=wait, daemon=True))
        self.late_completions[-1].start()

    def late_answer(self, connection):
        try:
            connection.sock.settimeout(LATE_SECONDS_MAX)
            return self.raws[0].finish(connection)
        except TimeoutError:
            raise AssertionError(f"no answer within {LATE_SECONDS_MAX} s") from None
        except BROKEN:
            return None

    # Changes

    def new_pieces(self, *sizes):
        self.serial += 1
        return tuple((size, f"{self.seed}/{self.name}/{self.serial}/{number}") for number, size in enumerate(sizes))

    def outcome(self, operation, pieces, is_declared=False):
        body = b"".join(body_of(size, seed) for size, seed in pieces)
        return Outcome(f"{operation} {self.name}-{self.serial}", etag_of(body), pieces, is_declared), body

    def put(self, key, condition=None, operation="PUT"):
        large = self.random.random() < 0.06
        pieces = self.new_pieces(LARGE_BYTES if large else self.random.choice(SIZES))
        is_declared = self.random.random() < 0.6
        outcome, body = self.outcome(operation, pieces, is_declared)
        payload_hash = None if is_declared else signing.UNSIGNED
        act = lambda: self.ask("PUT", key, body, headers=condition, payload_hash=payload_hash, can_float=True)
        return self.change(operation, {key: outcome}, act, verdict_of_condition if condition else verdict_of)

    def first_put(self, key):
        """A write with If-None-Match. A refusal shows that an object existed."""
        history = self.model.history(key)
        read = history.begin_read()
        answer = self.put(key, {"If-None-Match": "*"}, "first PUT")
        if answer and answer.status == 412:
            history.observe(read, lambda outcome: outcome.etag, "refused as not the first")

    def replace(self, key):
        """A write with If-Match on an ETag that is known."""
        history = self.model.history(key)
        known = history.certain()
        if not known or not known.etag:
            return self.put(key)
        answer = self.put(key, {"If-Match": known.etag}, "replacing PUT")
        return self.assert_not_refused(answer, history, known)

    @staticmethod
    def assert_not_refused(answer, history, known):
        """A condition on a state that is certain must hold."""
        if answer and answer.status in (404, 412):
            raise AssertionError(f"{history.key} no longer has {known}: {answer}\n  " + "\n  ".join(history.log))

    def delete(self, key):
        self.serial += 1
        gone = Outcome(f"DELETE {self.name}-{self.serial}")
        self.change("DELETE", {key: gone}, lambda: self.ask("DELETE", key, can_float=True), verdict_of)

    def delete_many(self, _key):
        self.serial += 1
        keys = self.random.sample(self.model.keys_of(self.name), 3)
        body = "".join(f"<Object><Key>{escape(key)}</Key></Object>" for key in keys)
        body = f"<Delete>{body}</Delete>".encode()
        headers = {"Content-MD5": content_md5(body)}
        outcomes = {key: Outcome(f"DeleteObjects {self.name}-{self.serial}") for key in keys}
        act = lambda: self.ask("POST", None, body, {"delete": None}, headers, can_float=True)
        self.change("DeleteObjects", outcomes, act, verdict_of_one)

    def copy(self, key):
        """Copies from a key whose state is certain, so that the copy's state is known too."""
        sources = {
            other: self.model.history(other).certain() for other in self.model.keys_of(self.name) if other != key
        }
        sources = {other: known for other, known in sources.items() if known and known.etag}
        if not sources:
            return self.put(key)
        source = self.random.choice(sorted(sources))
        self.serial += 1
        known = sources[source]
        outcome = Outcome(f"COPY {self.name}-{self.serial} of {known}", known.etag, known.pieces)
        # A detached copy may find another version of its source, and must then be refused.
        headers = {"x-amz-copy-source": self.raws[0].path(BUCKET, source), "x-amz-copy-source-if-match": known.etag}
        act = lambda: self.ask("PUT", key, headers=headers, can_float=True)
        answer = self.change("COPY", {key: outcome}, act, verdict_of_condition)
        return self.assert_not_refused(answer, self.model.history(source), known)

    def multipart(self, key):
        """Create, parts, one of them sent twice, then Complete, Abort or neither."""
        try:
            upload = self.created_upload(key)
            sizes = ([PART_BYTES_MIN] if self.random.random() < 0.1 else []) + [SMALL_PART_BYTES]
            pieces = self.new_pieces(*sizes)
            bodies = [body_of(size, seed) for size, seed in pieces]
            if not upload or not all(self.sent_part(key, upload, at, body) for at, body in enumerate(bodies, 1)):
                return self.pause()
            fate = self.random.random()
            if fate < 0.3:
                if fate < 0.2:
                    self.ask("DELETE", key, query={"uploadId": upload})
                    self.model.count("Abort", "asked")
                return None
        except BROKEN:
            return self.pause()
        parts = "".join(
            f"<Part><PartNumber>{at}</PartNumber><ETag>{escape(etag_of(body))}</ETag></Part>"
            for at, body in enumerate(bodies, 1)
        )
        document = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
        outcome = Outcome(f"Complete {self.name}-{self.serial}", etag_of_parts(bodies), pieces)
        act = lambda: self.ask("POST", key, document, {"uploadId": upload}, can_float=True)
        return self.change("Complete", {key: outcome}, act, verdict_of)

    def created_upload(self, key):
        answer = self.ask("POST", key, query={"uploads": None})
        return answer.xml().findtext("UploadId") if answer.status == 200 else None

    def sent_part(self, key, upload, number, body):
        """Sends a part until it is accepted, at most three times; sometimes sends other bytes first."""
        query = {"partNumber": str(number), "uploadId": upload}
        if len(body) < PART_BYTES_MIN and self.random.random() < 0.3:
            self.ask("PUT", key, body_of(SMALL_PART_BYTES, f"replaced {self.serial}"), query)
        for _ in range(3):
            answer = self.ask("PUT", key, body, query)
            self.model.count("part", "acknowledged" if answer.status == 200 else "unknown")
            if answer.status == 200:
                return True
        return False

    # Reads

    def check_read(self, operation, key, ask, judge):
        """One read; an answer about the key is checked against the model."""
        history = self.model.history(key)
        read = history.begin_read()
        try:
            answer = ask()
        except BROKEN:
            answer = None
        if answer is None or answer.status >= 500:
            self.model.count(operation, "unknown")
            return self.pause()
        self.model.count(operation, "answered")
        if answer.status == 404:
            return history.observe(read, lambda outcome: outcome.etag is None, f"{operation} finds nothing")
        assert answer.status in (200, 206), f"{operation} of {key}: {answer}"
        etag = answer.headers["etag"]
        fits = lambda outcome: outcome.etag == etag and judge(outcome, answer)
        return history.observe(read, fits, f"{operation} finds {etag}, {len(answer.body)} bytes")

    def get(self, key):
        self.check_read("GET", key, lambda: self.ask("GET", key), lambda outcome, answer: outcome.body() == answer.body)

    def get_range(self, key):
        first, last = self.random.randrange(8), self.random.choice([9, 2_000, 100_000])
        ask = lambda: self.ask("GET", key, headers={"Range": f"bytes={first}-{last}"})
        self.check_read("range", key, ask, lambda outcome, answer: outcome.body()[first : last + 1] == answer.body)

    def head(self, key):
        length_fits = lambda outcome, answer: int(answer.headers["content-length"]) == outcome.size_bytes()
        self.check_read("HEAD", key, lambda: self.ask("HEAD", key), length_fits)

    def list(self, _key):
        keys = self.model.keys_of(self.name)
        reads = {key: self.model.history(key).begin_read() for key in keys}
        try:
            answer = self.ask("GET", None, query={"list-type": "2", "prefix": f"{self.name}/"})
        except BROKEN:
            answer = None
        if answer is None or answer.status >= 500:
            self.model.count("LIST", "unknown")
            return self.pause()
        self.model.count("LIST", "answered")
        listed = {entry.findtext("Key"): entry for entry in answer.xml().iter("Contents")}
        assert set(listed) <= set(keys), sorted(listed)
        for key, read in reads.items():
            entry = listed.get(key)
            etag = entry.findtext("ETag") if entry is not None else None
            self.model.history(key).observe(read, lambda outcome: outcome.etag == etag, f"LIST shows {etag}")
        return None
