"""Free loopback ports outside the ephemeral port range.

A killed server must find its port free again, so no outgoing connection may get it in the meantime.
"""

import os
import random
import socket

_ports = random.Random(os.urandom(8))


def free_ports(count):
    """Distinct ports without a listener."""
    held = []
    try:
        while len(held) < count:
            candidate = socket.socket()
            try:
                candidate.bind(("127.0.0.1", _ports.randrange(12000, 30000)))
                held.append(candidate)
            except OSError:
                candidate.close()
        return [candidate.getsockname()[1] for candidate in held]
    finally:
        for candidate in held:
            candidate.close()
