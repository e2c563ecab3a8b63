"""Warnings of a start: missing buckets of backends, short tokens and public addresses."""

import os
import re
import signal

import yaml

import seaweed
from polling import eventually
from s3_checks import read
from server_process import ADMIN_TOKEN
from test_first_use import SECONDS, run


class TestBackendBucket:
    def backend(self, **options):
        return {**seaweed.fresh_bucket(), **options}

    def test_a_missing_bucket_is_reported_with_its_remedy(self, own_server):
        backend = self.backend(bucket="never-created")
        server = own_server(backend=backend).spawn()
        eventually(lambda: "create_bucket: true" in server.log(), SECONDS, message="the remedy is not logged")
        assert "never-created" in server.log()

    def test_create_bucket_creates_a_missing_one_once(self, own_server):
        backend = self.backend(create_bucket=True)
        backend["bucket"] = f"{backend['bucket']}-created"
        server = own_server(backend=backend).start()
        server.s3().create_bucket(Bucket="bucket")
        eventually(lambda: "bucket created" in server.log(), SECONDS, message="the bucket was not created")
        eventually(lambda: "backend attached" in server.log(), SECONDS, message="the backend was not attached")
        server.s3().put_object(Bucket="bucket", Key="k", Body=b"x")
        assert read(server.s3(), "bucket", "k") == b"x"
        assert server.stop() == 0
        store = seaweed.connect(backend["endpoint"], backend["access_key_id"], backend["secret_access_key"])
        for entry in store.list_objects_v2(Bucket=backend["bucket"])["Contents"]:
            store.delete_object(Bucket=backend["bucket"], Key=entry["Key"])
        store.delete_bucket(Bucket=backend["bucket"])
        since = len(server.log())
        server.start()
        eventually(
            lambda: "does not exist" in server.log()[since:],
            SECONDS,
            message="the bucket of a known backend was created again",
        )
        assert backend["bucket"] not in {entry["Name"] for entry in store.list_buckets()["Buckets"]}


class TestWarnings:
    def test_short_tokens_and_public_addresses_are_warned_about(self, own_server):
        server = own_server()
        server.config["admin"]["token"] = "xyzzy"
        server.config["server"]["listen"] = f"0.0.0.0:{server.port}"
        (server.folder / "checked.yaml").write_text(yaml.safe_dump(server.config))
        checked = run("validate", "--config", "checked.yaml", folder=server.folder)
        assert checked.returncode == 0, checked
        server.start()
        for said in (checked.stderr, server.log()):
            assert re.search(r"(?m)warning: admin\.token: |WARN .*admin\.token: ", said), said
            assert f"server.listen: 0.0.0.0:{server.port} is a public address without TLS" in said, said
            assert "admin.listen:" not in said and "xyzzy" not in said, said

    def test_a_reload_warns_about_a_short_token(self, own_server):
        server = own_server().start()
        assert "admin.token" not in server.log() and "public address" not in server.log()
        server.config["admin"]["token"] = ADMIN_TOKEN[:15]
        server.config_path.write_text(yaml.safe_dump(server.config))
        os.kill(server.process.pid, signal.SIGHUP)
        eventually(lambda: "admin.token: it has 15 characters" in server.log(), SECONDS, message="no warning")
