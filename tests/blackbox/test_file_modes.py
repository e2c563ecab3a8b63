"""Files and folders of s3o are private, whatever the umask; wider modes are reported with their remedy."""

import os
import re
import shlex
import stat
import subprocess
from pathlib import Path

import pytest

from polling import eventually
from ports import free_ports
from s3_checks import body_of
from server_process import binary, s3_client
from signing import Credentials

SECONDS = 30
UMASKS = (0o000, 0o022, 0o077)


def mode_of(path):
    return stat.S_IMODE(path.lstat().st_mode)


def wide(folder):
    """Paths in a folder, and the folder itself, that other users can access."""
    return {str(path): oct(mode_of(path)) for path in [folder, *folder.rglob("*")] if mode_of(path) & 0o077}


@pytest.mark.usefixtures("s3o_only")
@pytest.mark.parametrize("umask", UMASKS, ids=oct)
def test_files_created_by_serve_are_private(tmp_path, umask):
    port, admin = free_ports(2)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("S3O_", "AWS_"))}
    output = tmp_path / "output"
    work = tmp_path / "work"
    work.mkdir()
    with open(output, "wb") as log:
        process = subprocess.Popen(
            [binary(), "serve", "--listen", f"127.0.0.1:{port}", "--admin-listen", f"127.0.0.1:{admin}"],
            cwd=work,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            umask=umask,
        )
    try:
        eventually(lambda: "printed only this time" in output.read_text(), SECONDS, message="it did not start")
        exports = dict(re.findall(r"export (\w+)=(\S+)", output.read_text()))
        credentials = Credentials(exports["AWS_ACCESS_KEY_ID"], exports["AWS_SECRET_ACCESS_KEY"])
        s3 = s3_client(f"http://127.0.0.1:{port}", credentials)
        s3.create_bucket(Bucket="bucket")
        for size in (10, 200_000, 2_000_000):
            s3.put_object(Bucket="bucket", Key=f"folder/{size}", Body=body_of(size))
        upload = s3.create_multipart_upload(Bucket="bucket", Key="parts")["UploadId"]
        s3.upload_part(Bucket="bucket", Key="parts", UploadId=upload, PartNumber=1, Body=body_of(300_000))
        data = work / "s3o-data"
        for name in ("catalog.db", "catalog.db-wal", "catalog.db-shm", "audit.jsonl", "credentials.json"):
            assert mode_of(data / name) == 0o600, name
        assert mode_of(data) == 0o700
        objects = [path for path in (data / "disk").rglob("*") if path.is_file()]
        assert len(objects) >= 5, objects
        assert {mode_of(path) for path in objects} == {0o600}
        assert wide(data) == {}
        assert "can access s3o's files" not in output.read_text()
    finally:
        process.terminate()
        process.wait(SECONDS)


@pytest.mark.usefixtures("s3o_only")
@pytest.mark.parametrize("umask", UMASKS, ids=oct)
def test_init_writes_a_private_file(tmp_path, umask):
    done = subprocess.run([binary(), "init"], cwd=tmp_path, capture_output=True, timeout=SECONDS, umask=umask)
    assert done.returncode == 0, done
    assert mode_of(tmp_path / "s3o.yaml") == 0o600


def test_wider_modes_are_reported_with_the_command_that_narrows_them(own_server):
    server = own_server().start()
    server.s3().create_bucket(Bucket="bucket")
    server.s3().put_object(Bucket="bucket", Key="k", Body=b"x")
    assert server.stop() == 0
    data = server.folder / "s3o-data"
    audit = data / "audit.jsonl"
    for path, mode in ((server.catalog, 0o644), (audit, 0o640), (data, 0o755), (server.root, 0o755)):
        path.chmod(mode)
    server.config_path.chmod(0o644)

    def fixes(since):
        warned = r'other users of this machine can access s3o\'s files path=\S+ mode="\d+" fix="([^"]+)"'
        return re.findall(warned, server.log()[since:])

    since = len(server.log())
    server.start()
    found = fixes(since)
    named = {Path(shlex.split(fix)[-1]).name for fix in found}
    beside = {"catalog.db-wal", "catalog.db-shm"}
    assert named == {"catalog.db", "audit.jsonl", "s3o-data", "disk", "s3o.yaml", *beside}, server.log()
    assert server.stop() == 0
    # SQLite deletes its other two files at exit and creates them again with the mode of the database.
    for fix in (fix for fix in found if "catalog.db-" not in fix):
        subprocess.run(shlex.split(fix), cwd=server.folder, check=True, timeout=SECONDS)
    since = len(server.log())
    server.start()
    assert fixes(since) == [], "the reported commands narrowed the modes"
    assert wide(data) == {} and wide(server.root) == {}
    assert server.stop() == 0
