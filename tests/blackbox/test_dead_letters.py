"""Deletes that a store refuses: they back off, become dead letters after the tenth refusal, stay in the quota
accounting and can be retried. An unreachable store makes no dead letters."""

import json
import time

import pytest

import seaweed
from admin_client import admin_request, command
from catalogs import PostgresCatalog
from polling import eventually
from refusing_proxy import RefusingProxy
from s3_checks import body_of, refused
from settled_state import QUICK, settle, stored

BACKOFF_MIN_SECONDS = 0.02
BACKOFF_MAX_SECONDS = 0.2
INTERVAL_SECONDS = 0.5
ATTEMPTS = 10
SETTINGS = {
    **QUICK,
    "cleanup_queue": {
        "interval": f"{INTERVAL_SECONDS * 1000:.0f}ms",
        "backoff_min": f"{BACKOFF_MIN_SECONDS * 1000:.0f}ms",
        "backoff_max": f"{BACKOFF_MAX_SECONDS * 1000:.0f}ms",
        "max_attempts": ATTEMPTS,
    },
}
STORE = 'backend="store"'


@pytest.fixture
def proxy():
    refusing = RefusingProxy(seaweed.fresh_bucket()["endpoint"])
    yield refusing
    if not refusing.is_down:
        refusing.stop()


@pytest.fixture(params=["sqlite", "postgres"])
def server(request, own_server, proxy):
    """A small store behind the proxy, then a smaller disk."""
    backend = {**seaweed.fresh_bucket(), "endpoint": proxy.endpoint, "quota": 3000}
    catalog = PostgresCatalog() if request.param == "postgres" else None
    server = own_server(backend=backend, settings=SETTINGS, catalog=catalog)
    server.config["backends"].append({"name": "disk", "kind": "fs", "root": str(server.folder / "disk"), "quota": 2500})
    server.start()
    server.s3().create_bucket(Bucket="bucket")
    return server


def delete_two(server):
    """Writes two objects of 1000 bytes to the store and deletes them."""
    for key in ("a", "b"):
        server.s3().put_object(Bucket="bucket", Key=key, Body=body_of(1000, key))
    assert stored(server)
    doomed = {"Objects": [{"Key": "a"}, {"Key": "b"}]}
    assert "Errors" not in server.s3().delete_objects(Bucket="bucket", Delete=doomed)


def run_until(server, fact, message):
    """Runs cleanup repeatedly, because rows become due between the intervals."""

    def ran():
        server.run_worker("cleanup")
        return fact()

    return eventually(ran, 30, BACKOFF_MIN_SECONDS / 2, message)


def make_two_dead_letters(server, proxy):
    """Makes two dead letters and returns them as listed by the admin API."""
    proxy.refuses_deletes = True
    delete_two(server)
    letters = lambda: admin_request(server, "GET", "/dlq")[1]["items"]
    return run_until(server, lambda: len(letters()) == 2 and letters(), "no dead letters")


def written_off(server):
    return server.metrics()[f"s3o_quota_written_off_bytes{{{STORE}}}"]


def orphan(server):
    return server.metrics()[f"s3o_quota_orphan_bytes{{{STORE}}}"]


def bytes_on_the_store(server):
    backend = server.config["backends"][0]
    store = seaweed.connect(backend["endpoint"])
    found = store.list_objects_v2(Bucket=backend["bucket"]).get("Contents", [])
    return sum(entry["Size"] for entry in found if not entry["Key"].startswith(".s3o/"))


def assert_attempts_backed_off(letters, proxy):
    for letter in letters:
        moments = [moment for moment, key in proxy.delete_requests if key == letter["physical_key"]]
        assert len(moments) == ATTEMPTS, "one request for each attempt"
        for number, (one, next_one) in enumerate(zip(moments, moments[1:])):
            wait = min(BACKOFF_MIN_SECONDS * 2**number, BACKOFF_MAX_SECONDS)
            assert next_one - one >= wait / 2, f"attempt {number + 2} was too early"
        assert (letter["backend"], letter["reason"], letter["attempts"]) == ("store", "delete", ATTEMPTS)
        assert "AccessDenied" in letter["last_error"] and letter["size_bytes"] == 1000


