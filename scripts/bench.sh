#!/usr/bin/env bash
# Measures the release build, section by section, on private servers that stop with the script. Arguments are passed to
# `s3o bench` for the section `requests`, and then no other section runs.
#
# S3O_BENCH_SECTIONS   sections (default: all; half an hour on two processors, without build and expiry):
#                      requests  every kind of request, in turns with a SeaweedFS if scripts/setup.sh has installed it
#                      cache     scripts/bench_cache.sh
#                      catalogs  scripts/bench_catalogs.sh
#                      copies    scripts/bench_copies.sh
#                      deletes   scripts/bench_deletes.sh
#                      intents   scripts/bench_intents.sh
#                      moves     scripts/bench_moves.sh
#                      queue     scripts/bench_queue.sh
#                      expiry    scripts/bench_expiry.sh (takes longest: it creates a million objects for each run)
# S3O_BENCH_ENDPOINT   load this server instead (with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY) and start none
# S3O_BENCH_FOLDER     parent of the servers' data folders (default: the folder for temporary files)
# S3O_BENCH_ALONE      set to start no SeaweedFS
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --release -p s3o
sections="${S3O_BENCH_SECTIONS:-requests cache catalogs copies deletes intents moves queue expiry}"
if [ $# -eq 0 ]; then
    set -- --sizes 4KiB,1MiB --concurrency 1,16,64 --duration 3s
else
    sections=requests
fi

if [ -n "${S3O_BENCH_ENDPOINT:-}" ]; then
    exec "${CARGO_TARGET_DIR:-$PWD/target}/release/s3o" bench --endpoint "$S3O_BENCH_ENDPOINT" "$@"
fi

# Runs in a subshell that stops its servers at the end, so that they do not affect other sections.
measure_requests() (
    # shellcheck source=scripts/bench_servers.sh
    . scripts/bench_servers.sh
    make_scratch
    start_s3o sqlite "sqlite:$scratch/catalog.db" disk
    if [ -z "${S3O_BENCH_ALONE:-}" ]; then
        start_seaweed || true
    fi
    # shellcheck disable=SC2154
    "$binary" bench --names s3o,SeaweedFS --endpoint "$sqlite_url" --pid "$sqlite_pid" --metrics "$sqlite_metrics" \
        ${compare[@]+"${compare[@]}"} "$@"
)

for section in ${sections//,/ }; do
    case "$section" in
        requests) measure_requests "$@" ;;
        cache | catalogs | copies | deletes | expiry | intents | moves | queue) "scripts/bench_$section.sh" ;;
        *)
            echo "bench: there is no section $section" >&2
            exit 2
            ;;
    esac
done
