"""Lifecycle rules: set, read and deleted by clients, applied by the worker, shown beforehand, changed under its hands."""

import base64
import hashlib
import json
import threading
from datetime import datetime, timedelta, timezone

import pytest
from botocore.exceptions import ClientError

from asking import ask, command
from catalogs import PostgresCatalog
from clients import Aws
from facts import keys_of, read, refused
from holding_proxy import HoldingProxy
from polling import eventually
from test_reload import hang_up

DAY_MILLIS = 24 * 60 * 60 * 1000
# Yesterday's midnight: what such a rule means is due at once.
PAST = datetime.now(timezone.utc).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)
CONFIGURED = {"interval": "24h", "rules": [{"bucket": "bucket", "prefix": "tmp/", "expiration_days": 7}]}


class AwsApi(Aws):
    """The commands of the aws cli that are named like operations."""

    def options(self):
        return ["--endpoint-url", self.server.endpoint, "s3api"]


def rule(name="rule", **parts):
    """A rule that means everything and is due at once, but for these parts."""
    return {"ID": name, "Status": "Enabled", "Filter": {}, "Expiration": {"Date": PAST}, **parts}


def put_rules(s3, bucket, *rules):
    s3.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": list(rules)})


def rules_of(s3, bucket):
    return s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]


@pytest.fixture(params=["sqlite", "postgres"])
def lone(request, own_server):
    """A server of its own with a bucket, whose lifecycle worker runs when it is asked to."""
    catalog = PostgresCatalog() if request.param == "postgres" else None
    server = own_server(settings={"lifecycle": CONFIGURED}, catalog=catalog).start()
    assert ask(server, "POST", "/workers/lifecycle/pause")[0] == 200
    server.s3().create_bucket(Bucket="bucket")
    return server


def put_all(server, *keys, **options):
    for key in keys:
        server.s3().put_object(Bucket="bucket", Key=key, Body=key.encode(), **options)


def age(server, days, keys="'%'"):
    """Makes objects older than they are."""
    server.database.change(
        f"UPDATE objects SET last_modified = last_modified - {days * DAY_MILLIS} WHERE key LIKE {keys}"
    )


def run(server):
    report = server.run_worker("lifecycle")
    assert report["outcome"] == "ok", report
    return report["items"]


def preview(server):
    status, body = ask(server, "GET", "/lifecycle/preview")
    assert status == 200, body
    return body


def workers(server):
    return [worker for worker in ask(server, "GET", "/workers")[1]["items"] if worker["name"] == "lifecycle"]


