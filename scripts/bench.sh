#!/usr/bin/env bash
# Starts a private server of the release build and loads it with `s3o bench`, in turns with a SeaweedFS where
# scripts/setup.sh has installed one; then catalogs are compared (scripts/bench_catalogs.sh). Without arguments it takes
# about five minutes; arguments go to `s3o bench` instead, and no catalogs are compared.
#
# S3O_BENCH_ENDPOINT   load this server instead (with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY) and start none
# S3O_BENCH_FOLDER     where the servers keep what they store (default: the folder for temporary files)
# S3O_BENCH_ALONE      set to load no SeaweedFS
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --release --bin s3o
binary="${CARGO_TARGET_DIR:-$PWD/target}/release/s3o"
venv="${S3O_TEST_VENV:-$PWD/target/test-venv}"
compares_catalogs=
if [ $# -eq 0 ]; then
    set -- --sizes 4KiB,1MiB --concurrency 1,16,64 --duration 3s
    compares_catalogs=yes
fi

if [ -n "${S3O_BENCH_ENDPOINT:-}" ]; then
    exec "$binary" bench --endpoint "$S3O_BENCH_ENDPOINT" "$@"
fi

start_seaweed() {
    PYTHONDONTWRITEBYTECODE=1 "$venv/bin/python" tests/blackbox/seaweed.py "$scratch/seaweed" "$scratch/s3.env" &
    local seaweed_pid=$!
    started_pids+=("$seaweed_pid")
    while [ ! -f "$scratch/s3.env" ]; do
        if ! kill -0 "$seaweed_pid" 2>/dev/null; then
            echo "bench: SeaweedFS did not start, going on without it" >&2
            return
        fi
        sleep 0.1
    done
    # shellcheck disable=SC1091
    . "$scratch/s3.env"
    compare=(--names s3o,SeaweedFS --compare "$S3O_TEST_S3_ENDPOINT")
    compare+=(--compare-access-key "$S3O_TEST_S3_ACCESS_KEY" --compare-secret-key "$S3O_TEST_S3_SECRET_KEY")
    # The server itself is the child of the program that watches over it.
    local child
    child="$(tr -d ' ' <"/proc/$seaweed_pid/task/$seaweed_pid/children" 2>/dev/null || true)"
    if [ -n "$child" ]; then
        compare+=(--compare-pid "$child")
    fi
}

# shellcheck source=scripts/bench_servers.sh
. scripts/bench_servers.sh
make_scratch
start_s3o sqlite "sqlite:$scratch/catalog.db" disk
compare=()
if [ -z "${S3O_BENCH_ALONE:-}" ] && [ -x "$venv/bin/weed" ]; then
    start_seaweed
fi
# shellcheck disable=SC2154
"$binary" bench --endpoint "$sqlite_url" --pid "$sqlite_pid" --metrics "$sqlite_metrics" \
    ${compare[@]+"${compare[@]}"} "$@"
if [ -n "$compares_catalogs" ]; then
    scripts/bench_catalogs.sh
fi
