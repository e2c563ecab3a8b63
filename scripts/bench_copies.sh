#!/usr/bin/env bash
# Measures what several backends cost a request. Each pair of servers runs in turns; the ratios at the end are medians
# over the turns, beside the limit that s3o is built for.
#
#   small         PUT of 4 KiB on folders with `write_copies: 2` divided by PUT with 1; the factor is 2 in both
#   medium        the same with 1 MiB on SeaweedFS
#   large         the same with 64 MiB on both: processor time
#   unconfigured  PUT, GET and DELETE on three backends without copies, divided by one backend
#   full          PUT with nine of ten folders full, divided by one empty folder
#
# S3O_BENCH_COPIES     parts (default: small medium large unconfigured full)
# S3O_BENCH_TURNS      turns of each line (default: 5)
# S3O_BENCH_DURATION   duration of each turn (default: 2s)
# S3O_BENCH_FOLDER     parent of the servers' data folders (default: the folder for temporary files)
# S3O_BENCH_ALONE      set to start no SeaweedFS; then the `s3` backends are not measured either
set -euo pipefail
cd "$(dirname "$0")/.."

# shellcheck source=scripts/bench_servers.sh
. scripts/bench_servers.sh
make_scratch
turns="${S3O_BENCH_TURNS:-5}"
duration="${S3O_BENCH_DURATION:-2s}"
pairs=0

in_python() {
    PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=tests/blackbox "$venv/bin/python" "$@"
}

# folders PREFIX COUNT [QUOTA]: entries of `backends`; with a quota, all but the last have it.
folders() {
    local number quota
    for number in $(seq "$2"); do
        quota=""
        if [ -n "${3:-}" ] && [ "$number" -lt "$2" ]; then
            quota=", quota: $3"
        fi
        printf '%s{name: disk-%s, kind: fs, root: "%s/%s-%s"%s}' \
            "$([ "$number" -eq 1 ] || printf '\n  - ')" "$number" "$scratch" "$1" "$number" "$quota"
    done
}

# buckets COUNT: the same on new buckets of the SeaweedFS.
buckets() {
    in_python -c 'import json, sys, seaweed
stores = [{**seaweed.fresh_bucket(), "name": f"store-{number}"} for number in range(int(sys.argv[1]))]
print("\n  - ".join(map(json.dumps, stores)))' "$1"
}

# Leaves copies to no worker: they would be written during the turns of the other server.
without_workers() {
    local worker
    for worker in replicator over_replication; do
        "$binary" workers pause "$worker" --admin "$1" >/dev/null
    done
}

# compare_pair TITLE LIMITS OPTIONS...: measures the servers `first` and `second` in turns, then stops them.
compare_pair() {
    local title="$1" limits="$2"
    shift 2
    # shellcheck disable=SC2154
    without_workers "$first_admin"
    # shellcheck disable=SC2154
    without_workers "$second_admin"
    # shellcheck disable=SC2154
    "$binary" bench --duration "$duration" --json "$@" \
        --endpoint "$first_url" --pid "$first_pid" --metrics "$first_metrics" \
        --compare "$second_url" --compare-pid "$second_pid" --compare-metrics "$second_metrics" >"$scratch/turns.json"
    # shellcheck disable=SC2086
    python3 scripts/bench_ratios.py "$scratch/turns.json" "$title" $limits
    stop_s3o first
    stop_s3o second
}

# start_pair FIRST_STORES FIRST_SETTINGS SECOND_STORES SECOND_SETTINGS
start_pair() {
    pairs=$((pairs + 1))
    start_s3o first "sqlite:$scratch/first-$pairs.db" "$1" "$2"
    start_s3o second "sqlite:$scratch/second-$pairs.db" "$3" "$4"
}

# start_copies STORES_OF_TWO STORES_OF_ONE: two copies before the answer, beside one copy before it.
start_copies() {
    start_pair "$1" "replication: {factor: 2, write_copies: 2}" "$2" "replication: {factor: 2, write_copies: 1}"
}

measure_small() {
    start_copies "$(folders two 2)" "$(folders one 2)"
    compare_pair "2 copies / 1, folders" "units=1 commits p50<=1.5" \
        --workloads put --sizes 4KiB --concurrency "$(repeated 1 16)"
}

# With more connections, this SeaweedFS uses both processors for one copy, and needs twice the time for two.
measure_medium() {
    if [ -n "${S3O_BENCH_ALONE:-}" ] || ! start_seaweed; then
        return
    fi
    start_copies "$(buckets 2)" "$(buckets 2)"
    compare_pair "2 copies / 1, SeaweedFS" "units=1 commits p50<=1.3@1" \
        --workloads put --sizes 1MiB --concurrency "$(repeated 1 4)"
    stop_seaweed
}

measure_large() {
    local load=(--workloads put --sizes 64MiB --concurrency "$(repeated 1)" --max-ops 8)
    start_copies "$(folders two-large 2)" "$(folders one-large 2)"
    compare_pair "2 copies / 1, folders" "units=1 cpu<=1.4" "${load[@]}"
    if [ -n "${S3O_BENCH_ALONE:-}" ] || ! start_seaweed; then
        return
    fi
    start_copies "$(buckets 2)" "$(buckets 2)"
    compare_pair "2 copies / 1, SeaweedFS" "units=1 cpu<=1.4" "${load[@]}"
    stop_seaweed
}

measure_unconfigured() {
    start_pair "$(folders three 3)" "" "$(folders single 1)" ""
    compare_pair "3 backends / 1, folders" "units=1 ops>=0.95" \
        --workloads put,get,delete --sizes 4KiB --concurrency "$(repeated 16)"
}

# fill NAME: writes objects of 4 KiB to a server until all of its folders with a quota are full.
fill() {
    local metrics="$1_metrics" url="$1_url"
    in_python - "${!url}" "${!metrics}" <<'PYTHON'
import concurrent.futures, os, re, sys, urllib.request, seaweed
url, metrics = sys.argv[1:]
client = seaweed.connect(url, os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"])
client.create_bucket(Bucket="filled")
with concurrent.futures.ThreadPoolExecutor(8) as lanes:
    put = lambda number: client.put_object(Bucket="filled", Key=str(number), Body=bytes([number % 256]) * 4096)
    list(lanes.map(put, range(9 * 16 + 8)))
page = urllib.request.urlopen(metrics).read().decode()
used = dict(re.findall(r's3o_quota_bytes_used\{backend="([^"]+)"\} (\S+)', page))
assert sum(float(size) == 65536 for size in used.values()) == 9, used
PYTHON
}

measure_full() {
    local strategy
    for strategy in pack spread; do
        start_pair "$(folders "ten-$strategy" 10 64KiB)" "" "$(folders "alone-$strategy" 1)" ""
        fill first
        stop_s3o first
        start_s3o first "sqlite:$scratch/first-$pairs.db" "$(folders "ten-$strategy" 10 64KiB)" \
            "routing: {strategy: $strategy}"
        compare_pair "9 of 10 full / 1, $strategy" "units=1 ops>=0.9" \
            --workloads put --sizes 4KiB --concurrency "$(repeated 1 16)"
    done
}

python3 scripts/bench_ratios.py heading
for part in ${S3O_BENCH_COPIES:-small medium large unconfigured full}; do
    case "$part" in
        small | medium | large | unconfigured | full) "measure_$part" ;;
        *)
            echo "bench: the section copies has no part $part" >&2
            exit 2
            ;;
    esac
done
