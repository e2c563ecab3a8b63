"""A damaged catalog: no live bytes are deleted, and detectable damage is not served as healthy.

`S3O_DAMAGED_CATALOGS` is the number of damaged copies (`make damage` uses more), `S3O_DAMAGE_SEED` their first seed.
"""

import collections
import json
import os
import shutil
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from catalogs import PostgresCatalog
from damage import BUCKET, Case, Original, body
from polling import eventually
from s3_checks import refused
from test_admin import command

CATALOGS = int(os.environ.get("S3O_DAMAGED_CATALOGS", "10"))
SEED = int(os.environ.get("S3O_DAMAGE_SEED", "1"))


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return Original(tmp_path_factory.mktemp("original"))


@pytest.mark.timeout(120 + 10 * CATALOGS)
def test_no_damage_deletes_live_bytes_or_is_served_as_healthy(original, tmp_path):
    outcomes, unseen, lost, healthy = collections.Counter(), [], [], []
    for seed in range(SEED, SEED + CATALOGS):
        case = Case(original, tmp_path / "case", seed).play()
        outcomes[case.kind, case.state] += 1
        print(case, flush=True)
        if case.lost():
            lost.append(str(case))
        if case.state == "ok" and not case.whole:
            healthy.append(str(case))
        if case.state == "ok":
            unseen.append(case)
        shutil.rmtree(tmp_path / "case")
    answers = sum((collections.Counter(case.answers) for case in unseen), collections.Counter())
    print(f"{CATALOGS} catalogs: {dict(outcomes)}; {len(unseen)} that no check detected answered {dict(answers)}")
    assert lost == [], "live files were deleted"
    assert healthy == [], "detectable damage was served as healthy"
    assert "wrong bytes" not in answers


def hide_objects(catalog):
    """Empties the index from content to objects; the schema does not show it."""
    connection = sqlite3.connect(catalog, isolation_level=None)
    connection.execute("DROP INDEX objects_content")
    connection.execute("CREATE INDEX objects_content ON objects (content_id) WHERE content_id = ''")
    connection.execute("PRAGMA writable_schema = ON")
    text = "CREATE INDEX objects_content ON objects (content_id)"
    connection.execute("UPDATE sqlite_schema SET sql = ? WHERE name = 'objects_content'", (text,))
    connection.close()


def test_broken_index_deletes_no_live_bytes(own_server):
    server = own_server(settings={"cleanup_queue": {"interval": "100ms"}}).start()
    server.s3().create_bucket(Bucket=BUCKET)
    for number in range(3):
        server.s3().put_object(Bucket=BUCKET, Key=f"k{number}", Body=body(f"k{number}"))
    server.stop()
    live = server.files()
    hide_objects(server.catalog)
    server.spawn()
    eventually(lambda: state(server), 30, message="no status")
    for _ in range(3):
        server.admin("POST", "/admin/api/workers/quota_audit/run")
        server.admin("POST", "/admin/api/workers/cleanup/run")
    time.sleep(1)
    assert server.files() == live


def break_objects(catalog):
    """Fills one leaf page of the objects table with garbage."""
    connection = sqlite3.connect(catalog)
    leaves = connection.execute(
        "SELECT pageno FROM dbstat WHERE name = 'objects' AND pagetype = 'leaf' ORDER BY pageno"
    ).fetchall()
    connection.close()
    with open(catalog, "r+b") as file:
        file.seek((leaves[-1][0] - 1) * 4096)
        file.write(b"\xa5" * 4096)


def degraded_server(own_server):
    """A server on a catalog with a partly damaged objects table."""
    server = own_server().start()
    server.s3().create_bucket(Bucket=BUCKET)
    for number in range(60):
        name = f"object-{number:04}"
        server.s3().put_object(Bucket=BUCKET, Key=name, Body=body(name))
    server.stop()
    break_objects(server.catalog)
    server.spawn()
    eventually(lambda: state(server) == "degraded", 30, message="the damage was not detected")
    return server


def state(server):
    try:
        status, answer = server.admin("GET", "/admin/api/status")
    except OSError:
        return None
    return json.loads(answer)["catalog"]["state"] if status == 200 else None


def answer_for(server, name):
    try:
        return server.s3().get_object(Bucket=BUCKET, Key=name)["Body"].read()
    except ClientError as refusal:
        return refusal.response["ResponseMetadata"]["HTTPStatusCode"]


def test_damaged_catalog_serves_only_objects_that_it_finds(own_server):
    server = degraded_server(own_server)
    live = server.files()
    answers = {f"object-{number:04}": answer_for(server, f"object-{number:04}") for number in range(60)}
    found = [name for name, answer in answers.items() if answer == body(name)]
    assert found and len(found) < 60, "only some rows are found"
    assert {answer for name, answer in answers.items() if name not in found} == {503}
    assert server.admin_get("/health/ready")[0] == 503
    for refused_call in (
        lambda s3: s3.get_object(Bucket=BUCKET, Key="never-there"),
        lambda s3: s3.list_objects_v2(Bucket=BUCKET),
        lambda s3: s3.list_buckets(),
        lambda s3: s3.put_object(Bucket=BUCKET, Key="new", Body=b"new"),
        lambda s3: s3.delete_object(Bucket=BUCKET, Key=found[0]),
    ):
        with refused("ServiceUnavailable", 503):
            refused_call(server.s3())
    shown = command(server, "status").stdout
    assert "catalog degraded" in shown and "s3o catalog restore" in shown
    _, answer = server.admin("GET", "/admin/api/audit?event=catalog.degraded")
    assert len(json.loads(answer)["items"]) == 1
    assert server.files() == live


