"""Lifecycle rules that clients set, read and delete."""

import base64
import hashlib
import json
from datetime import timedelta

import pytest

from clients import Aws
from lifecycle_client import PAST, put_rules, rule
from s3_checks import refused


class AwsApi(Aws):
    """Commands of `aws s3api`."""

    def options(self):
        return ["--endpoint-url", self.server.endpoint, "s3api"]


def rules_of(s3, bucket):
    return s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]


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

    def test_rule_without_an_id_gets_one(self, s3, bucket):
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

    def test_rule_ids_are_unique_and_rules_at_most_a_thousand(self, s3, bucket):
        with refused("InvalidArgument", 400):
            put_rules(s3, bucket, rule("same"), rule("same"))
        with refused("MalformedXML", 400):
            put_rules(s3, bucket)
        many = [rule(f"{number}", Expiration={"Days": number + 1}) for number in range(1001)]
        with refused("MalformedXML", 400):
            put_rules(s3, bucket, *many)
        put_rules(s3, bucket, *many[:1000])
        assert rules_of(s3, bucket) == many[:1000]

    def test_malformed_lifecycle_documents_are_refused(self, raw, s3, bucket):
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
    def test_unknown_content_in_a_lifecycle_document_is_refused(self, raw, s3, bucket, inside, beside):
        rest = "<Status>Enabled</Status><Expiration><Days>1</Days></Expiration>"
        body = f"<LifecycleConfiguration><Rule>{inside}{rest}</Rule>{beside}</LifecycleConfiguration>".encode()
        answer = raw.request("PUT", raw.path(bucket), query={"lifecycle": ""}, body=body)
        assert (answer.status, answer.code) == (400, "MalformedXML")
        with refused("NoSuchLifecycleConfiguration", 404):
            rules_of(s3, bucket)

    def test_cdata_in_keys_and_tags_is_refused(self, raw, s3, bucket):
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

    def test_rules_are_deleted_with_their_bucket(self, s3, bucket):
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