def assert_reported(letters, server):
    """Metrics, audit lines and log lines show both dead letters."""
    samples = server.metrics()
    assert samples['s3o_cleanup_queue_processed_total{status="exhausted"}'] == 2
    assert samples['s3o_cleanup_queue_processed_total{status="retry"}'] == 2 * (ATTEMPTS - 1)
    assert samples[f"s3o_cleanup_dlq_enqueued_total{{{STORE}}}"] == 2
    assert (samples["s3o_cleanup_dlq_depth"], samples["s3o_cleanup_queue_depth"]) == (2, 0)
    lines = admin_request(server, "GET", "/audit?event=cleanup_queue.dead_lettered")[1]["items"]
    assert {line["physical_key"] for line in lines} == {letter["physical_key"] for letter in letters}
    for line in lines:
        assert (line["backend"], line["size_bytes"], line["reason"], line["attempts"]) == ("store", 1000, "delete", 10)
        assert line["run_id"] and line["actor"] == "cleanup" and "AccessDenied" in line["error"]
    warnings = [line for line in server.log().splitlines() if "cleanup moved to the dead-letter queue" in line]
    for letter in letters:
        [warning] = [line for line in warnings if letter["physical_key"] in line]
        assert "WARN" in warning and "store" in warning and "AccessDenied" in warning


def test_tenth_refusal_makes_a_dead_letter_and_retry_deletes_it(server, proxy):
    letters = make_two_dead_letters(server, proxy)
    # IDs of the first two rows of the queue.
    assert {letter["original_id"] for letter in letters} == {1, 2}
    assert_attempts_backed_off(letters, proxy)
    assert_reported(letters, server)

    assert orphan(server) == 2000, "the bytes still count"
    s3 = server.s3()
    s3.put_object(Bucket="bucket", Key="elsewhere", Body=body_of(2000))
    assert server.rows("SELECT backend_name FROM object_locations") == [("disk",)], (
        "it needs the capacity that is not free"
    )
    with refused("InsufficientStorage", 507):
        s3.put_object(Bucket="bucket", Key="nowhere", Body=body_of(2000))

    proxy.refuses_deletes = False
    retried = command(server, "dlq", "retry", "--backend", "store", "--reason", "delete")
    assert (retried.returncode, retried.stdout) == (0, "2 retried\n"), retried
    depths = ("s3o_cleanup_dlq_depth", "s3o_cleanup_queue_depth", f"s3o_quota_orphan_bytes{{{STORE}}}")
    eventually(lambda: [server.metrics()[name] for name in depths] == [0, 0, 0], 5, 0.05, "the queue was not emptied")
    assert stored(server) == set() and written_off(server) == 0
    lines = admin_request(server, "GET", "/audit?event=dlq.retried")[1]["items"]
    assert [line["size_bytes"] for line in lines] == [1000, 1000]
    assert all(line["request_id"] and line["actor"] == "admin" and line["backend"] == "store" for line in lines)
    s3.put_object(Bucket="bucket", Key="fits-again", Body=body_of(2500))


def test_unreachable_store_makes_no_dead_letters(server, proxy):
    proxy.refuses_deletes = True
    for key in ("a", "b"):
        server.s3().put_object(Bucket="bucket", Key=key, Body=body_of(1000, key))
    proxy.stop()
    doomed = {"Objects": [{"Key": "a"}, {"Key": "b"}]}
    server.s3().delete_objects(Bucket="bucket", Delete=doomed)
    end = time.monotonic() + 2 * ATTEMPTS * BACKOFF_MAX_SECONDS
    while time.monotonic() < end:
        server.run_worker("cleanup")
    listed = json.loads(command(server, "cleanup", "list", "--json").stdout)["items"]
    assert [(row["attempts"], row["backend"], row["reason"]) for row in listed] == [(0, "store", "delete")] * 2
    assert admin_request(server, "GET", "/dlq") == (200, {"items": [], "next": None})
    assert server.metrics()['s3o_cleanup_queue_processed_total{status="deferred"}'] > 0
    proxy.refuses_deletes = False
    proxy.start()
    started = time.monotonic()
    eventually(lambda: server.metrics()["s3o_cleanup_queue_depth"] == 0, 10, 0.02, "the queue was not emptied")
    # The interval, plus the time of three calls to an unreachable store.
    assert time.monotonic() - started < INTERVAL_SECONDS + 2
    assert stored(server) == set() and orphan(server) == 0


