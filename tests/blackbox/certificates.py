"""A private certificate authority, created with the openssl command, and its certificates."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

CONFIGURATION = """
[ca]
default_ca = own
[own]
new_certs_dir = {folder}
database = {folder}/index.txt
serial = {folder}/serial
private_key = {folder}/ca.key
certificate = {folder}/ca.pem
default_md = sha256
policy = any
copy_extensions = copy
unique_subject = no
[any]
commonName = supplied
"""


@dataclass(frozen=True)
class Certificate:
    """Paths of a certificate and its key."""

    certificate: Path
    key: Path


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=60)


class Authority:
    """Issues certificates that are trusted only with `root`."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.root = self.folder / "ca.pem"
        (self.folder / "index.txt").touch()
        (self.folder / "serial").write_text("1000\n")
        self.configuration = self.folder / "ca.cnf"
        self.configuration.write_text(CONFIGURATION.format(folder=self.folder))
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        subject = ("-subj", "/CN=private authority", "-addext", "keyUsage=critical,keyCertSign")
        openssl("req", "-x509", *key, "-keyout", self.folder / "ca.key", "-out", self.root, "-days", 3650, *subject)

    def issue(self, name, alternative_names="IP:127.0.0.1,DNS:localhost", expired=False):
        """A certificate for these names; an expired one was valid for a day in 2020."""
        issued = Certificate(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        request = self.folder / f"{name}.csr"
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        names = ("-subj", f"/CN={name}", "-addext", f"subjectAltName={alternative_names}")
        openssl("req", *key, "-keyout", issued.key, "-out", request, *names)
        until = "20200102000000Z" if expired else "20491231000000Z"
        dates = ("-startdate", "20200101000000Z", "-enddate", until)
        files = ("-in", request, "-out", issued.certificate, "-notext")
        openssl("ca", "-batch", "-config", self.configuration, *files, *dates)
        return issued
