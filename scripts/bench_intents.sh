#!/usr/bin/env bash
# Measures the cost of intents: small PUTs with and without them (`pending_intents.enabled: false`), in turns, on SQLite
# and on a private PostgreSQL. Arguments are passed to `s3o bench`.
#
# S3O_BENCH_FOLDER     parent of the servers' data folders (default: the folder for temporary files)
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# -eq 0 ]; then
    set -- --duration 2s
fi
load=(--workloads put --sizes 4KiB --concurrency "16,16,16,16,64,64,64,64" --markdown)
without="write_path: {pending_intents: {enabled: false}}"

# shellcheck source=scripts/bench_servers.sh
. scripts/bench_servers.sh
make_scratch
postgres="$(scripts/postgres.sh start "$scratch/postgres")"

# compare_intents CATALOG URL_WITH URL_WITHOUT
compare_intents() {
    echo
    start_s3o with "$2" "$1-with"
    start_s3o without "$3" "$1-without" "$without"
    # shellcheck disable=SC2154
    "$binary" bench --names "$1 with intents,$1 without" "${load[@]}" \
        --endpoint "$with_url" --pid "$with_pid" --metrics "$with_metrics" \
        --compare "$without_url" --compare-pid "$without_pid" --compare-metrics "$without_metrics" "${options[@]}"
    stop_s3o with
    stop_s3o without
}

options=("$@")
compare_intents SQLite "sqlite:$scratch/with.db" "sqlite:$scratch/without.db"
psql --quiet "$postgres" -c "CREATE DATABASE without"
compare_intents PostgreSQL "$postgres" "${postgres%/*}/without"
