"""TLS to PostgreSQL and Redis with a private authority: which certificates are accepted."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import psycopg
import pytest

from catalogs import OwnPostgres, PostgresCatalog
from certificates import Authority
from polling import eventually
from ports import free_ports
from s3_checks import read

pytestmark = pytest.mark.usefixtures("s3o_only")
START_SECONDS = 60


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def certificates(authority, tmp_path_factory):
    """One certificate of each kind; `foreign` comes from an untrusted authority."""
    foreign = Authority(tmp_path_factory.mktemp("foreign"))
    return {
        "right": authority.issue("right"),
        "wrong name": authority.issue("wrong", "DNS:other.example"),
        "expired": authority.issue("expired", expired=True),
        "foreign": foreign.issue("foreign"),
    }


class TlsPostgres:
    """A PostgreSQL server whose certificate can be changed."""

    def __init__(self, folder, certificates):
        self.server, self.certificates = OwnPostgres(folder), certificates
        self.folder = Path(folder)
        self.plain_url = self.server.url

    def use(self, kind):
        """Restarts with this certificate; `plain` means without TLS."""
        lines = ["ssl = off\n"]
        if kind != "plain":
            owner = (self.folder / "data").stat()
            for source, name in ((self.certificates[kind].certificate, "pem"), (self.certificates[kind].key, "key")):
                target = self.folder / f"server.{name}"
                shutil.copy(source, target)
                target.chmod(0o600)
                os.chown(target, owner.st_uid, owner.st_gid)
            files = (f"ssl_cert_file = '{self.folder}/server.pem'\n", f"ssl_key_file = '{self.folder}/server.key'\n")
            lines = ["ssl = on\n", *files]
        with open(self.folder / "data/postgresql.conf", "a") as configuration:
            configuration.writelines(lines)
        self.server.stop("fast")
        self.server.restart()

    def url(self, **parameters):
        """A fresh database, with these parameters in its URL."""
        query = "&".join(f"{name}={value}" for name, value in parameters.items())
        return f"{PostgresCatalog(self.plain_url).url}?{query}"

    def sessions(self):
        """For each session of s3o: True if it is encrypted."""
        sql = "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name LIKE 's3o%'"
        with psycopg.connect(self.plain_url) as connection:
            return [encrypted for (encrypted,) in connection.execute(sql).fetchall()]


@pytest.fixture(scope="module")
def postgres(certificates):
    # Directly below /tmp: the server may run as a user without access to the test's folders.
    with tempfile.TemporaryDirectory(prefix="s3o-postgres-") as folder:
        Path(folder).chmod(0o755)
        server = TlsPostgres(folder, certificates)
        try:
            yield server
        finally:
            server.server.stop()


def starts(server):
    """Starts and stops the server; returns True if it became ready."""
    server.spawn()
    try:
        eventually(lambda: server.process.poll() is not None or server.is_ready(), START_SECONDS)
        return server.process.poll() is None
    finally:
        server.stop()


@pytest.mark.parametrize("kind", ["right", "wrong name", "expired", "foreign", "plain"])
def test_sslmode_decides_which_postgresql_servers_are_used(own_server, postgres, authority, kind):
    postgres.use(kind)
    accepted = {
        "disable": {"right", "wrong name", "expired", "foreign", "plain"},
        "require": {"right", "wrong name", "expired", "foreign"},
        "verify-ca": {"right", "wrong name"},
        "verify-full": {"right"},
    }
    for mode, kinds in accepted.items():
        roots = {"sslrootcert": authority.root} if mode.startswith("verify") else {}
        server = own_server(name=f"{kind}-{mode}".replace(" ", "-"))
        server.config["database"] = {"url": postgres.url(sslmode=mode, **roots)}
        assert starts(server) == (kind in kinds), f"{kind} {mode}: {server.log()}"
        if kind not in kinds and mode == "verify-full":
            assert "postgres@" not in server.log(), server.log()


def test_every_session_to_postgresql_is_encrypted(own_server, postgres, authority):
    postgres.use("right")
    server = own_server()
    server.config["database"] = {"url": postgres.url(sslmode="verify-full", sslrootcert=authority.root)}
    s3 = server.start().s3()
    s3.create_bucket(Bucket="bucket")
    s3.put_object(Bucket="bucket", Key="a", Body=b"body")
    assert read(s3, "bucket", "a") == b"body"
    server.run_worker("quota_audit")  # takes a lock in a separate session
    sessions = postgres.sessions()
    assert sessions and all(sessions), sessions


def test_missing_root_certificate_is_a_configuration_error(own_server, postgres):
    for name, value, reason in (
        ("sslrootcert", "/nowhere/ca.pem", "/nowhere/ca.pem"),
        ("sslmode", "always", "sslmode=always is not one of"),
    ):
        server = own_server(name=name)
        server.config["database"] = {"url": postgres.url(**{name: value})}
        assert not starts(server)
        assert "database.url" in server.log() and reason in server.log(), server.log()


class TlsRedis:
    """A Redis server with TLS if a certificate is given."""

    def __init__(self, folder, authority, certificate):
        (self.port,) = free_ports(1)
        listening = ["--port", str(self.port)]
        if certificate:
            files = {"cert": certificate.certificate, "key": certificate.key, "ca-cert": authority.root}
            listening = ["--port", "0", "--tls-port", str(self.port), "--tls-auth-clients", "no"]
            listening += [word for name, path in files.items() for word in (f"--tls-{name}-file", str(path))]
        options = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(folder)]
        self.process = subprocess.Popen(["redis-server", *listening, *options], stdout=subprocess.DEVNULL)

    def url(self, root):
        return f"rediss://127.0.0.1:{self.port}/0?sslrootcert={root}"

    def stop(self):
        self.process.kill()
        self.process.wait()


@pytest.mark.parametrize("kind", ["right", "wrong name", "expired", "foreign", "plain"])
def test_only_a_redis_with_the_right_certificate_is_used(own_server, tmp_path, authority, certificates, kind):
    redis = TlsRedis(tmp_path, authority, certificates.get(kind))
    try:
        server = own_server(settings={"cache": {"enabled": True, "shared": "redis"}})
        server.config["redis"] = {"url": redis.url(authority.root)}
        s3 = server.start().s3()
        used = "connected to redis"
        unused = "redis does not answer"
        eventually(lambda: used in server.log() or unused in server.log(), 30)
        if kind == "right":
            eventually(lambda: used in server.log(), 30)
        else:
            assert used not in server.log(), server.log()
        s3.create_bucket(Bucket="bucket")
        s3.put_object(Bucket="bucket", Key="a", Body=b"body")
        assert read(s3, "bucket", "a") == b"body"
        assert server.stop() == 0
    finally:
        redis.stop()


def test_a_root_certificate_of_redis_needs_tls_and_a_file(own_server, authority):
    for url, reason in (
        (f"redis://127.0.0.1:1/0?sslrootcert={authority.root}", "rediss://"),
        ("rediss://127.0.0.1:1/0?sslrootcert=/nowhere/ca.pem", "/nowhere/ca.pem"),
    ):
        server = own_server(name=reason.strip(":/").replace("/", "-"))
        server.config.update({"cache": {"enabled": True, "shared": "redis"}, "redis": {"url": url}})
        assert not starts(server)
        assert "redis.url" in server.log() and reason in server.log(), server.log()
