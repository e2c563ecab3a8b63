"""Several instances on one PostgreSQL act as one store: what one acknowledged, all show, and no bytes leak."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from polling import eventually
from s3_checks import body_of
from settled_state import settle

pytestmark = [pytest.mark.alone, pytest.mark.timeout(150)]

FIRST_WRITERS = 100
OVERWRITES = 300
WRITERS = 50


def test_every_instance_shows_what_another_acknowledged(instances):
    servers = instances(3)
    for number in range(30):
        writer, reader = servers[number % 3], servers[(number + 1) % 3]
        writer.s3().put_object(Bucket="bucket", Key=f"key-{number}", Body=body_of(1000, number))
        assert reader.s3().get_object(Bucket="bucket", Key=f"key-{number}")["Body"].read() == body_of(1000, number)
        listed = reader.s3().list_objects_v2(Bucket="bucket").get("Contents", [])
        assert len(listed) == number + 1
    for number in range(0, 30, 2):
        servers[number % 3].s3().delete_object(Bucket="bucket", Key=f"key-{number}")
        other = servers[(number + 1) % 3]
        assert len(other.s3().list_objects_v2(Bucket="bucket")["Contents"]) == 30 - number // 2 - 1
    settle(servers[0])


@pytest.mark.parametrize("count", [2, 3])
def test_one_of_a_hundred_first_writers_wins(instances, count):
    servers = instances(count)
    raws = [server.raw() for server in servers]
    together = threading.Barrier(FIRST_WRITERS)

    def write(number):
        connection = raws[number % count].connect()
        connection.connect()
        together.wait(30)
        answer = raws[number % count].request(
            "PUT", "/bucket/prize", headers={"If-None-Match": "*"}, body=body_of(500, number), on=connection
        )
        return number, answer.status

    with ThreadPoolExecutor(FIRST_WRITERS) as pool:
        statuses = dict(pool.map(write, range(FIRST_WRITERS)))
    winners = [number for number, status in statuses.items() if status == 200]
    # A busy store may refuse a writer; two writers never win.
    assert len(winners) == 1 and set(statuses.values()) <= {200, 409, 412, 503}, statuses
    for server in servers:
        assert server.s3().get_object(Bucket="bucket", Key="prize")["Body"].read() == body_of(500, winners[0])
    settle(servers[0])


def body_or_none(raw, path):
    answer = raw.request("GET", path)
    assert answer.status in (200, 404), answer
    return answer.body if answer.status == 200 else None


@pytest.mark.parametrize("count", [2, 3])
def test_concurrent_overwrites_leave_one_content_and_no_leak(instances, count):
    patient = {
        "write_path": {"pending_intents": {"min_age": "5s", "reaper_tick": "100ms", "late_write_window": "300ms"}}
    }
    servers = instances(count, patient)
    raws = [server.raw() for server in servers]

    def write(number):
        key = f"/bucket/key-{number % 4}"
        if number % 5 == 4:
            return raws[number % count].request("DELETE", key).status
        return raws[number % count].request("PUT", key, body=body_of(2000, number)).status

    with ThreadPoolExecutor(16) as pool:
        statuses = set(pool.map(write, range(OVERWRITES)))
    assert statuses <= {200, 204}, statuses
    # The last request is a write.
    assert raws[0].request("PUT", "/bucket/key-0", body=b"last").status == 200
    seen = [[body_or_none(raw, f"/bucket/key-{number}") for number in range(4)] for raw in raws]
    assert all(bodies == seen[0] for bodies in seen) and seen[0][0] == b"last"
    assert set(seen[0][1:]) <= {None, *(body_of(2000, number) for number in range(OVERWRITES))}
    settle(servers[0])
    located = servers[0].rows("SELECT count(*) FROM object_locations")[0][0]
    objects = servers[0].rows("SELECT count(*) FROM objects")[0][0]
    assert 1 <= located == objects <= 4
    drift = servers[0].rows(
        "SELECT sum(used_bytes) - (SELECT coalesce(sum(size_bytes), 0) FROM object_locations), sum(orphan_bytes), "
        "sum(reserved_bytes) FROM backend_quotas"
    )[0]
    assert [int(number) for number in drift] == [0, 0, 0]


def slow_put(server, path):
    """A PUT whose body takes four seconds; returns its status, or None if the connection broke."""
    raw = server.raw()
    target, headers, _ = raw.prepare("PUT", path, headers={"Content-Length": str(40 * 5000)})

    def pieces():
        for _ in range(40):
            time.sleep(0.1)
            yield b"s" * 5000

    try:
        return raw.send("PUT", target, headers, pieces()).status
    except OSError:
        return None


def test_suspended_writer_cannot_commit_after_it_was_fenced(instances):
    frozen, other = instances(2)
    with ThreadPoolExecutor(1) as pool:
        upload = pool.submit(slow_put, frozen, "/bucket/late")
        eventually(lambda: other.rows("SELECT 1 FROM pending_objects"), 10, message="no intent was staged")
        os.kill(frozen.process.pid, signal.SIGSTOP)
        try:
            settle(other)
        finally:
            os.kill(frozen.process.pid, signal.SIGCONT)
        assert upload.result(60) != 200
    settle(other)
    assert other.raw().request("GET", "/bucket/late").status == 404
    assert other.raw().request("PUT", "/bucket/late", body=b"x").status == 200
    assert frozen.raw().request("GET", "/bucket/late").body == b"x"


def test_other_instances_take_over_work_of_a_killed_one(instances):
    killed, other = instances(2)
    with ThreadPoolExecutor(1) as pool:
        upload = pool.submit(slow_put, killed, "/bucket/half")
        eventually(lambda: other.rows("SELECT 1 FROM pending_objects"), 10, message="no intent was staged")
        killed.kill()
        assert upload.result(60) is None
    settle(other)
    assert other.files() == set()


def test_concurrent_overwrites_of_many_keys_do_not_deadlock(instances):
    patient = {"write_path": {"pending_intents": {"min_age": "1m", "reaper_tick": "1m"}}}
    servers = instances(2, patient)
    raws = [server.raw() for server in servers]

    def write(number):
        path = f"/bucket/key-{number % WRITERS}"
        return raws[number % 2].request("PUT", path, body=body_of(500, number)).status

    # Every write commits its own bytes and releases those of another, on any quota row.
    with ThreadPoolExecutor(WRITERS) as pool:
        assert set(pool.map(write, range(5 * WRITERS))) == {200}
    settle(servers[0])
    deadlocks = servers[0].rows("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")[0][0]
    assert deadlocks == 0
