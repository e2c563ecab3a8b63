"""The lifecycle worker: what the rules delete, previews, reloads, and changes during a run."""

import json
import threading

import pytest
from botocore.exceptions import ClientError

from admin_client import admin_request, command
from catalogs import PostgresCatalog
from holding_proxy import HoldingProxy
from lifecycle_client import put_rules, rule
from polling import eventually
from s3_checks import keys_of, read
from test_reload import reload

DAY_MILLIS = 24 * 60 * 60 * 1000
CONFIGURED = {"interval": "24h", "rules": [{"bucket": "bucket", "prefix": "tmp/", "expiration_days": 7}]}


@pytest.fixture(params=["sqlite", "postgres"])
def lifecycle_server(request, own_server):
    """A server with a bucket whose lifecycle worker only runs manually."""
    catalog = PostgresCatalog() if request.param == "postgres" else None
    server = own_server(settings={"lifecycle": CONFIGURED}, catalog=catalog).start()
    assert admin_request(server, "POST", "/workers/lifecycle/pause")[0] == 200
    server.s3().create_bucket(Bucket="bucket")
    return server


def put_all(server, *keys, **options):
    for key in keys:
        server.s3().put_object(Bucket="bucket", Key=key, Body=key.encode(), **options)


def age(server, days, keys="'%'"):
    """Moves the modification time of objects into the past."""
    server.database.change(
        f"UPDATE objects SET last_modified = last_modified - {days * DAY_MILLIS} WHERE key LIKE {keys}"
    )


def run(server):
    report = server.run_worker("lifecycle")
    assert report["outcome"] == "ok", report
    return report["items"]


def preview(server):
    status, body = admin_request(server, "GET", "/lifecycle/preview")
    assert status == 200, body
    return body


def workers(server):
    return [worker for worker in admin_request(server, "GET", "/workers")[1]["items"] if worker["name"] == "lifecycle"]


