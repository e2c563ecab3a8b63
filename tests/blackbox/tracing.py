"""System calls of a traced server, with their start and end."""

import re
from dataclasses import dataclass

TRACED = "fsync,fdatasync,linkat,renameat,renameat2,rename,link,unlink,unlinkat,openat,sendto,sendmsg,writev,write"


@dataclass
class Call:
    """One system call; `began` and `ended` are positions in the trace, `ended` None while unfinished."""

    name: str
    text: str
    began: int
    ended: int | None


def command(output, traced=TRACED):
    """The strace command line; `-D` keeps the server a direct child, so that signals reach it."""
    return ["strace", "-D", "-f", "-y", "-s", "200", "-o", str(output), "-e", f"trace={traced}"]


def parse(text):
    """Every call of the trace, in the order in which they began."""
    calls, open_calls = [], {}
    for position, line in enumerate(text.splitlines()):
        found = re.match(r"(\d+)\s+(?:<\.\.\. )?([a-z0-9_]+)(.*)$", line)
        if not found:
            continue
        thread, name, rest = found.groups()
        if rest.startswith(" resumed>"):
            call = open_calls.pop((thread, name), None)
            if call:
                call.ended = position
                call.text += rest.removeprefix(" resumed>")
        elif rest.startswith("("):
            unfinished = rest.endswith("<unfinished ...>")
            call = Call(
                name, rest.removesuffix("<unfinished ...>").rstrip(), position, None if unfinished else position
            )
            calls.append(call)
            if unfinished:
                open_calls[thread, name] = call
    return calls


class Trace:
    """Queries about the order of calls."""

    def __init__(self, text):
        self.calls = parse(text)

    def syncs(self, path):
        """Finished, successful syncs of `path`, a name or a pattern."""
        named = re.compile(rf"^\(\d+<{path}>\)\s*= 0")
        return [call for call in self.calls if call.name in ("fsync", "fdatasync") and named.match(call.text)]

    def named(self, pattern, *names):
        return [call for call in self.calls if call.name in names and re.search(pattern, call.text)]

    def answers(self, status):
        """Writes of a response head with this status to a socket."""
        return self.named(rf"HTTP/1\.1 {status}", "sendto", "sendmsg", "writev", "write")
