"""Acknowledged writes are on disk: a trace shows every sync before the answer that depends on it."""

import re
import shutil

import pytest

import tracing
from polling import eventually
from s3_checks import body_of

pytestmark = [pytest.mark.alone, pytest.mark.timeout(90)]


class Traced:
    """A server under strace whose trace can be split by request."""

    def __init__(self, server, output):
        self.server, self.output, self.read_characters = server, output, 0
        server.start(wrapper=tracing.command(output))
        self.wal = re.escape(f"{server.catalog}-wal")

    def during(self, act, status):
        """The trace from before `act` until the answer with `status` was written."""
        self.read_characters = len(self.output.read_text(errors="replace"))
        answer = act()

        def answered():
            text = self.output.read_text(errors="replace")[self.read_characters :]
            trace = tracing.Trace(text[: text.rfind("\n") + 1])
            return trace if trace.answers(status) else None

        return answer, eventually(answered, 10, message=f"no {status} in the trace")

    def physical_keys(self):
        return {row[0] for row in self.server.rows("SELECT physical_key FROM object_locations")}


@pytest.fixture
def traced(own_server, tmp_path):
    if not shutil.which("strace"):
        pytest.fail("strace is not installed: run scripts/setup.sh")
    traced = Traced(own_server(), tmp_path / "trace")
    traced.server.s3().create_bucket(Bucket="bucket")
    yield traced
    traced.server.stop()


def assert_bytes_then_catalog_then_answer(traced, trace, physical_key):
    """Checks the order intent, file, folder, catalog, answer: each is synced before the next begins."""
    path = traced.server.root / physical_key
    answer = trace.answers(200)[0].began
    temporary = rf"{re.escape(str(traced.server.root))}/\.s3o/tmp/[^>]*"
    opened = trace.named(rf"(?:O_CREAT|O_TMPFILE).*= \d+<{temporary}>", "openat")
    assert opened, "no temporary file was opened"
    commits = [call.ended for call in trace.syncs(traced.wal)]
    assert any(ended < opened[0].began for ended in commits), "the intent was not synced before the bytes"

    name = re.escape(path.name)
    linked = trace.named(name, "linkat", "renameat", "renameat2", "rename", "link")
    assert linked, "the file was never renamed to its name"
    whole = trace.syncs(rf"(?:{temporary}|{re.escape(str(path))})(?: \(deleted\))?")
    assert any(call.ended < linked[0].began for call in whole), "the file was not synced before the rename"
    folder = [call.ended for call in trace.syncs(re.escape(str(path.parent))) if call.began > linked[0].ended]
    assert folder and folder[0] < answer, "the folder was not synced before the answer"
    assert any(call.began > folder[0] and call.ended < answer for call in trace.syncs(traced.wal)), (
        "the catalog was not synced between the bytes and the answer"
    )


def test_put_is_synced_before_its_200(traced):
    raw = traced.server.raw()
    for name in ("first", "deep/er/second"):
        before = traced.physical_keys()
        answer, trace = traced.during(lambda: raw.request("PUT", f"/bucket/{name}", body=body_of(100_000, name)), 200)
        assert answer.status == 200, answer
        (physical_key,) = traced.physical_keys() - before
        assert_bytes_then_catalog_then_answer(traced, trace, physical_key)


def test_new_folders_are_synced_before_the_answer(traced):
    raw = traced.server.raw()
    answer, trace = traced.during(lambda: raw.request("PUT", "/bucket/new/folder/object", body=b"x"), 200)
    assert answer.status == 200, answer
    (physical_key,) = traced.physical_keys()
    folder = (traced.server.root / physical_key).parent
    written = trace.answers(200)[0].began
    while folder != traced.server.root:
        folder = folder.parent
        synced = trace.syncs(re.escape(str(folder)))
        assert any(call.ended < written for call in synced), f"{folder} was not synced before the answer"


def test_part_and_complete_are_synced_before_their_200(traced):
    s3, raw = traced.server.s3(), traced.server.raw()
    upload = s3.create_multipart_upload(Bucket="bucket", Key="joined")["UploadId"]
    query = {"partNumber": "1", "uploadId": upload}
    answer, trace = traced.during(lambda: raw.request("PUT", "/bucket/joined", query=query, body=body_of(9000)), 200)
    (physical_key,) = traced.physical_keys()
    assert_bytes_then_catalog_then_answer(traced, trace, physical_key)
    part = f"<Part><PartNumber>1</PartNumber><ETag>{answer.headers['etag']}</ETag></Part>"
    body = f"<CompleteMultipartUpload>{part}</CompleteMultipartUpload>"
    answer, trace = traced.during(
        lambda: raw.request("POST", "/bucket/joined", query={"uploadId": upload}, body=body.encode()), 200
    )
    assert answer.code is None, answer
    written = trace.answers(200)[0].began
    assert any(call.ended < written for call in trace.syncs(traced.wal))


def test_delete_is_synced_before_its_204_and_before_its_bytes_are_deleted(traced):
    raw = traced.server.raw()
    assert raw.request("PUT", "/bucket/object", body=b"x").status == 200
    (physical_key,) = traced.physical_keys()
    answer, trace = traced.during(lambda: raw.request("DELETE", "/bucket/object"), 204)
    assert answer.status == 204, answer
    commits = [call.ended for call in trace.syncs(traced.wal)]
    assert commits and commits[0] < trace.answers(204)[0].began
    erased = trace.named(re.escape(physical_key.rpartition("/")[2]), "unlinkat", "unlink")
    assert all(commits[0] < call.began for call in erased)