class TestWorker:
    def test_configured_rules_delete_objects_older_than_their_days(self, lifecycle_server):
        put_all(lifecycle_server, "tmp/old", "tmp/young", "TMP/old", "tmp2/old", "old")
        age(lifecycle_server, 8, "'%old'")
        age(lifecycle_server, 6, "'%young'")
        assert run(lifecycle_server) == {"deleted": 1}
        assert keys_of(lifecycle_server.s3(), "bucket") == ["TMP/old", "old", "tmp/young", "tmp2/old"]
        (line,) = admin_request(lifecycle_server, "GET", "/audit?event=lifecycle.deleted")[1]["items"]
        assert (line["bucket"], line["key"], line["size_bytes"]) == ("bucket", "tmp/old", len("tmp/old"))
        assert (line["rule"], line["source"]) == ("lifecycle.rules[0]", "configuration") and line["run_id"]
        eventually(
            lambda: len(lifecycle_server.files()) == 4, 20, message="the bytes of the deleted object still exist"
        )
        assert lifecycle_server.metrics()['s3o_worker_items_total{worker="lifecycle",outcome="deleted"}'] == 1
        age(lifecycle_server, 2, "'%young'")
        assert run(lifecycle_server) == {"deleted": 1} and run(lifecycle_server) == {}
        assert json.loads(lifecycle_server.admin("POST", "/admin/api/verify")[1])["holds"]

    def test_days_end_at_midnight(self, lifecycle_server):
        put_all(lifecycle_server, "a", "b")
        put_rules(lifecycle_server.s3(), "bucket", rule(Expiration={"Days": 1}))
        age(lifecycle_server, 1, "'b'")
        assert run(lifecycle_server) == {}, "the midnight after its day is not reached"
        age(lifecycle_server, 1, "'b'")
        assert run(lifecycle_server) == {"deleted": 1}
        assert keys_of(lifecycle_server.s3(), "bucket") == ["a"]

    def test_rules_select_by_tags_and_size(self, lifecycle_server):
        put_all(lifecycle_server, "plain", "kept/temp")
        put_all(lifecycle_server, "temp", "other", Tagging="kind=temp")
        lifecycle_server.s3().put_object_tagging(
            Bucket="bucket", Key="other", Tagging={"TagSet": [{"Key": "kind", "Value": "x"}]}
        )
        lifecycle_server.s3().put_object(Bucket="bucket", Key="large", Body=b"x" * 100)
        tagged = rule("tagged", Filter={"Tag": {"Key": "kind", "Value": "temp"}})
        sized = rule("sized", Filter={"And": {"ObjectSizeGreaterThan": 99, "ObjectSizeLessThan": 101}})
        put_rules(lifecycle_server.s3(), "bucket", tagged, sized, rule("off", Status="Disabled"))
        shown = preview(lifecycle_server)
        assert [(item["rule"], item["count"]) for item in shown["items"]] == [
            ("lifecycle.rules[0]", 0),
            ("tagged", 1),
            ("sized", 1),
            ("off", 0),
        ]
        assert run(lifecycle_server) == {"deleted": 2}
        assert keys_of(lifecycle_server.s3(), "bucket") == ["kept/temp", "other", "plain"]

    def test_uploads_are_aborted_by_their_start_time(self, lifecycle_server):
        s3 = lifecycle_server.s3()
        upload = s3.create_multipart_upload(Bucket="bucket", Key="tmp/old")["UploadId"]
        s3.upload_part(Bucket="bucket", Key="tmp/old", UploadId=upload, PartNumber=1, Body=b"part")
        young = s3.create_multipart_upload(Bucket="bucket", Key="tmp/young")["UploadId"]
        abort = {"AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 2}}
        put_rules(s3, "bucket", rule("abort", Expiration={"Days": 1000}, **abort))
        assert run(lifecycle_server) == {}
        lifecycle_server.database.change(
            f"UPDATE multipart_uploads SET created_at = created_at - {3 * DAY_MILLIS} WHERE key = 'tmp/old'"
        )
        assert preview(lifecycle_server)["total"] == {"count": 0, "bytes": 0, "uploads": 1}
        assert run(lifecycle_server) == {"aborted": 1}
        assert [found["UploadId"] for found in s3.list_multipart_uploads(Bucket="bucket")["Uploads"]] == [young]
        (line,) = admin_request(lifecycle_server, "GET", "/audit?event=multipart.aborted")[1]["items"]
        assert (line["key"], line["upload_id"], line["rule"], line["size_bytes"]) == ("tmp/old", upload, "abort", 4)
        eventually(lambda: not lifecycle_server.files(), 20, message="the part of the aborted upload still exists")

    def test_preview_counts_what_the_run_deletes(self, lifecycle_server):
        put_all(lifecycle_server, *[f"tmp/{number:02}" for number in range(25)], "logs/1", "logs/2")
        age(lifecycle_server, 8)
        put_all(lifecycle_server, "tmp/young")
        logs = rule("logs", Filter={"Prefix": "logs/"}, Expiration={"Days": 2})
        put_rules(lifecycle_server.s3(), "bucket", logs, rule("all", Expiration={"Days": 3}))
        shown = preview(lifecycle_server)
        counts = [(item["bucket"], item["prefix"], item["source"], item["count"]) for item in shown["items"]]
        assert counts == [
            ("bucket", "tmp/", "configuration", 25),
            ("bucket", "logs/", "bucket", 2),
            ("bucket", "", "bucket", 27),
        ]
        assert shown["total"] == {"count": 27, "bytes": 25 * 6 + 2 * 6, "uploads": 0}, "each object is counted once"
        assert len(shown["items"][0]["samples"]) == 20 and shown["items"][0]["samples"][0]["key"] == "tmp/00"
        status, rehearsed = admin_request(lifecycle_server, "POST", "/workers/lifecycle/run?dry_run=true")
        assert (status, rehearsed["items"], rehearsed["dry_run"]) == (200, {"deleted": 27}, True)
        done = command(lifecycle_server, "lifecycle", "--dry-run", "--json")
        assert done.returncode == 0 and json.loads(done.stdout)["total"] == shown["total"], done
        table = command(lifecycle_server, "lifecycle", "--dry-run").stdout
        assert "lifecycle.rules[0]" in table and "bucket/tmp/00" in table and "total" in table, table
        assert len(keys_of(lifecycle_server.s3(), "bucket")) == 28, "the preview deleted something"
        assert run(lifecycle_server) == {"deleted": shown["total"]["count"]}
        assert keys_of(lifecycle_server.s3(), "bucket") == ["tmp/young"]
        assert preview(lifecycle_server)["total"] == {"count": 0, "bytes": 0, "uploads": 0}

    def test_lifecycle_command_requires_dry_run(self, lifecycle_server):
        assert command(lifecycle_server, "lifecycle").returncode == 2
        put_all(lifecycle_server, "tmp/a")
        age(lifecycle_server, 8)
        assert run(lifecycle_server) == {"deleted": 1}

    def test_one_run_deletes_more_than_a_batch(self, lifecycle_server):
        lifecycle_server.s3().put_object(Bucket="bucket", Key="first", Body=b"x")
        # Copies of one row stand for many objects with shared content.
        series = (
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500) "
            "INSERT INTO objects (bucket_id, key, content_id, version_id, size_bytes, etag, headers, metadata, tags, "
            "last_modified) SELECT o.bucket_id, 'tmp/' || n.i, o.content_id, o.version_id, o.size_bytes, o.etag, "
            "o.headers, o.metadata, o.tags, 0 FROM objects o, n WHERE o.key = 'first'"
        )
        lifecycle_server.database.change(series)
        lifecycle_server.database.change("UPDATE contents SET ref_count = 2501")
        assert preview(lifecycle_server)["total"]["count"] == 2500
        assert run(lifecycle_server) == {"deleted": 2500}
        assert keys_of(lifecycle_server.s3(), "bucket") == ["first"]
        assert [tuple(row) for row in lifecycle_server.rows("SELECT ref_count FROM contents")] == [(1,)]

    def test_reload_changes_the_rules_and_an_invalid_file_changes_nothing(self, lifecycle_server):
        put_all(lifecycle_server, "tmp/a", "logs/a")
        age(lifecycle_server, 8)
        rules = lifecycle_server.config["lifecycle"]["rules"]
        lifecycle_server.config["lifecycle"] = {**CONFIGURED, "rules": [{**rules[0], "prefix": ""}]}
        line = reload(lifecycle_server)
        assert line["event"] == "config.refused" and "lifecycle.rules[0].prefix" in line["error"], line
        assert [item["prefix"] for item in preview(lifecycle_server)["items"]] == ["tmp/"]
        lifecycle_server.config["lifecycle"] = {**CONFIGURED, "rules": [{**rules[0], "prefix": "logs/"}]}
        assert reload(lifecycle_server)["event"] == "config.reloaded"
        assert [item["prefix"] for item in preview(lifecycle_server)["items"]] == ["logs/"]
        assert run(lifecycle_server) == {"deleted": 1}
        assert keys_of(lifecycle_server.s3(), "bucket") == ["tmp/a"]
        lifecycle_server.config["lifecycle"] = {"interval": "24h"}
        assert reload(lifecycle_server)["event"] == "config.reloaded"
        assert (preview(lifecycle_server)["items"], run(lifecycle_server)) == ([], {})

    def test_the_worker_runs_on_one_instance_at_a_time(self, instances):
        rules = {"interval": "200ms", "rules": [{"bucket": "bucket", "prefix": "tmp/", "expiration_days": 7}]}
        servers = instances(2, settings={"lifecycle": rules})
        assert {worker["kind"] for server in servers for worker in workers(server)} == {"locked"}
        put_all(servers[0], *[f"tmp/{number}" for number in range(30)])
        age(servers[0], 8)
        eventually(lambda: not keys_of(servers[1].s3(), "bucket"), 30, message="the rule is not applied on schedule")

        def removed():
            """Keys of all audited deletions."""
            answers = [admin_request(server, "GET", "/audit?event=lifecycle.deleted&limit=100") for server in servers]
            return [line["key"] for _, answer in answers for line in answer["items"]]

        # The lines are written when the run ends, after its deletions were committed.
        eventually(lambda: len(removed()) >= 30, 30, message="the deletions are not audited")
        assert sorted(removed()) == sorted(f"tmp/{number}" for number in range(30)), "each deletion is audited once"

    @pytest.mark.parametrize(
        "rule", [{"prefix": "a", "expiration_days": 1}, {"bucket": "b-b", "prefix": "", "expiration_days": 1}]
    )
    def test_a_configured_rule_that_could_empty_a_bucket_is_refused(self, own_server, rule):
        server = own_server(settings={"lifecycle": {"rules": [rule]}})
        server.spawn()
        assert server.process.wait(30) == 2
        assert "lifecycle.rules[0]." in server.log()


