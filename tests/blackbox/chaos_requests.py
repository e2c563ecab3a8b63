"""Requests of the chaos test: how they fail, and what their answers mean."""

import base64
import hashlib
import http.client

BUCKET = "chaos"
# Shorter than a freeze, so that clients continue on the other instance while a suspended one holds their request.
ANSWER_SECONDS_MAX = 1.5
BROKEN = (OSError, http.client.HTTPException)


class Abandoned(Exception):
    """The server has the whole request and does not answer; the connection stays open."""

    def __init__(self, connection):
        super().__init__()
        self.connection = connection


class NotSent(OSError):
    """The connection was refused, so no request was sent."""


def send(raw, method, key, body, options):
    """Sends one request; returns its answer or raises the reason for its failure."""
    payload_hash = options.get("payload_hash") or hashlib.sha256(body).hexdigest()
    path = raw.path(BUCKET, key)
    target, headers, _ = raw.prepare(method, path, options["query"], options["headers"], payload_hash)
    if method in ("PUT", "POST"):
        headers["Content-Length"] = str(len(body))
    connection = raw.connect(timeout=ANSWER_SECONDS_MAX)
    try:
        connection.connect()
    except OSError:
        raise NotSent from None
    try:
        raw.start(connection, method, target, headers)
        if body:
            connection.send(body)
    except BROKEN:
        connection.close()
        raise
    return answer_of(raw, connection, options.get("can_float"))


def answer_of(raw, connection, can_float):
    try:
        return raw.finish(connection)
    except TimeoutError:
        if can_float:
            raise Abandoned(connection) from None
        connection.close()
        raise
    except BROKEN:
        connection.close()
        raise


def verdict_of(answer, key):
    """The outcome of a change by its answer; `None` means a broken connection."""
    verdict = verdict_of_condition(answer, key)
    assert verdict != "refused", f"change of {key}: {answer}"
    return verdict


def verdict_of_condition(answer, key):
    """The same for a change with a condition, which may be refused."""
    if answer is None or answer.status >= 500 or (answer.status == 200 and answer.code):
        assert answer is None or answer.status == 503, f"change of {key}: {answer}"
        return "unknown"
    if answer.status in (404, 409, 412):
        return "refused"
    assert answer.status in (200, 204), f"change of {key}: {answer}"
    return "acknowledged"


def verdict_of_one(answer, key):
    """The same for one key of DeleteObjects."""
    if answer is None or answer.status != 200:
        return verdict_of(answer, key)
    deleted = {entry.findtext("Key") for entry in answer.xml().iter("Deleted")}
    return "acknowledged" if key in deleted else "unknown"


def content_md5(body):
    return base64.b64encode(hashlib.md5(body).digest()).decode()
