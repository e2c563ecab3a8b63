"""SIGKILL at random moments: acknowledged objects stay, deleted ones stay deleted, and no bytes leak.

Requests and kills follow a seed, which is printed; `S3O_SEED` repeats them.
`S3O_KILLS` changes the number of kills.
"""

import os
import random
import threading
import time

import pytest

from kill_load import BUCKET, Loader
from kill_model import Model, digest_of
from settled_state import QUICK, settle

KILLS = int(os.environ.get("S3O_KILLS", "50"))
SEED = int(os.environ.get("S3O_SEED", str(random.SystemRandom().randrange(2**32))))
THREADS = 4
SETTLE_EVERY = 10


def load_until_killed(server, model, rng):
    """Runs the load, kills the server during it, and returns the number of open intents."""
    stopping = threading.Event()
    faults = []

    def work(loader):
        try:
            loader.run(stopping)
        except BaseException as fault:
            faults.append(fault)

    loaders = [Loader(f"t{number}", server.raw(), model, rng.random()) for number in range(THREADS)]
    for loader in loaders:
        loader.serial = rng.randrange(2**40)
    threads = [threading.Thread(target=work, args=(loader,)) for loader in loaders]
    for thread in threads:
        thread.start()
    time.sleep(rng.uniform(0.15, 0.9))
    server.kill()
    stopping.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive(), "a request did not end with its server"
    if faults:
        raise faults[0]
    return len(server.rows("SELECT 1 FROM pending_objects"))


def reader(server):
    """Reads one key: the digest of its body, or None if there is no object."""
    raw = server.raw()
    connection = raw.connect()

    def read(key):
        answer = raw.request("GET", raw.path(BUCKET, key), on=connection)
        if answer.status == 404:
            assert answer.code == "NoSuchKey", answer
            return None
        assert answer.status == 200, answer
        return digest_of(answer.body)

    return read


@pytest.mark.alone
@pytest.mark.timeout(420)
def test_kills_lose_no_object_restore_none_and_leak_no_bytes(own_server, capsys):
    rng = random.Random(SEED)
    server = own_server(settings=QUICK).start()
    server.s3().create_bucket(Bucket=BUCKET)
    model = Model()
    met = []
    with capsys.disabled():
        print(f"\nkill test: S3O_SEED={SEED}, {KILLS} kills")
    for number in range(1, KILLS + 1):
        open_intents = load_until_killed(server, model, rng)
        met.append(open_intents)
        server.start()
        wrong = model.check(reader(server))
        assert not wrong, f"after kill {number} of seed {SEED}:\n" + "\n".join(wrong)
        if number % SETTLE_EVERY == 0:
            settle(server)
            wrong = model.check(reader(server))
            assert not wrong, f"after the workers of kill {number}, seed {SEED}:\n" + "\n".join(wrong)
        with capsys.disabled():
            print(f"  kill {number:3}: met {open_intents} open intents; so far {model.summary()}")
    settle(server)
    hit = sum(1 for count in met if count)
    with capsys.disabled():
        print(f"  {hit} of {KILLS} kills met an open intent; {model.summary()} (acknowledged+unknown?)")
    assert hit * 2 >= KILLS, "too few kills met an open intent for a meaningful result"
    assert model.counts.get(("PUT", "acknowledged"), 0) >= KILLS, "too little load for a meaningful result"
    delete_all(server)
    settle(server)
    assert server.files() == set(), "bytes are left after all objects were deleted"


def delete_all(server, bucket=BUCKET):
    s3 = server.s3()
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        for entry in page.get("Contents", []):
            s3.delete_object(Bucket=bucket, Key=entry["Key"])
    for page in s3.get_paginator("list_multipart_uploads").paginate(Bucket=bucket):
        for upload in page.get("Uploads", []):
            s3.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])
