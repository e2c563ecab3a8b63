"""Waiting for a fact instead of for a time."""

import time


def eventually(fact, timeout_seconds=10, step_seconds=0.02, message="the fact did not come true"):
    """Calls `fact` until it returns something true, and returns that."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        value = fact()
        if value:
            return value
        assert time.monotonic() < deadline, f"{message} within {timeout_seconds} s"
        time.sleep(step_seconds)
