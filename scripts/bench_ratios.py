"""Prints the ratios of a run of `s3o bench --json` on two servers, as rows of a Markdown table.

bench_ratios.py heading                    prints the heading
bench_ratios.py FILE TITLE LIMIT...        prints one row for each limit and each load; a load that ran in several turns
                                           gets the median of its turns

A limit is the name of a figure, alone or with the limit of its ratio: `p50<=1.5`, `ops>=0.9`, `units=1`, `commits`.
`p50<=1.3@1` limits the ratio only with one connection.
"""

import json
import re
import statistics
import sys

HEADING = """
| servers | load | size | connections | figure | first | second | ratio, all turns | median | limit | |
|---|---|---|---:|---|---:|---:|---|---:|---:|---|"""
FIGURES = {
    "ops": "ops_per_second",
    "p50": "p50_ms",
    "p99": "p99_ms",
    "cpu": "server_cpu_us_per_op",
    "units": "units_per_op",
    "commits": "commits_per_op",
}
# Workers of the servers run now and then, so counts of the catalog are not exact to the last digit.
COUNT_TOLERANCE = 0.02


def size_of(cell):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if cell["size_bytes"] % unit == 0:
            return f"{cell['size_bytes'] // unit} {name}"
    return f"{cell['size_bytes']} B"


def verdict(relation, limit, ratio):
    if relation is None:
        return ""
    met = {
        "<=": ratio <= limit,
        ">=": ratio >= limit,
        "=": abs(ratio - limit) <= COUNT_TOLERANCE,
    }
    return "met" if met[relation] else "MISSED"


def row(title, turns, wanted):
    figure, relation, limit, connections = re.fullmatch(r"(\w+)(?:(<=|>=|=)([\d.]+)(?:@(\d+))?)?", wanted).groups()
    if connections and int(connections) != turns[0][0]["concurrency"]:
        relation = None
    first, second = ([turn[server][FIGURES[figure]] for turn in turns] for server in (0, 1))
    # A request that runs no unit on either server runs as many as on the other one.
    ratios = [a / b if b else 1 + a for a, b in zip(first, second)]
    middle = statistics.median(ratios)
    cell = turns[0][0]
    shown = [f"{ratio:.2f}" for ratio in ratios]
    cells = [
        title,
        cell["workload"].upper(),
        size_of(cell),
        cell["concurrency"],
        figure,
        f"{statistics.median(first):.2f}",
        f"{statistics.median(second):.2f}",
        ", ".join(shown),
        f"{middle:.2f}",
        f"{relation} {limit}" if relation else "",
        verdict(relation, float(limit or 0), middle),
    ]
    return "| " + " | ".join(map(str, cells)) + " |"


def print_rows(path, title, limits):
    with open(path, encoding="utf-8") as file:
        cells = json.load(file)["cells"]
    loads = {}
    for turn in cells:
        cell = turn[0]
        loads.setdefault((cell["workload"], cell["size_bytes"], cell["concurrency"]), []).append(turn)
    for turns in loads.values():
        for wanted in limits:
            print(row(title, turns, wanted), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "heading":
        print(HEADING, flush=True)
    else:
        print_rows(sys.argv[1], sys.argv[2], sys.argv[3:])
