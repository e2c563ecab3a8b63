"""A database that crashes or restarts under load: requests fail in the meantime, nothing acknowledged is lost."""

import threading

import pytest

from catalogs import PostgresCatalog
from polling import eventually
from s3_checks import body_of
from settled_state import QUICK, settle

pytestmark = [pytest.mark.alone, pytest.mark.timeout(180)]

STOPS = ("immediate", "fast", "immediate")
WRITERS = 6


class Writer(threading.Thread):
    """Writes keys and deletes every third of them, in turns through each server, and records the answers."""

    def __init__(self, number, servers, ending):
        super().__init__(daemon=True)
        self.number, self.ending, self.asked = number, ending, number
        self.raws = [server.raw() for server in servers]
        self.acknowledged, self.deleted, self.statuses = [], [], set()

    def run(self):
        count = 0
        while not self.ending.is_set():
            count += 1
            key = f"{self.number}/{count}"
            if self.ask("PUT", key, body_of(700, key)) != 200:
                continue
            if count % 3 == 0:
                # After a lost answer the object exists or not.
                if self.ask("DELETE", key) == 204:
                    self.deleted.append(key)
            else:
                self.acknowledged.append(key)

    def ask(self, method, key, body=b""):
        self.asked += 1
        try:
            answer = self.raws[self.asked % len(self.raws)].request(method, f"/bucket/{key}", body=body)
        except OSError:
            return None
        self.statuses.add(answer.status)
        return answer.status


def test_a_database_that_crashes_under_load_loses_nothing(own_server, own_postgres):
    catalog = PostgresCatalog(own_postgres.url)
    patient = {"pending_intents": {"min_age": "3s", "reaper_tick": "100ms", "late_write_window": "300ms"}}
    settings = {**QUICK, "write_path": patient}
    first = own_server(name="one", settings=settings, catalog=catalog).start()
    second = own_server(name="two", settings=settings, catalog=catalog, backend=first.config["backends"][0]).start()
    first.s3().create_bucket(Bucket="bucket")
    ending = threading.Event()
    writers = [Writer(number, (first, second), ending) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    for mode in STOPS:
        before = sum(len(writer.acknowledged) for writer in writers)
        eventually(lambda: sum(len(writer.acknowledged) for writer in writers) > before + 20, 30)
        own_postgres.stop(mode)
        refusal = eventually(lambda: refused(first), 20, message="requests succeed without a database")
        assert refusal == "ServiceUnavailable"
        own_postgres.restart()
        eventually(lambda: not refused(first) and not refused(second), 30, message="an instance did not recover")
    ending.set()
    for writer in writers:
        writer.join(60)
    acknowledged = [key for writer in writers for key in writer.acknowledged]
    statuses = set().union(*(writer.statuses for writer in writers))
    deleted = [key for writer in writers for key in writer.deleted]
    print(f"{len(acknowledged)} acknowledged writes, {len(deleted)} deletes, statuses {sorted(statuses)}")
    assert acknowledged and deleted and statuses <= {200, 204, 503}, statuses
    settle(first)
    for key in acknowledged:
        assert second.raw().request("GET", f"/bucket/{key}").body == body_of(700, key), key
    for key in deleted:
        assert second.raw().request("GET", f"/bucket/{key}").status == 404, key


def refused(server):
    """The error code, or None if the request succeeds."""
    answer = server.raw().request("HEAD", "/bucket")
    if answer.status == 200:
        return None
    return server.raw().request("GET", "/bucket").code
