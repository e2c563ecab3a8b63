"""`x-amz-expiration`: every answer about an object shows its expiration and the rule, by the rules in force."""

from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from urllib.parse import unquote

import pytest

from admin_client import admin_request
from catalogs import PostgresCatalog
from expiry_client import expiry_headers
from lifecycle_client import put_rules, rule
from s3_checks import PART_BYTES_MIN, body_of, multipart
from test_lifecycle_worker import DAY_MILLIS, age, run
from test_reload import reload

pytestmark = pytest.mark.usefixtures("s3o_only")
CONFIGURED = {"bucket": "bucket", "prefix": "tmp/", "expiration_days": 7}


def shown(answer):
    """Time and rule in the header of an answer."""
    if "Expiration" not in answer:
        return None
    _, date, between, name, end = answer["Expiration"].split('"')
    assert (between, end) == (", rule-id=", ""), answer["Expiration"]
    return parsedate_to_datetime(date), unquote(name)


def head(s3, key, bucket="bucket"):
    return s3.head_object(Bucket=bucket, Key=key)


def midnight_after(moment, days):
    """The expiration by a rule of the S3 API: the first midnight at least this many days later."""
    later = moment + timedelta(days=days)
    midnight = later.replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight if midnight == later else midnight + timedelta(days=1)


def days(name, count, **filters):
    return rule(name, Filter=filters, Expiration={"Days": count})


def put(s3, bucket, key, body=b"body", **options):
    return s3.put_object(Bucket=bucket, Key=key, Body=body, **options)


# Rules of the S3 API, on every kind of server


def test_every_answer_shows_the_rule_that_expires_its_object(s3, bucket):
    put_rules(s3, bucket, days("by day", 3))
    source = {"Bucket": bucket, "Key": "put"}
    answers = {
        "put": put(s3, bucket, "put"),
        "copy": s3.copy_object(Bucket=bucket, Key="copy", CopySource=source),
        "joined": multipart(s3, bucket, "joined", [body_of(PART_BYTES_MIN), b"tail"]),
    }
    for key, answer in answers.items():
        expected = (midnight_after(head(s3, key, bucket)["LastModified"], 3), "by day")
        others = [head(s3, key, bucket), s3.get_object(Bucket=bucket, Key=key, Range="bytes=0-0")]
        assert [shown(found) for found in (answer, *others)] == [expected] * 3


def test_an_answer_shows_the_rules_in_force(s3, bucket):
    assert shown(put(s3, bucket, "a")) is None
    written = head(s3, "a", bucket)["LastModified"]
    put_rules(s3, bucket, days("first", 9))
    assert shown(head(s3, "a", bucket)) == (midnight_after(written, 9), "first")
    put_rules(s3, bucket, days("second", 2))
    assert shown(head(s3, "a", bucket)) == (midnight_after(written, 2), "second")
    assert shown(s3.get_object(Bucket=bucket, Key="a"))[1] == shown(put(s3, bucket, "b"))[1] == "second"
    put_rules(s3, bucket, rule("second", Status="Disabled"))
    assert shown(head(s3, "a", bucket)) is None
    put_rules(s3, bucket, days("first", 9))
    s3.delete_bucket_lifecycle(Bucket=bucket)
    answers = [head(s3, "a", bucket), s3.get_object(Bucket=bucket, Key="a"), put(s3, bucket, "a")]
    assert [shown(answer) for answer in answers] == [None] * 3


def test_expiration_considers_prefix_tags_and_size(s3, bucket):
    tagged = rule("tagged", Filter={"Tag": {"Key": "kind", "Value": "temp"}}, Expiration={"Days": 5})
    sizes = {"ObjectSizeGreaterThan": 9, "ObjectSizeLessThan": 20}
    sized = rule("sized", Filter={"And": {"Prefix": "s/", **sizes}}, Expiration={"Days": 4})
    put_rules(s3, bucket, days("prefix", 3, Prefix="tmp/"), tagged, sized)

    def named(answer):
        return (shown(answer) or (None, None))[1]

    assert [named(put(s3, bucket, key)) for key in ("tmp/a", "TMP/a", "tmp2/a", "a")] == ["prefix", None, None, None]
    assert [named(put(s3, bucket, "s/a", b"x" * size)) for size in (9, 10, 19, 20)] == [None, "sized", "sized", None]
    assert named(put(s3, bucket, "t", Tagging="kind=temp&more=1")) == "tagged"
    assert named(put(s3, bucket, "u", Tagging="kind=Temp")) is None
    s3.put_object_tagging(Bucket=bucket, Key="u", Tagging={"TagSet": [{"Key": "kind", "Value": "temp"}]})
    s3.delete_object_tagging(Bucket=bucket, Key="t")
    assert [named(head(s3, key, bucket)) for key in ("t", "u")] == [None, "tagged"], "the current tags decide"
    source = {"Bucket": bucket, "Key": "u"}
    assert named(s3.copy_object(Bucket=bucket, Key="v", CopySource=source)) == "tagged"
    bare = {"TaggingDirective": "REPLACE", "Tagging": ""}
    assert named(s3.copy_object(Bucket=bucket, Key="v", CopySource=source, **bare)) is None


def test_expiration_shows_the_earliest_time(s3, bucket):
    put_rules(s3, bucket, days("late", 9), days("soon", 2), days("later", 5))
    assert shown(put(s3, bucket, "a"))[1] == "soon"
    with expiry_headers(s3, x_s3o_expires_after="1h"):
        assert shown(put(s3, bucket, "hour"))[1] == "expires-at"
    with expiry_headers(s3, x_s3o_expires_after="20d"):
        assert shown(put(s3, bucket, "long"))[1] == shown(head(s3, "long", bucket))[1] == "soon"
    date = datetime.now(timezone.utc).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    put_rules(s3, bucket, days("late", 9), rule("date", Expiration={"Date": date}))
    assert shown(head(s3, "a", bucket)) == (date, "date")


