"""Runs the commands of the README as a new user would: block by block, in one folder and one shell environment.

There are four differences:
- `make run` and `s3o serve` run until the next one of them starts; both start the binary under test (`S3O_BIN`).
- The ports 9000 and 9001 are replaced by free ones.
- The `export` lines that the first start prints are added to the environment of the following blocks.
- Blocks that only call other `make` targets are skipped: those are the project's own tests.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from polling import eventually
from ports import free_ports
from server_process import ROOT, binary

SECONDS = 60
START_LINE = re.compile(r"^(make run|s3o serve)\b")


def blocks():
    """Every code block of README.md: its language and its text."""
    return re.findall(r"(?ms)^```(\w+)\n(.*?)^```$", (ROOT / "README.md").read_text())


class NewUser:
    """A folder, a PATH with `s3o`, and the last started server."""

    def __init__(self, folder):
        self.home = folder / "home"
        self.home.mkdir()
        programs = folder / "bin"
        programs.mkdir()
        (programs / "s3o").symlink_to(binary())
        self.ports = dict(zip(("9000", "9001"), map(str, free_ports(2))))
        path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("S3O_", "AWS_", "RCLONE_"))}
        self.environment = {**kept, "PATH": path, "HOME": str(self.home), "NO_COLOR": "1"}
        self.server, self.starts = None, 0

    def with_ports(self, text):
        for usual, free in self.ports.items():
            text = text.replace(f"127.0.0.1:{usual}", f"127.0.0.1:{free}")
        return text

    def shell(self, text):
        """Runs lines in bash and keeps the variables that they export."""
        script = f"set -e\n{self.with_ports(text)}\nenv -0 > ../environment\n"
        done = subprocess.run(
            ["bash", "-c", script], cwd=self.home, env=self.environment, capture_output=True, text=True, timeout=SECONDS
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        exported = (self.home.parent / "environment").read_bytes().decode().strip("\0").split("\0")
        self.environment = dict(entry.split("=", 1) for entry in exported)
        return done.stdout

    def python(self, text):
        done = subprocess.run(
            [sys.executable, "-c", self.with_ports(text)],
            cwd=self.home,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def start(self):
        self.stop()
        self.starts += 1
        log_path = self.home.parent / f"serve-{self.starts}.log"
        listen = ["--listen", f"127.0.0.1:{self.ports['9000']}", "--admin-listen", f"127.0.0.1:{self.ports['9001']}"]
        with open(log_path, "wb") as log:
            self.server = subprocess.Popen(
                ["s3o", "serve", *listen], cwd=self.home, env=self.environment, stdout=log, stderr=subprocess.STDOUT
            )
        eventually(
            lambda: self.server.poll() is not None or re.search(r"stored in|generated keys", log_path.read_text()),
            SECONDS,
            message="it did not start",
        )
        assert self.server.poll() is None, log_path.read_text()
        self.environment |= dict(re.findall(r"(?m)^\s*export (\w+)=(\S+)$", log_path.read_text()))

    def stop(self):
        if self.server and self.server.poll() is None:
            self.server.terminate()
            assert self.server.wait(SECONDS) == 0

    def run(self, text):
        """Runs one block of shell lines; a line that starts a server splits it."""
        output, lines = "", []
        for line in text.splitlines():
            if START_LINE.match(line):
                output += self.shell("\n".join(lines))
                lines = []
                self.start()
            else:
                lines.append(line)
        return output + self.shell("\n".join(lines))


@pytest.fixture
def new_user(tmp_path):
    user = NewUser(tmp_path)
    yield user
    if user.server and user.server.poll() is None:
        user.server.kill()
        user.server.wait()


@pytest.mark.usefixtures("s3o_only")
def test_every_code_block_of_the_readme_works(new_user):
    ran, output = [], ""
    for language, text in blocks():
        if language == "sh":
            if all(re.match(r"(make|#)", line) and not START_LINE.match(line) for line in text.split("\n") if line):
                continue
            output += new_user.run(text)
        elif language == "python":
            output += new_user.python(text)
        else:
            continue
        ran.append(text)
    assert new_user.starts == 2 and len(ran) >= 8, ran
    for shown in ("2026/hello.txt", "b'hello'", "expiry-date=", "access_key_id:", "is valid"):
        assert shown in output or shown.rpartition("/")[2] in output, f"{shown} not in:\n{output}"
    new_user.stop()


@pytest.mark.usefixtures("s3o_only")
def test_every_configuration_of_the_readme_is_valid(tmp_path):
    found = [text for language, text in blocks() if language == "yaml"]
    assert found
    variables = {name: "value-of-the-test" for name in re.findall(r"\$\{(\w+)\}", "".join(found))}
    for number, text in enumerate(found):
        path = tmp_path / f"{number}.yaml"
        path.write_text(text)
        assert "backends" in yaml.safe_load(text)
        done = subprocess.run(
            [binary(), "validate", "--config", path],
            env={**os.environ, **variables},
            capture_output=True,
            timeout=SECONDS,
        )
        assert done.returncode == 0, done


def test_readme_starts_with_the_single_copy_and_catalog_warnings():
    for name in ("README.md", "docs/operations.md"):
        first_screen = "\n".join((ROOT / name).read_text().splitlines()[:30])
        assert "Each object has one copy unless you configure more" in first_screen, name
        assert "back it up" in first_screen.lower() and "pg_dump" in first_screen, name
        assert "only record of which bytes belong to which object" in first_screen, name
