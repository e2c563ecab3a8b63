#!/usr/bin/env bash
# Measures this build beside another one, given by the path of its binary, on SQLite and a folder each. Both run in
# turns; the ratios are medians over the turns: this build divided by the other.
#
#   scripts/bench_builds.sh OTHER_BINARY [LIMIT]
#
# LIMIT is the least ratio of operations a second (default: 0.95).
#
# S3O_BENCH_WORKLOADS  requests (default: put,get,head,list,delete,mixed)
# S3O_BENCH_SIZES      sizes of objects (default: 4KiB,1MiB)
# S3O_BENCH_TURNS      turns of each line (default: 5)
# S3O_BENCH_DURATION   duration of each turn (default: 2s)
# S3O_BENCH_FOLDER     parent of the servers' data folders (default: the folder for temporary files)
set -euo pipefail
other_binary="$(realpath "${1:?usage: scripts/bench_builds.sh OTHER_BINARY [LIMIT]}")"
limit="${2:-0.95}"
cd "$(dirname "$0")/.."

# shellcheck source=scripts/bench_servers.sh
. scripts/bench_servers.sh
make_scratch
turns="${S3O_BENCH_TURNS:-5}"

start_s3o this "sqlite:$scratch/this.db" this_disk
this_binary="$binary"
binary="$other_binary"
start_s3o other "sqlite:$scratch/other.db" other_disk
binary="$this_binary"

python3 scripts/bench_ratios.py heading
# shellcheck disable=SC2154
for size in $(tr ',' ' ' <<<"${S3O_BENCH_SIZES:-4KiB,1MiB}"); do
    "$binary" bench --duration "${S3O_BENCH_DURATION:-2s}" --json --sizes "$size" \
        --workloads "${S3O_BENCH_WORKLOADS:-put,get,head,list,delete,mixed}" --concurrency "$(repeated 16)" \
        --endpoint "$this_url" --pid "$this_pid" --compare "$other_url" --compare-pid "$other_pid" >"$scratch/turns.json"
    python3 scripts/bench_ratios.py "$scratch/turns.json" "this build / other" "ops>=$limit" cpu
done
