"""Calls the admin API of a running server, over HTTP and through the client commands."""

import json
import os
import subprocess
import urllib.request
from urllib.error import HTTPError

from server_process import ADMIN_TOKEN, binary

COMMAND_SECONDS = 60


def admin_request(server, method, path, body=None, token=ADMIN_TOKEN):
    """Status and JSON of one request to the admin API."""
    url = f"http://127.0.0.1:{server.admin_port}/admin/api{path}"
    request = urllib.request.Request(url, method=method, data=body and body.encode())
    if token:
        request.add_header("X-Admin-Token", token)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            assert response.headers["x-request-id"]
            return response.status, json.loads(response.read())
    except HTTPError as refusal:
        return refusal.code, json.loads(refusal.read())


def command(server, *arguments, token=ADMIN_TOKEN, url=None):
    """Runs a client command against the server."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("S3O_ADMIN")}
    environment["S3O_ADMIN_URL"] = url or f"http://127.0.0.1:{server.admin_port}"
    if token:
        environment["S3O_ADMIN_TOKEN"] = token
    return subprocess.run(
        [binary(), *arguments], env=environment, capture_output=True, text=True, timeout=COMMAND_SECONDS
    )
