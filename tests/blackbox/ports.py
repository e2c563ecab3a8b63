"""Free loopback ports, outside the range from which the kernel takes ports for outgoing connections.

A killed server must find its port free again, so no client socket may be given it meanwhile.
"""

import os
import random
import socket

_ports = random.Random(os.urandom(8))


def free_ports(count):
    """That many distinct ports on which nothing listens."""
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