class TestRules:
    """Through the S3 API, on every kind of server."""

    def test_rules_are_set_read_and_deleted(self, s3, bucket):
        with refused("NoSuchLifecycleConfiguration", 404):
            rules_of(s3, bucket)
        both = {"Prefix": "a/", "Tags": [{"Key": "k", "Value": "v"}, {"Key": "l", "Value": ""}]}
        sizes = {"ObjectSizeGreaterThan": 10, "ObjectSizeLessThan": 1 << 40}
        rules = [
            rule("all", Expiration={"Days": 3}),
            rule("prefix", Filter={"Prefix": "tmp/ä &<>"}),
            rule("tag", Filter={"Tag": {"Key": "kind", "Value": "temp"}}),
            rule("size", Filter={"ObjectSizeLessThan": 5}, Status="Disabled"),
            rule("both", Filter={"And": {**both, **sizes}}),
            rule("uploads", Filter={"Prefix": ""}, AbortIncompleteMultipartUpload={"DaysAfterInitiation": 2}),
        ]
        old = {"ID": "old", "Status": "Enabled", "Prefix": "logs/", "Expiration": {"Days": 30}}
        put_rules(s3, bucket, *rules, old)
        assert rules_of(s3, bucket) == [*rules, old]
        put_rules(s3, bucket, rules[0])
        assert rules_of(s3, bucket) == rules[:1], "replaced as a whole"
        s3.delete_bucket_lifecycle(Bucket=bucket)
        s3.delete_bucket_lifecycle(Bucket=bucket)
        with refused("NoSuchLifecycleConfiguration", 404):
            rules_of(s3, bucket)

    def test_a_rule_without_a_name_gets_one(self, s3, bucket):
        unnamed = {name: value for name, value in rule().items() if name != "ID"}
        put_rules(s3, bucket, unnamed, {**unnamed, "Status": "Disabled"})
        names = [found["ID"] for found in rules_of(s3, bucket)]
        assert len(set(names)) == 2 and all(names)

    @pytest.mark.parametrize(
        "code, parts",
        [
            ("NotImplemented", {"Transitions": [{"Days": 1, "StorageClass": "GLACIER"}]}),
            ("NotImplemented", {"NoncurrentVersionExpiration": {"NoncurrentDays": 1}}),
            ("NotImplemented", {"NoncurrentVersionTransitions": [{"NoncurrentDays": 1, "StorageClass": "GLACIER"}]}),
            ("NotImplemented", {"Expiration": {"ExpiredObjectDeleteMarker": True}}),
            ("InvalidArgument", {"Expiration": {"Days": 0}}),
            ("InvalidArgument", {"Expiration": {"Days": -5}}),
            ("InvalidArgument", {"Expiration": {"Date": PAST + timedelta(hours=1)}}),
            ("MalformedXML", {"Expiration": {"Days": 1, "Date": PAST}}),
            ("MalformedXML", {"Expiration": {}}),
            ("InvalidRequest", {"Expiration": None}),
            ("InvalidArgument", {"AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 0}}),
            ("MalformedXML", {"Status": "on"}),
            ("MalformedXML", {"Prefix": ""}),
            ("MalformedXML", {"Filter": None}),
            ("MalformedXML", {"Filter": {"Prefix": "a", "ObjectSizeLessThan": 5}}),
            ("MalformedXML", {"Filter": {"And": {"Prefix": "a"}}}),
            ("InvalidRequest", {"Filter": {"And": {"ObjectSizeGreaterThan": 5, "ObjectSizeLessThan": 5}}}),
            ("InvalidTag", {"Filter": {"And": {"Tags": [{"Key": "k", "Value": "1"}, {"Key": "k", "Value": "2"}]}}}),
            ("InvalidRequest", {"Filter": {"Prefix": "x" * 1025}}),
            ("InvalidArgument", {"ID": "x" * 256}),
            (
                "InvalidRequest",
                {
                    "Filter": {"Tag": {"Key": "k", "Value": "v"}},
                    "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
                },
            ),
        ],
    )
    def test_a_bad_rule_is_refused_and_changes_nothing(self, s3, bucket, code, parts):
        put_rules(s3, bucket, rule("kept"))
        bad = {name: value for name, value in rule("bad", **parts).items() if value is not None}
        with refused(code):
            put_rules(s3, bucket, rule("good"), bad)
        assert rules_of(s3, bucket) == [rule("kept")]

    def test_names_are_unique_and_rules_at_most_a_thousand(self, s3, bucket):
        with refused("InvalidArgument", 400):
            put_rules(s3, bucket, rule("same"), rule("same"))
        with refused("MalformedXML", 400):
            put_rules(s3, bucket)
        many = [rule(f"{number}", Expiration={"Days": number + 1}) for number in range(1001)]
        with refused("MalformedXML", 400):
            put_rules(s3, bucket, *many)
        put_rules(s3, bucket, *many[:1000])
        assert rules_of(s3, bucket) == many[:1000]

    def test_documents_that_are_none_are_refused(self, raw, s3, bucket):
        for body in (b"", b"<LifecycleConfiguration>", b"<LifecycleConfiguration><Colour/></LifecycleConfiguration>"):
            answer = raw.request("PUT", raw.path(bucket), query={"lifecycle": ""}, body=body)
            assert answer.status == 400, (body, answer)
        good = b"<Rule><Filter/><Status>Enabled</Status><Expiration><Days>1</Days></Expiration></Rule>"
        document = b"<LifecycleConfiguration>" + good + b"</LifecycleConfiguration>"
        wrong = {"content-md5": "AAAAAAAAAAAAAAAAAAAAAA=="}
        answer = raw.request("PUT", raw.path(bucket), query={"lifecycle": ""}, body=document, headers=wrong)
        assert (answer.status, answer.code) == (400, "BadDigest")
        assert raw.request("GET", raw.path(bucket), query={"lifecycle": "", "policy": ""}).status == 501
        with refused("NoSuchLifecycleConfiguration", 404):
            rules_of(s3, bucket)

    @pytest.mark.parametrize(
        "inside, beside",
        [
            ("<Filter><Prefix><![CDATA[tmp/]]></Prefix></Filter>", ""),
            ("<Filter><Prefix>tm<![CDATA[p/]]></Prefix></Filter>", ""),
            ("<Prefix><![CDATA[tmp/]]></Prefix>", ""),
            ("<Filter>tmp/</Filter>", ""),
            ("<Filter Prefix='tmp/'/>", ""),
            ("<Filter><prefix>tmp/</prefix></Filter>", ""),
            ("tmp/<Filter/>", ""),
            ("<Filter><Prefix>tmp/</Prefix></Filter>", "<rule/>"),
            ("<Filter><Prefix>tmp/</Prefix></Filter>", "<Transition/>"),
            ("<Filter><Prefix>tmp/</Prefix></Filter>", "<Status>Disabled</Status>"),
        ],
    )
    def test_no_part_of_a_document_is_overlooked(self, raw, s3, bucket, inside, beside):
        rest = "<Status>Enabled</Status><Expiration><Days>1</Days></Expiration>"
        body = f"<LifecycleConfiguration><Rule>{inside}{rest}</Rule>{beside}</LifecycleConfiguration>".encode()
        answer = raw.request("PUT", raw.path(bucket), query={"lifecycle": ""}, body=body)
        assert (answer.status, answer.code) == (400, "MalformedXML")
        with refused("NoSuchLifecycleConfiguration", 404):
            rules_of(s3, bucket)

    def test_no_part_of_a_name_is_overlooked(self, raw, s3, bucket):
        s3.put_object(Bucket=bucket, Key="a", Body=b"kept", Tagging="k=v")
        body = b"<Delete><Object><Key>a<![CDATA[-not-this-one]]></Key></Object></Delete>"
        md5 = base64.b64encode(hashlib.md5(body).digest()).decode()
        answer = raw.request("POST", raw.path(bucket), query={"delete": ""}, body=body, headers={"content-md5": md5})
        assert (answer.status, answer.code) == (400, "MalformedXML")
        body = b"<Tagging><TagSet><Tag><Key>k</Key><Value>pub<![CDATA[lic]]></Value></Tag></TagSet></Tagging>"
        answer = raw.request("PUT", raw.path(bucket, "a"), query={"tagging": ""}, body=body)
        assert (answer.status, answer.code) == (400, "MalformedXML")
        assert s3.get_object_tagging(Bucket=bucket, Key="a")["TagSet"] == [{"Key": "k", "Value": "v"}]

    def test_only_admins_change_rules(self, server, s3, new_bucket):
        bucket = new_bucket("granted")
        put_rules(s3, bucket, rule())
        for key in ("writer", "reader"):
            with refused("AccessDenied", 403):
                put_rules(server.s3(key), bucket, rule("theirs"))
            with refused("AccessDenied", 403):
                server.s3(key).delete_bucket_lifecycle(Bucket=bucket)
        assert rules_of(server.s3("reader"), bucket) == [rule()]
        with refused("NoSuchBucket", 404):
            put_rules(s3, "no-such-bucket-anywhere", rule())

    def test_rules_go_with_their_bucket(self, s3, bucket):
        put_rules(s3, bucket, rule())
        s3.delete_bucket(Bucket=bucket)
        s3.create_bucket(Bucket=bucket)
        with refused("NoSuchLifecycleConfiguration", 404):
            rules_of(s3, bucket)

    def test_the_aws_cli_sets_reads_and_deletes_rules(self, server, bucket, tmp_path):
        aws = AwsApi(server, tmp_path)
        logs = {"Expiration": {"Days": 30}, "ID": "logs", "Filter": {"Prefix": "logs/"}, "Status": "Enabled"}
        rules = {"Rules": [logs]}
        name = ("--bucket", bucket)
        aws.run("put-bucket-lifecycle-configuration", *name, "--lifecycle-configuration", json.dumps(rules))
        found = json.loads(aws.run("get-bucket-lifecycle-configuration", *name, "--output", "json"))
        assert found["Rules"] == rules["Rules"]
        aws.run("delete-bucket-lifecycle", *name)
        aws.run("get-bucket-lifecycle-configuration", *name, expect=255)


class TestWorker:
    def test_configured_rules_remove_what_is_older_than_their_days(self, lone):
        put_all(lone, "tmp/old", "tmp/young", "TMP/old", "tmp2/old", "old")
        age(lone, 8, "'%old'")
        age(lone, 6, "'%young'")
        assert run(lone) == {"deleted": 1}
        assert keys_of(lone.s3(), "bucket") == ["TMP/old", "old", "tmp/young", "tmp2/old"]
        (line,) = ask(lone, "GET", "/audit?event=lifecycle.deleted")[1]["items"]
        assert (line["bucket"], line["key"], line["size_bytes"]) == ("bucket", "tmp/old", len("tmp/old"))
        assert (line["rule"], line["source"]) == ("lifecycle.rules[0]", "configuration") and line["run_id"]
        eventually(lambda: len(lone.files()) == 4, 20, message="the bytes of the removed object are still there")
        assert lone.metrics()['s3o_worker_items_total{worker="lifecycle",outcome="deleted"}'] == 1
        age(lone, 2, "'%young'")
        assert run(lone) == {"deleted": 1} and run(lone) == {}
        assert json.loads(lone.admin("POST", "/admin/api/verify")[1])["holds"]

    def test_days_end_at_midnight(self, lone):
        put_all(lone, "a", "b")
        put_rules(lone.s3(), "bucket", rule(Expiration={"Days": 1}))
        age(lone, 1, "'b'")
        assert run(lone) == {}, "the midnight behind its day has not come"
        age(lone, 1, "'b'")
        assert run(lone) == {"deleted": 1}
        assert keys_of(lone.s3(), "bucket") == ["a"]

    def test_tags_and_sizes_choose(self, lone):
        put_all(lone, "plain", "kept/temp")
        put_all(lone, "temp", "other", Tagging="kind=temp")
        lone.s3().put_object_tagging(Bucket="bucket", Key="other", Tagging={"TagSet": [{"Key": "kind", "Value": "x"}]})
        lone.s3().put_object(Bucket="bucket", Key="large", Body=b"x" * 100)
        tagged = rule("tagged", Filter={"Tag": {"Key": "kind", "Value": "temp"}})
        sized = rule("sized", Filter={"And": {"ObjectSizeGreaterThan": 99, "ObjectSizeLessThan": 101}})
        put_rules(lone.s3(), "bucket", tagged, sized, rule("off", Status="Disabled"))
        shown = preview(lone)
        assert [(item["rule"], item["count"]) for item in shown["items"]] == [
            ("lifecycle.rules[0]", 0),
            ("tagged", 1),
            ("sized", 1),
            ("off", 0),
        ]
        assert run(lone) == {"deleted": 2}
        assert keys_of(lone.s3(), "bucket") == ["kept/temp", "other", "plain"]

    def test_uploads_are_aborted_by_when_they_were_begun(self, lone):
        s3 = lone.s3()
        upload = s3.create_multipart_upload(Bucket="bucket", Key="tmp/old")["UploadId"]
        s3.upload_part(Bucket="bucket", Key="tmp/old", UploadId=upload, PartNumber=1, Body=b"part")
        young = s3.create_multipart_upload(Bucket="bucket", Key="tmp/young")["UploadId"]
        abort = {"AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 2}}
        put_rules(s3, "bucket", rule("abort", Expiration={"Days": 1000}, **abort))
        assert run(lone) == {}
        lone.database.change(
            f"UPDATE multipart_uploads SET created_at = created_at - {3 * DAY_MILLIS} WHERE key = 'tmp/old'"
        )
        assert preview(lone)["total"] == {"count": 0, "bytes": 0, "uploads": 1}
        assert run(lone) == {"aborted": 1}
        assert [found["UploadId"] for found in s3.list_multipart_uploads(Bucket="bucket")["Uploads"]] == [young]
        (line,) = ask(lone, "GET", "/audit?event=multipart.aborted")[1]["items"]
        assert (line["key"], line["upload_id"], line["rule"], line["size_bytes"]) == ("tmp/old", upload, "abort", 4)
        eventually(lambda: not lone.files(), 20, message="the part of the aborted upload is still there")

    def test_the_preview_counts_what_the_run_removes(self, lone):
        put_all(lone, *[f"tmp/{number:02}" for number in range(25)], "logs/1", "logs/2")
        age(lone, 8)
        put_all(lone, "tmp/young")
        logs = rule("logs", Filter={"Prefix": "logs/"}, Expiration={"Days": 2})
        put_rules(lone.s3(), "bucket", logs, rule("all", Expiration={"Days": 3}))
        shown = preview(lone)
        counts = [(item["bucket"], item["prefix"], item["source"], item["count"]) for item in shown["items"]]
        assert counts == [
            ("bucket", "tmp/", "configuration", 25),
            ("bucket", "logs/", "bucket", 2),
            ("bucket", "", "bucket", 27),
        ]
        assert shown["total"] == {"count": 27, "bytes": 25 * 6 + 2 * 6, "uploads": 0}, "everything once"
        assert len(shown["items"][0]["samples"]) == 20 and shown["items"][0]["samples"][0]["key"] == "tmp/00"
        status, rehearsed = ask(lone, "POST", "/workers/lifecycle/run?dry_run=true")
        assert (status, rehearsed["items"], rehearsed["dry_run"]) == (200, {"deleted": 27}, True)
        done = command(lone, "lifecycle", "--dry-run", "--json")
        assert done.returncode == 0 and json.loads(done.stdout)["total"] == shown["total"], done
        table = command(lone, "lifecycle", "--dry-run").stdout
        assert "lifecycle.rules[0]" in table and "bucket/tmp/00" in table and "total" in table, table
        assert len(keys_of(lone.s3(), "bucket")) == 28, "nothing went"
        assert run(lone) == {"deleted": shown["total"]["count"]}
        assert keys_of(lone.s3(), "bucket") == ["tmp/young"]
        assert preview(lone)["total"] == {"count": 0, "bytes": 0, "uploads": 0}

    def test_the_command_asks_for_a_dry_run(self, lone):
        assert command(lone, "lifecycle").returncode == 2
        put_all(lone, "tmp/a")
        age(lone, 8)
        assert run(lone) == {"deleted": 1}

    def test_more_than_a_batch_goes_in_one_run(self, lone):
        lone.s3().put_object(Bucket="bucket", Key="first", Body=b"x")
        # Copies of one row: what many objects on shared content look like.
        series = (
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500) "
            "INSERT INTO objects (bucket_id, key, content_id, version_id, size_bytes, etag, headers, metadata, tags, "
            "last_modified) SELECT o.bucket_id, 'tmp/' || n.i, o.content_id, o.version_id, o.size_bytes, o.etag, "
            "o.headers, o.metadata, o.tags, 0 FROM objects o, n WHERE o.key = 'first'"
        )
        lone.database.change(series)
        lone.database.change("UPDATE contents SET ref_count = 2501")
        assert preview(lone)["total"]["count"] == 2500
        assert run(lone) == {"deleted": 2500}
        assert keys_of(lone.s3(), "bucket") == ["first"]
        assert [tuple(row) for row in lone.rows("SELECT ref_count FROM contents")] == [(1,)]

    def test_a_hang_up_changes_the_rules_and_a_bad_file_changes_nothing(self, lone):
        put_all(lone, "tmp/a", "logs/a")
        age(lone, 8)
        rules = lone.config["lifecycle"]["rules"]
        lone.config["lifecycle"] = {**CONFIGURED, "rules": [{**rules[0], "prefix": ""}]}
        line = hang_up(lone)
        assert line["event"] == "config.refused" and "lifecycle.rules[0].prefix" in line["error"], line
        assert [item["prefix"] for item in preview(lone)["items"]] == ["tmp/"]
        lone.config["lifecycle"] = {**CONFIGURED, "rules": [{**rules[0], "prefix": "logs/"}]}
        assert hang_up(lone)["event"] == "config.reloaded"
        assert [item["prefix"] for item in preview(lone)["items"]] == ["logs/"]
        assert run(lone) == {"deleted": 1}
        assert keys_of(lone.s3(), "bucket") == ["tmp/a"]
        lone.config["lifecycle"] = {"interval": "24h"}
        assert hang_up(lone)["event"] == "config.reloaded"
        assert (preview(lone)["items"], run(lone)) == ([], {})

    def test_the_worker_runs_on_one_instance_at_a_time(self, instances):
        rules = {"interval": "200ms", "rules": [{"bucket": "bucket", "prefix": "tmp/", "expiration_days": 7}]}
        servers = instances(2, settings={"lifecycle": rules})
        assert {worker["kind"] for server in servers for worker in workers(server)} == {"locked"}
        put_all(servers[0], *[f"tmp/{number}" for number in range(30)])
        age(servers[0], 8)
        eventually(lambda: not keys_of(servers[1].s3(), "bucket"), 30, message="the rule is not applied by itself")
        lines = [ask(server, "GET", "/audit?event=lifecycle.deleted&limit=100")[1]["items"] for server in servers]
        removed = [line["key"] for line in lines[0] + lines[1]]
        assert sorted(removed) == sorted(f"tmp/{number}" for number in range(30)), "each is told once"

    @pytest.mark.parametrize(
        "rule", [{"prefix": "a", "expiration_days": 1}, {"bucket": "b-b", "prefix": "", "expiration_days": 1}]
    )
    def test_a_configured_rule_that_could_empty_a_bucket_is_refused(self, own_server, rule):
        server = own_server(settings={"lifecycle": {"rules": [rule]}})
        server.spawn()
        assert server.process.wait(30) == 2
        assert "lifecycle.rules[0]." in server.log()


class TestUnderItsHands:
    """The worker has chosen what goes, and is held up before it goes."""

    @pytest.fixture
    def held(self, own_server):
        catalog = PostgresCatalog()
        wire = HoldingProxy(catalog.url)
        port = wire.endpoint.rsplit(":", 1)[1]
        server = own_server(settings={"lifecycle": CONFIGURED}, catalog=catalog)
        server.config["database"]["url"] = f"postgres://postgres@127.0.0.1:{port}/{catalog.url.rsplit('/', 1)[1]}"
        server.start()
        ask(server, "POST", "/workers/lifecycle/pause")
        server.s3().create_bucket(Bucket="bucket")
        server.wire = wire
        yield server
        wire.close()

    def run_held(self, server, meanwhile):
        """What a run reports that was held up between selection and deletion while this was done."""
        server.wire.hold("UPDATE objects SET token", "version_id")
        reports = []
        running = threading.Thread(target=lambda: reports.append(server.run_worker("lifecycle")))
        running.start()
        assert server.wire.held.wait(30), "nothing was chosen"
        meanwhile()
        server.wire.release()
        running.join(60)
        (report,) = reports
        assert report["outcome"] == "ok", report
        return report["items"]

    def test_an_object_overwritten_between_selection_and_deletion_survives(self, held):
        put_all(held, "tmp/a", "tmp/b")
        age(held, 8)

        def overwrite():
            held.s3().put_object(Bucket="bucket", Key="tmp/a", Body=b"the new one")
            age(held, 8, "'tmp/a'")

        assert self.run_held(held, overwrite) == {"deleted": 1}
        assert read(held.s3(), "bucket", "tmp/a") == b"the new one"
        assert keys_of(held.s3(), "bucket") == ["tmp/a"]

    def test_a_rule_changed_between_selection_and_deletion_is_honoured(self, held):
        put_all(held, "a/1", "b/1")
        s3 = held.s3()
        put_rules(s3, "bucket", rule("all"))
        narrow = rule("narrow", Filter={"Prefix": "b/"})
        assert self.run_held(held, lambda: put_rules(s3, "bucket", narrow)) == {"deleted": 1}
        assert keys_of(s3, "bucket") == ["a/1"]
        (line,) = ask(held, "GET", "/audit?event=lifecycle.deleted")[1]["items"]
        assert (line["key"], line["rule"]) == ("b/1", "narrow")

    def test_rules_removed_between_selection_and_deletion_remove_nothing(self, held):
        put_all(held, "a/1", "b/1")
        put_rules(held.s3(), "bucket", rule("all"))
        assert self.run_held(held, lambda: held.s3().delete_bucket_lifecycle(Bucket="bucket")) == {}
        assert keys_of(held.s3(), "bucket") == ["a/1", "b/1"]

    def test_tags_changed_between_selection_and_deletion_save_an_object(self, held):
        put_all(held, "a", Tagging="kind=temp")
        put_rules(held.s3(), "bucket", rule(Filter={"Tag": {"Key": "kind", "Value": "temp"}}))
        keep = {"TagSet": [{"Key": "kind", "Value": "kept"}]}
        tag = lambda: held.s3().put_object_tagging(Bucket="bucket", Key="a", Tagging=keep)  # noqa: E731
        assert self.run_held(held, tag) == {}
        assert keys_of(held.s3(), "bucket") == ["a"]

    def test_an_object_deleted_meanwhile_and_its_bucket_are_no_error(self, held):
        put_all(held, "a")
        put_rules(held.s3(), "bucket", rule())

        def leave():
            held.s3().delete_object(Bucket="bucket", Key="a")
            held.s3().delete_bucket(Bucket="bucket")

        assert self.run_held(held, leave) == {}
        with pytest.raises(ClientError):
            held.s3().head_bucket(Bucket="bucket")
