"""Requests and checks that the tests of lifecycle rules share."""

from datetime import datetime, timedelta, timezone

# Yesterday's midnight: objects that match such a rule are due at once.
PAST = datetime.now(timezone.utc).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)


def rule(name="rule", **parts):
    """A rule that matches every object and is due at once; `parts` override it."""
    return {"ID": name, "Status": "Enabled", "Filter": {}, "Expiration": {"Date": PAST}, **parts}


def put_rules(s3, bucket, *rules):
    s3.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": list(rules)})
