"""Wrappers of common S3 command line clients with the same methods."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

COMMAND_SECONDS = 60


def program(name):
    """Path of the client, next to this Python or in the PATH."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    assert found, f"{name} is not installed: run scripts/setup.sh"
    return found


class Client:
    """One client with its own home, so that the user's configuration is neither read nor changed."""

    def __init__(self, server, home, key="admin"):
        self.server, self.home = server, Path(home)
        credentials = server.keys[key]
        self.environment = {
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "AWS_ACCESS_KEY_ID": credentials.access_key,
            "AWS_SECRET_ACCESS_KEY": credentials.secret_key,
            "AWS_DEFAULT_REGION": credentials.region,
            "AWS_REGION": credentials.region,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        self.configure(credentials)

    def configure(self, credentials):
        pass

    def run(self, *arguments, expect=0):
        """Runs the client, and returns what it printed."""
        command = [program(self.program), *self.options(), *map(str, arguments)]
        done = subprocess.run(
            command, env=self.environment, cwd=self.home, capture_output=True, text=True, timeout=COMMAND_SECONDS
        )
        assert done.returncode == expect, f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def options(self):
        return []

    def url(self, bucket, key=""):
        return f"s3://{bucket}/{key}"


class Aws(Client):
    program = "aws"

    def options(self):
        return ["--endpoint-url", self.server.endpoint, "s3"]

    def copy(self, source, target):
        self.run("cp", "--only-show-errors", source, target)

    put_large = copy

    def list(self, bucket):
        lines = self.run("ls", "--recursive", f"s3://{bucket}").splitlines()
        return {line[31:]: int(line[20:30]) for line in lines}

    def sync(self, source, target):
        return self.run("sync", "--no-progress", "--delete", source, target)

    def move(self, source, target):
        self.run("mv", "--only-show-errors", source, target)

    def delete(self, url):
        self.run("rm", url)

    def delete_all(self, url):
        self.run("rm", "--recursive", url)


class Rclone(Client):
    program = "rclone"

    def configure(self, credentials):
        settings = {
            "TYPE": "s3",
            "PROVIDER": "Other",
            "ENV_AUTH": "true",
            "ENDPOINT": self.server.endpoint,
            "REGION": credentials.region,
            "UPLOAD_CUTOFF": "5Mi",
            "CHUNK_SIZE": "5Mi",
        }
        self.environment.update({f"RCLONE_CONFIG_S3O_{name}": value for name, value in settings.items()})

    def options(self):
        return ["--config", "", "--retries", "1", "--low-level-retries", "1"]

    def url(self, bucket, key=""):
        return f"s3o:{bucket}/{key}"

    def copy(self, source, target):
        self.run("copyto", source, target)

    put_large = copy

    def list(self, bucket):
        listed = self.run("lsf", "-R", "--files-only", "--format", "sp", "--separator", "\t", f"s3o:{bucket}")
        parts = [line.partition("\t") for line in listed.splitlines()]
        return {key: int(size) for size, _, key in parts}

    def sync(self, source, target):
        self.run("sync", source, target)
        return self.run("check", source, target)

    def move(self, source, target):
        self.run("moveto", source, target)

    def delete(self, url):
        self.run("deletefile", url)

    def delete_all(self, url):
        self.run("delete", url)


class S3cmd(Client):
    program = "s3cmd"

    def configure(self, credentials):
        self.config = self.home / "s3cfg"
        host = self.server.endpoint.removeprefix("http://")
        settings = {
            "access_key": credentials.access_key,
            "secret_key": credentials.secret_key,
            "bucket_location": credentials.region,
            "host_base": host,
            "host_bucket": host,
            "use_https": "False",
            "max_retries": "1",
        }
        lines = "".join(f"{name} = {value}\n" for name, value in settings.items())
        self.config.write_text(f"[default]\n{lines}")

    def options(self):
        return ["--config", self.config, "--no-progress"]

    def copy(self, source, target):
        if str(target).startswith("s3://"):
            self.run("put", source, target)
        else:
            self.run("get", "--force", source, target)

    def put_large(self, source, target):
        self.run("put", "--multipart-chunk-size-mb=5", source, target)

    def list(self, bucket):
        lines = self.run("ls", "-r", f"s3://{bucket}").splitlines()
        parts = [line.split(None, 3) for line in lines]
        return {url.removeprefix(f"s3://{bucket}/"): int(size) for _, _, size, url in parts}

    def sync(self, source, target):
        return self.run("sync", "--delete-removed", source, target)

    def move(self, source, target):
        self.run("mv", source, target)

    def delete(self, url):
        self.run("del", url)

    def delete_all(self, url):
        self.run("del", "--recursive", "--force", url)


class S5cmd(Client):
    program = "s5cmd"

    def options(self):
        return ["--endpoint-url", self.server.endpoint, "--retry-count", "0"]

    def copy(self, source, target):
        self.run("cp", source, target)

    def put_large(self, source, target):
        self.run("cp", "--part-size", "5", source, target)

    def list(self, bucket):
        lines = self.run("ls", f"s3://{bucket}/*").splitlines()
        parts = [line.split(None, 3) for line in lines]
        return {key: int(size) for _, _, size, key in parts}

    def sync(self, source, target):
        source = source if str(source).endswith("/") else f"{source}/"
        wild = f"{source}*" if str(source).startswith("s3://") else source
        return self.run("sync", "--delete", wild, target)

    def move(self, source, target):
        self.run("mv", source, target)

    def delete(self, url):
        self.run("rm", url)

    def delete_all(self, url):
        self.run("rm", f"{url}*")


class Restic(Client):
    program = "restic"

    def use(self, bucket):
        """Points the client at a repository in `bucket`."""
        self.environment["RESTIC_REPOSITORY"] = f"s3:{self.server.endpoint}/{bucket}/repository"
        self.environment["RESTIC_PASSWORD"] = "password of the tests"
        self.environment["RESTIC_CACHE_DIR"] = str(self.home / "cache")
        return self