@pytest.mark.parametrize("name", ['a "quoted" name', "ä/ö\u2603", "line\nbreak: x", "100%+"])
def test_rule_id_is_percent_encoded(s3, bucket, name):
    put_rules(s3, bucket, days(name, 1))
    assert shown(put(s3, bucket, "a"))[1] == shown(head(s3, "a", bucket))[1] == name


def test_uploads_show_when_they_are_aborted(s3, bucket):
    def aborts(name, count, **filters):
        return rule(name, Filter=filters, Expiration={"Days": 1000}) | {
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": count}
        }

    def abort_headers(answer):
        return answer.get("AbortDate"), unquote(answer.get("AbortRuleId", ""))

    def opened(key):
        """Abort date and rule in the answers about a new upload, and its start time."""
        created = s3.create_multipart_upload(Bucket=bucket, Key=key)
        listed = s3.list_parts(Bucket=bucket, Key=key, UploadId=created["UploadId"])
        assert abort_headers(created) == abort_headers(listed)
        (upload,) = s3.list_multipart_uploads(Bucket=bucket, Prefix=key)["Uploads"]
        return abort_headers(created), upload["Initiated"]

    assert opened("before")[0] == (None, "")
    put_rules(s3, bucket, aborts("late ä", 9), aborts("soon", 2, Prefix="tmp/"), days("objects", 1))
    for key, count, name in [("tmp/a", 2, "soon"), ("TMP/a", 9, "late ä"), ("tmp2/a", 9, "late ä")]:
        shown_by, moment = opened(key)
        assert shown_by == (midnight_after(moment, count), name)
    put_rules(s3, bucket, days("objects", 1))
    assert opened("after")[0] == (None, "")


# Rules of the configuration, and several instances


@pytest.fixture(params=["sqlite", "postgres"])
def ruled(request, own_server):
    """A server with a configured rule, and a bucket."""
    catalog = PostgresCatalog() if request.param == "postgres" else None
    settings = {"lifecycle": {"interval": "24h", "rules": [CONFIGURED]}}
    server = own_server(settings=settings, catalog=catalog).start()
    assert admin_request(server, "POST", "/workers/lifecycle/pause")[0] == 200
    server.s3().create_bucket(Bucket="bucket")
    return server


def test_reload_changes_the_expiration_header(ruled):
    s3 = ruled.s3()
    assert shown(put(s3, "bucket", "logs/a")) is None
    first = shown(put(s3, "bucket", "tmp/a"))
    # Rounded up to the second, so that every millisecond of it is old enough.
    older = timedelta(days=7, seconds=1)
    assert first == (head(s3, "tmp/a")["LastModified"] + older, "lifecycle.rules[0]")
    assert shown(head(s3, "tmp/a")) == first
    ruled.config["lifecycle"]["rules"] = [{**CONFIGURED, "prefix": ""}]
    assert reload(ruled)["event"] == "config.refused"
    assert shown(head(s3, "tmp/a")) == first, "a bad file changes nothing"
    ruled.config["lifecycle"]["rules"] = [CONFIGURED, {**CONFIGURED, "prefix": "logs/", "expiration_days": 2}]
    assert reload(ruled)["event"] == "config.reloaded"
    assert [shown(head(s3, key))[1] for key in ("tmp/a", "logs/a")] == ["lifecycle.rules[0]", "lifecycle.rules[1]"]
    put_rules(s3, "bucket", days("sooner", 1))
    assert [shown(head(s3, key))[1] for key in ("tmp/a", "logs/a")] == ["sooner"] * 2, "the earliest time wins"
    ruled.config["lifecycle"]["rules"] = []
    s3.delete_bucket_lifecycle(Bucket="bucket")
    assert reload(ruled)["event"] == "config.reloaded"
    assert [shown(head(s3, key)) for key in ("tmp/a", "logs/a")] == [None] * 2


def test_no_object_is_deleted_before_its_shown_expiration(ruled):
    s3 = ruled.s3()
    put_rules(s3, "bucket", days("by day", 2, Prefix="days/"))
    for key in ("tmp/a", "days/a"):
        moment = shown(put(s3, "bucket", key))[0]
        ahead = int((moment - datetime.now(timezone.utc)).total_seconds() * 1000)
        # Shifts the age so that the expiration is a minute ahead, by whole days for rules in days.
        early = ahead - 60_000 if key == "tmp/a" else ahead // DAY_MILLIS * DAY_MILLIS
        ruled.database.change(f"UPDATE objects SET last_modified = last_modified - {early} WHERE key = '{key}'")
        assert shown(head(s3, key))[0] > datetime.now(timezone.utc)
        assert run(ruled) == {}, key
        age(ruled, 1, f"'{key}'")
        assert shown(head(s3, key))[0] <= datetime.now(timezone.utc)
        assert run(ruled) == {"deleted": 1}, key


def test_rules_changed_on_one_instance_are_shown_by_another_at_once(instances):
    first, second = (server.s3() for server in instances(2))
    put(first, "bucket", "a")
    for number in range(20):
        put_rules((first, second)[number % 2], "bucket", days(f"rule {number}", number + 1))
        answers = [head(second, "a"), head(first, "a"), put(second, "bucket", "b"), put(first, "bucket", "c")]
        assert [shown(answer)[1] for answer in answers] == [f"rule {number}"] * 4
    first.delete_bucket_lifecycle(Bucket="bucket")
    assert [shown(head(s3, "a")) for s3 in (second, first)] == [None] * 2