class TestConcurrentChanges:
    """Changes between the worker's selection and its deletion."""

    @pytest.fixture
    def held(self, own_server):
        catalog = PostgresCatalog()
        proxy = HoldingProxy(catalog.url)
        port = proxy.endpoint.rsplit(":", 1)[1]
        server = own_server(settings={"lifecycle": CONFIGURED}, catalog=catalog)
        server.config["database"]["url"] = f"postgres://postgres@127.0.0.1:{port}/{catalog.url.rsplit('/', 1)[1]}"
        server.start()
        admin_request(server, "POST", "/workers/lifecycle/pause")
        server.s3().create_bucket(Bucket="bucket")
        server.proxy = proxy
        yield server
        proxy.close()

    def run_blocked(self, server, meanwhile):
        """Blocks a run between selection and deletion, calls `meanwhile`, and returns the report of the run."""
        server.proxy.hold("UPDATE objects SET token", "version_id")
        reports = []
        running = threading.Thread(target=lambda: reports.append(server.run_worker("lifecycle")))
        running.start()
        assert server.proxy.held.wait(30), "no object was selected"
        meanwhile()
        server.proxy.release()
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

        assert self.run_blocked(held, overwrite) == {"deleted": 1}
        assert read(held.s3(), "bucket", "tmp/a") == b"the new one"
        assert keys_of(held.s3(), "bucket") == ["tmp/a"]

    def test_a_rule_changed_between_selection_and_deletion_is_honoured(self, held):
        put_all(held, "a/1", "b/1")
        s3 = held.s3()
        put_rules(s3, "bucket", rule("all"))
        narrow = rule("narrow", Filter={"Prefix": "b/"})
        assert self.run_blocked(held, lambda: put_rules(s3, "bucket", narrow)) == {"deleted": 1}
        assert keys_of(s3, "bucket") == ["a/1"]
        (line,) = admin_request(held, "GET", "/audit?event=lifecycle.deleted")[1]["items"]
        assert (line["key"], line["rule"]) == ("b/1", "narrow")

    def test_rules_deleted_between_selection_and_deletion_delete_nothing(self, held):
        put_all(held, "a/1", "b/1")
        put_rules(held.s3(), "bucket", rule("all"))
        assert self.run_blocked(held, lambda: held.s3().delete_bucket_lifecycle(Bucket="bucket")) == {}
        assert keys_of(held.s3(), "bucket") == ["a/1", "b/1"]

    def test_tags_changed_between_selection_and_deletion_save_an_object(self, held):
        put_all(held, "a", Tagging="kind=temp")
        put_rules(held.s3(), "bucket", rule(Filter={"Tag": {"Key": "kind", "Value": "temp"}}))
        keep = {"TagSet": [{"Key": "kind", "Value": "kept"}]}
        tag = lambda: held.s3().put_object_tagging(Bucket="bucket", Key="a", Tagging=keep)  # noqa: E731
        assert self.run_blocked(held, tag) == {}
        assert keys_of(held.s3(), "bucket") == ["a"]

    def test_concurrent_deletion_of_object_and_bucket_is_no_error(self, held):
        put_all(held, "a")
        put_rules(held.s3(), "bucket", rule())

        def leave():
            held.s3().delete_object(Bucket="bucket", Key="a")
            held.s3().delete_bucket(Bucket="bucket")

        assert self.run_blocked(held, leave) == {}
        with pytest.raises(ClientError):
            held.s3().head_bucket(Bucket="bucket")
