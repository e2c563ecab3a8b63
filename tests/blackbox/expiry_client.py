"""Requests and checks that the tests of expiry share."""

import contextlib
import time
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime

from settled_state import QUICK

WRITES = ("PutObject", "CopyObject", "CreateMultipartUpload")


@contextlib.contextmanager
def expiry_headers(s3, **headers):
    """Adds expiry headers to every write in the context."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    events = [f"before-call.s3.{operation}" for operation in WRITES]

    def add(params, **_):
        params["headers"].update(given)

    for event in events:
        s3.meta.events.register(event, add)
    try:
        yield
    finally:
        for event in events:
            s3.meta.events.unregister(event, add)


def expiration(answer):
    """The expiration time in an answer."""
    shown = answer["Expiration"]
    assert shown.endswith('", rule-id="expires-at"'), shown
    return parsedate_to_datetime(shown.split('"')[1])


def seconds_ahead(answer):
    return (expiration(answer) - datetime.now(timezone.utc)).total_seconds()


def expire(server, bucket, *keys):
    """Makes these objects expired, by the catalog's clock."""
    now = int(time.time() * 1000)
    for key in keys:
        server.database.change(
            f"UPDATE objects SET expires_at = {now} WHERE key = '{key}' "
            f"AND bucket_id = (SELECT id FROM buckets WHERE name = '{bucket}')"
        )


def put(s3, bucket, key, body=b"body", after="1h"):
    with expiry_headers(s3, x_s3o_expires_after=after):
        return s3.put_object(Bucket=bucket, Key=key, Body=body)


SETTINGS = {
    **QUICK,
    "expiry": {"interval": "1h", "stuck_after": "2s"},
    "watchdog": {"interval": "1h"},
    "buckets": [{"name": "brief", "default_ttl": "2h"}, {"name": "bucket"}],
}
