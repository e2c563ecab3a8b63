"""Waits for a condition instead of a fixed time."""

import time


def eventually(condition, timeout_seconds=10, step_seconds=0.02, message="the condition did not hold"):
    """Calls `condition` until it returns a true value, and returns that value."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"{message} within {timeout_seconds} s"
        time.sleep(step_seconds)
