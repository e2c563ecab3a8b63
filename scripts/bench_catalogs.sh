#!/usr/bin/env bash
# Measures small PUTs on SQLite and on a private PostgreSQL, in turns; then on two instances that share that PostgreSQL
# and on one of them alone. Also prints Markdown. Arguments are passed to `s3o bench`.
#
# S3O_BENCH_FOLDER     parent of the servers' data folders (default: the folder for temporary files)
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# -eq 0 ]; then
    set -- --duration 5s
fi
load=(--workloads put --sizes 4KiB --concurrency "16,64" --markdown)

# shellcheck source=scripts/bench_servers.sh
. scripts/bench_servers.sh
make_scratch
postgres="$(scripts/postgres.sh start "$scratch/postgres")"
start_s3o sqlite "sqlite:$scratch/catalog.db" disk
start_s3o first "$postgres" shared
start_s3o second "$postgres" shared

echo
# shellcheck disable=SC2154
"$binary" bench --names SQLite,PostgreSQL "${load[@]}" \
    --endpoint "$sqlite_url" --pid "$sqlite_pid" --metrics "$sqlite_metrics" \
    --compare "$first_url" --compare-pid "$first_pid" --compare-metrics "$first_metrics" "$@"
echo
# shellcheck disable=SC2154
"$binary" bench --names "two instances,one instance" "${load[@]}" \
    --endpoint "$first_url,$second_url" --pid "$first_pid,$second_pid" --metrics "$first_metrics,$second_metrics" \
    --compare "$first_url" --compare-pid "$first_pid" --compare-metrics "$first_metrics" "$@"