def test_discard_checks_the_backend_first(server, proxy):
    first, second = make_two_dead_letters(server, proxy)
    for path in (f"/dlq/{first['id']}/discard", f"/dlq/{second['id']}/discard?force=false"):
        status, body = admin_request(server, "POST", path)
        assert (status, body["error"]["code"]) == (409, "still_there")
    proxy.stop()
    status, body = admin_request(server, "POST", f"/dlq/{first['id']}/discard")
    assert (status, body["error"]["code"]) == (409, "not_proven")
    proxy.start()
    refusal = command(server, "dlq", "discard", "--backend", "store")
    assert refusal.returncode == 1 and "2 refused" in refusal.stderr and refusal.stdout == "0 discarded\n", refusal
    assert (orphan(server), len(admin_request(server, "GET", "/dlq")[1]["items"])) == (2000, 2), "nothing changed"

    proxy.refuses_deletes = False
    backend = server.config["backends"][0]
    seaweed.connect(backend["endpoint"]).delete_object(Bucket=backend["bucket"], Key=first["physical_key"])
    proxy.refuses_deletes = True
    assert command(server, "dlq", "discard", str(first["id"])).stdout == f"{first['id']}: discarded\n"
    assert (orphan(server), written_off(server), bytes_on_the_store(server)) == (1000, 0, 1000)
    forced = command(server, "dlq", "discard", str(second["id"]), "--force", "--json")
    assert json.loads(forced.stdout) == {"id": second["id"], "discarded": True}, forced
    assert (orphan(server), written_off(server), bytes_on_the_store(server)) == (0, 1000, 1000)
    ((kind, key, detail),) = server.rows("SELECT kind, physical_key, detail FROM findings")
    assert (kind, key) == ("written_off", second["physical_key"])
    assert json.loads(detail)["found"] == "the bytes are there"
    (finding,) = admin_request(server, "GET", "/findings?kind=written_off&backend=store")[1]["items"]
    assert (finding["physical_key"], finding["size_bytes"], finding["detail"]) == (key, 1000, detail)
    assert key in command(server, "findings", "list").stdout
    assert json.loads(command(server, "findings", "list", "--kind", "other", "--json").stdout)["items"] == []
    backends = {backend["name"]: backend for backend in admin_request(server, "GET", "/status")[1]["backends"]}
    assert backends["store"]["written_off"] == 1000
    lines = admin_request(server, "GET", "/audit?event=dlq.discarded")[1]["items"]
    assert [(line["physical_key"], line["written_off"]) for line in lines] == [
        (first["physical_key"], False),
        (second["physical_key"], True),
    ]
    events = [line["event"] for line in admin_request(server, "GET", "/audit?event=admin.dlq.*")[1]["items"]]
    assert events == ["admin.dlq.discard"] * 6


def test_dead_letters_are_listed_in_pages_and_bad_input_changes_nothing(server, proxy):
    letters = make_two_dead_letters(server, proxy)
    page = admin_request(server, "GET", "/dlq?limit=1&backend=store&reason=delete")[1]
    assert page == {"items": letters[:1], "next": str(letters[0]["id"])}
    assert admin_request(server, "GET", f"/dlq?limit=1&after={page['next']}")[1] == {"items": letters[1:], "next": None}
    assert admin_request(server, "GET", "/dlq?reason=overwrite")[1]["items"] == []
    shown = command(server, "dlq", "list")
    assert shown.returncode == 0 and all(letter["physical_key"] in shown.stdout for letter in letters), shown
    assert json.loads(command(server, "dlq", "list", "--backend", "disk", "--json").stdout)["items"] == []
    for path, status in (
        ("/dlq/999999/retry", 404),
        ("/dlq/999999/discard?force=true", 404),
        ("/dlq/nothing/retry", 404),
        ("/dlq/discard", 400),
        ("/dlq/discard?force=true", 400),
        ("/dlq/retry?bakend=disk", 400),
        ("/dlq/retry?backend=No+Backend", 400),
        (f"/dlq/{letters[0]['id']}/discard?force=maybe", 400),
    ):
        found, body = admin_request(server, "POST", path)
        assert (found, bool(body["error"]["code"])) == (status, True), path
    assert admin_request(server, "GET", "/dlq?limit=many")[0] == 400
    for arguments in (("retry",), ("discard", "--force"), ("retry", "1", "--backend", "store")):
        assert command(server, "dlq", *arguments).returncode == 2, arguments
    missing = command(server, "dlq", "retry", "999999", str(letters[0]["id"]))
    assert missing.returncode == 1 and "999999" in missing.stderr, missing
    assert missing.stdout == f"{letters[0]['id']}: retried\n", "the other one is still retried"
    proxy.refuses_deletes = False
    assert admin_request(server, "POST", "/dlq/retry?backend=store") == (200, {"retried": 1})
    settle(server)
