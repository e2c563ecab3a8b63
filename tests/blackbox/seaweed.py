"""A throw-away SeaweedFS: the real S3 server behind the `s3` backend.

As a program (`seaweed.py FOLDER FILE`) it runs a server until it is stopped, and writes `export` lines for a shell into
the file as soon as the server accepts writes.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from ports import free_ports

ACCESS_KEY = "seaweed-key"
SECRET_KEY = "seaweed-secret-for-tests"
START_SECONDS = 60


def connect(endpoint, access_key=ACCESS_KEY, secret_key=SECRET_KEY):
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        config=Config(
            s3={"addressing_style": "path"},
            connect_timeout=5,
            read_timeout=30,
            retries={"total_max_attempts": 1},
        ),
    )


def program():
    """Path of `weed`, next to this Python or in the PATH."""
    beside = Path(sys.executable).parent / "weed"
    found = str(beside) if beside.exists() else shutil.which("weed")
    assert found, "weed is not installed: run scripts/setup.sh"
    return found


def start(folder):
    """Starts a server in `folder`; returns its process and its endpoint once it accepts writes."""
    folder = Path(folder)
    (folder / "weed").mkdir(parents=True, exist_ok=True)
    identities = folder / "s3.json"
    identities.write_text(
        json.dumps(
            {
                "identities": [
                    {
                        "name": "tests",
                        "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
                        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
                    }
                ]
            }
        )
    )
    # Every bucket has its own volumes; one volume at a time is enough for tests.
    (folder / "master.toml").write_text("[master.volume_growth]\ncopy_1 = 1\n")
    names = ["master.port", "master.port.grpc", "volume.port", "volume.port.grpc"]
    names += ["filer.port", "filer.port.grpc", "s3.port", "s3.port.grpc"]
    ports = dict(zip(names, free_ports(len(names))))
    command = [program(), "server", f"-dir={folder / 'weed'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
    command += ["-filer", "-s3", f"-s3.config={identities}", "-s3.port.iceberg=0", "-s3.port.lance=0"]
    command += ["-volume.max=1000", "-master.volumeSizeLimitMB=256", "-volume.preStopSeconds=0"]
    command += [f"-{name}={port}" for name, port in ports.items()]
    with open(folder / "weed.log", "wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder, start_new_session=True
        )
    endpoint = f"http://127.0.0.1:{ports['s3.port']}"
    try:
        warm_up(process, endpoint)
    except BaseException:
        process.kill()
        sys.stderr.write((folder / "weed.log").read_text(errors="replace")[-4000:])
        raise
    return process, endpoint


def warm_up(process, endpoint):
    """Creates volumes before any test is timed, because the first writes are slow."""
    client = connect(endpoint)
    deadline = time.monotonic() + START_SECONDS
    bucket = f"warm-{uuid.uuid4().hex[:8]}"
    while True:
        assert process.poll() is None, "SeaweedFS exited during start-up"
        try:
            client.create_bucket(Bucket=bucket)
            client.put_object(Bucket=bucket, Key="warm", Body=b"warm")
            client.get_object(Bucket=bucket, Key="warm")["Body"].read()
            client.delete_object(Bucket=bucket, Key="warm")
            return
        except (BotoCoreError, ClientError):
            assert time.monotonic() < deadline, "SeaweedFS accepts no writes"
            time.sleep(0.2)


def fresh_bucket():
    """A new bucket on the server from the environment, as settings of an `s3` backend."""
    endpoint = os.environ["S3O_TEST_S3_ENDPOINT"]
    access_key = os.environ["S3O_TEST_S3_ACCESS_KEY"]
    secret_key = os.environ["S3O_TEST_S3_SECRET_KEY"]
    bucket = f"backend-{uuid.uuid4().hex[:12]}"
    connect(endpoint, access_key, secret_key).create_bucket(Bucket=bucket)
    return {
        "name": "store",
        "kind": "s3",
        "endpoint": endpoint,
        "region": "us-east-1",
        "bucket": bucket,
        "access_key_id": access_key,
        "secret_access_key": secret_key,
        "path_style": True,
    }


def serve(folder, environment):
    """Runs a server until it is stopped or its parent shell has exited."""
    parent = os.getppid()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    process, endpoint = start(folder)
    try:
        lines = [f"export S3O_TEST_S3_ENDPOINT={endpoint}"]
        lines += [f"export S3O_TEST_S3_ACCESS_KEY={ACCESS_KEY}", f"export S3O_TEST_S3_SECRET_KEY={SECRET_KEY}"]
        unfinished = Path(f"{environment}.unfinished")
        unfinished.write_text("\n".join(lines) + "\n")
        unfinished.rename(environment)
        while process.poll() is None and os.getppid() == parent:
            time.sleep(0.2)
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2])
