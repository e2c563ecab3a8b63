#!/usr/bin/env bash
# Measures the cache: hot GETs of 4 KiB with bodies in memory, and with bodies only in Redis, each in turns with the
# same server without a cache, on a folder and on a SeaweedFS behind s3o. Arguments are passed to `s3o bench`.
#
# S3O_BENCH_FOLDER     parent of the servers' data folders (default: the folder for temporary files)
# S3O_BENCH_ALONE      set to start no SeaweedFS; then the `s3` backend is not measured either
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# -eq 0 ]; then
    set -- --duration 3s
fi
load=(--workloads get --sizes 4KiB --concurrency "1,16,64" --markdown)

# shellcheck source=scripts/bench_servers.sh
. scripts/bench_servers.sh
make_scratch
redis="$(scripts/redis.sh start "$scratch/redis")"
in_memory="cache: {enabled: true}"
# The memory holds only a few bodies, so objects that are read in turns are never in it.
in_redis="cache: {enabled: true, max_size: 64KiB, max_object_size: 8KiB, shared: redis}
redis: {url: \"$redis\"}"

fresh_bucket() {
    PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=tests/blackbox "$venv/bin/python" -c \
        'import json, seaweed; print(json.dumps(seaweed.fresh_bucket()))'
}

# compare_cache TITLE STORE_WITH STORE_WITHOUT SETTINGS
compare_cache() {
    echo
    rm -f "$scratch/with.db"* "$scratch/without.db"*
    start_s3o with "sqlite:$scratch/with.db" "$2" "$4"
    start_s3o without "sqlite:$scratch/without.db" "$3"
    # shellcheck disable=SC2154
    "$binary" bench --names "$1,without" "${load[@]}" \
        --endpoint "$with_url" --pid "$with_pid" --metrics "$with_metrics" \
        --compare "$without_url" --compare-pid "$without_pid" --compare-metrics "$without_metrics" "${options[@]}"
    stop_s3o with
    stop_s3o without
}

options=("$@")
compare_cache "folder with memory" disk-1 disk-2 "$in_memory"
compare_cache "folder with Redis" disk-3 disk-4 "$in_redis"
if [ -z "${S3O_BENCH_ALONE:-}" ] && start_seaweed; then
    compare_cache "SeaweedFS with memory" "$(fresh_bucket)" "$(fresh_bucket)" "$in_memory"
    compare_cache "SeaweedFS with Redis" "$(fresh_bucket)" "$(fresh_bucket)" "$in_redis"
fi