def test_an_older_database_is_not_served_as_healthy(own_server):
    server = own_server().start()
    server.s3().create_bucket(Bucket=BUCKET)
    server.s3().put_object(Bucket=BUCKET, Key="early", Body=b"early")
    server.stop()
    shutil.copyfile(server.catalog, server.folder / "older.db")
    for name in ("late", "later"):
        server.start()
        server.s3().put_object(Bucket=BUCKET, Key=name, Body=name.encode())
        server.stop()
    shutil.copyfile(server.folder / "older.db", server.catalog)
    server.spawn()
    eventually(lambda: state(server) == "degraded", 30, message="an older database is served as healthy")
    assert answer_for(server, "early") == b"early"
    assert answer_for(server, "late") == 503, "the newest database may have the object"
    server.kill()
    done = command(server, "catalog", "restore", str(server.catalog), "--config", str(server.config_path))
    assert done.returncode == 0, done
    server.start()
    assert state(server) in ("ok", "checking") and answer_for(server, "late") == 404, "an operator accepted it"


def test_wal_of_another_database_is_refused(own_server):
    server = own_server().start()
    server.s3().create_bucket(Bucket=BUCKET)
    server.kill()
    log = (server.folder / "catalog.db-wal").read_bytes()
    assert log
    server.start()
    server.stop()
    (server.folder / "catalog.db-wal").write_bytes(log)
    server.spawn()
    assert server.process.wait(30) == 1
    assert "belongs to another copy of the database" in server.log()
    assert (server.folder / "catalog.db-wal").read_bytes() == log, "nothing was changed"


def test_a_backup_is_taken_online_and_restored(own_server, tmp_path):
    server = own_server().start()
    server.s3().create_bucket(Bucket=BUCKET)
    server.s3().put_object(Bucket=BUCKET, Key="before", Body=b"before")
    backup = tmp_path / "catalog.backup"
    done = command(server, "catalog", "backup", str(backup))
    assert done.returncode == 0, done
    assert backup.stat().st_mode & 0o777 == 0o600
    assert command(server, "catalog", "backup", str(backup)).returncode == 1, "an existing file is not overwritten"
    server.s3().put_object(Bucket=BUCKET, Key="after", Body=b"after")
    in_use = command(server, "catalog", "restore", str(backup), "--config", str(server.config_path))
    assert in_use.returncode == 1 and "another process" in in_use.stderr, "a catalog in use is not replaced"
    server.stop()
    files = server.files()
    done = command(server, "catalog", "restore", str(backup), "--config", str(server.config_path))
    assert done.returncode == 0 and "kept the old catalog as" in done.stdout, done
    server.start()
    assert (answer_for(server, "before"), answer_for(server, "after")) == (b"before", 404)
    server.run_worker("quota_audit")
    server.run_worker("cleanup")
    assert server.files() >= files, "bytes that the backup does not know are kept"
    assert server.catalog.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("with_checksums", [False, True])
def test_postgres_without_data_checksums_is_warned_about(own_server, own_postgres, with_checksums):
    own_postgres.stop("fast")
    own_postgres.set_checksums(with_checksums)
    own_postgres.restart()
    server = own_server(catalog=PostgresCatalog(own_postgres.url)).start()
    assert server.rows("SHOW data_checksums") == [("on" if with_checksums else "off",)]
    warned = "PostgreSQL cannot detect damaged pages" in server.log()
    assert warned == (not with_checksums), server.log()


def test_postgres_catalog_is_restored_with_pg_dump_and_pg_restore(own_server, own_postgres, tmp_path):
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))[-1]
    catalog = PostgresCatalog(own_postgres.url)
    server = own_server(catalog=catalog).start()
    server.s3().create_bucket(Bucket=BUCKET)
    server.s3().put_object(Bucket=BUCKET, Key="before", Body=b"before")
    dump = tmp_path / "catalog.dump"
    subprocess.run([programs / "pg_dump", "--format=custom", f"--file={dump}", catalog.url], check=True)
    server.s3().put_object(Bucket=BUCKET, Key="after", Body=b"after")
    assert command(server, "catalog", "backup", str(tmp_path / "file")).returncode == 1, (
        "PostgreSQL catalogs are backed up with pg_dump"
    )
    server.stop()
    fresh = PostgresCatalog(own_postgres.url)
    subprocess.run([programs / "pg_restore", f"--dbname={fresh.url}", dump], check=True)
    server.config["database"]["url"] = fresh.url
    server.start()
    assert (answer_for(server, "before"), answer_for(server, "after")) == (b"before", 404)
