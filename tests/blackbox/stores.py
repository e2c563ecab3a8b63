"""Direct access to the store of a server, to inject damage."""

import seaweed


class Store:
    """The bytes on a server's first backend, by physical key."""

    def __init__(self, server):
        backend = server.config["backends"][0]
        self.root = server.root if backend["kind"] == "fs" else None
        if self.root is None:
            self.bucket = backend["bucket"]
            self.client = seaweed.connect(backend["endpoint"], backend["access_key_id"], backend["secret_access_key"])

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
