"""The store behind a server, reached past it: what a failing disk, a stranger or a meddler could do to it."""

import seaweed


class Store:
    """The bytes of a server's first backend, by physical key."""

    def __init__(self, server):
        backend = server.config["backends"][0]
        self.root = server.root if backend["kind"] == "fs" else None
        if self.root is None:
            self.bucket = backend["bucket"]
            self.client = seaweed.connect(
                backend["endpoint"], backend["access_key_id"], backend["secret_access_key"]
            )

    def write(self, key, body):
        if self.root is None:
            self.client.put_object(Bucket=self.bucket, Key=key, Body=body)
        else:
            path = self.root / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(body)

    def remove(self, key):
        if self.root is None:
            self.client.delete_object(Bucket=self.bucket, Key=key)
        else:
            (self.root / key).unlink()
