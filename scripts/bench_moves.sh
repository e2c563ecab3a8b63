#!/usr/bin/env bash
# Measures the workers that write and move copies, on folders and on SeaweedFS.
#
#   rates   `replicator` and `drain` beside a loop of `s3o bench --transfer` that gets and puts the same bytes on the same
#           stores with the same concurrency, and beside `rclone copy`
#   beside  requests while `replicator` runs, beside requests while it is paused
#   memory  private memory while objects of 1 GiB are replicated and moved, above that of the idle server
#
# S3O_BENCH_MOVES           parts (default: rates beside memory)
# S3O_BENCH_MOVES_STORES    which stores (default: fs s3)
# S3O_BENCH_MOVES_SIZES     sizes and numbers of objects for `rates` (default: 4KiB:3000 1MiB:200)
# S3O_BENCH_MOVES_ROUNDS    rounds of `rates` (default: 4) and, twice as many, of `beside`
# S3O_BENCH_MOVES_LARGE     number of objects of 1 GiB (default: 4)
# S3O_BENCH_FOLDER          parent of the servers' data folders (default: the folder for temporary files)
# S3O_BENCH_ALONE           set to start no SeaweedFS; then the `s3` backend is not measured either
set -euo pipefail
cd "$(dirname "$0")/.."

# shellcheck source=scripts/bench_servers.sh
. scripts/bench_servers.sh
make_scratch
parts="${S3O_BENCH_MOVES:-rates beside memory}"
sizes="${S3O_BENCH_MOVES_SIZES:-4KiB:3000 1MiB:200}"
rounds="${S3O_BENCH_MOVES_ROUNDS:-4}"
export S3O_BENCH_PROGRAM="$binary"
runs=0

tool() {
    PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=tests/blackbox "$venv/bin/python" scripts/bench_moves.py "$@"
}

# Two new stores of a kind: sets $stores, the entries of `backends`, and $places, where `s3o bench --transfer` and rclone
# find them, with a third and a fourth one for their copies.
new_stores() {
    runs=$((runs + 1))
    local line
    line="$(tool stores "$1" "$scratch/stores-$runs")"
    stores="${line%%|*}"
    stores="$(printf '%b' "$stores")"
    places="${line#*|}"
}

# start_mover SETTINGS: the replicator would work on its own, so its interval is long. Moved bytes stay.
start_mover() {
    start_s3o mover "sqlite:$scratch/mover-$runs.db" "$stores" "cleanup_queue: {reader_grace: 1h}
$1"
}

replication="replication: {factor: 2, write_copies: 1, interval: 24h}"

measure_rates() {
    local size
    for size in $sizes; do
        new_stores "$1"
        start_mover "$replication"
        # shellcheck disable=SC2154
        tool rates replicator "$1" "$mover_url" "$mover_admin" "${size%:*}" "${size#*:}" "$rounds" "$places"
        stop_s3o mover
        new_stores "$1"
        start_mover ""
        tool rates drain "$1" "$mover_url" "$mover_admin" "${size%:*}" "${size#*:}" "$rounds" "$places"
        stop_s3o mover
    done
}

measure_beside() {
    local size
    for size in $sizes; do
        new_stores "$1"
        # A pause of the worker takes effect after a batch.
        start_mover "replication: {factor: 2, write_copies: 1, interval: 1s, batch_size: 50}
buckets: [{name: s3o-bench, replication_factor: 1}]"
        tool beside "$1" "$mover_url" "$mover_admin" "${size%:*}" "$((${size#*:} * 6))" "$((rounds * 2))"
        stop_s3o mover
    done
}

measure_memory() {
    local worker settings
    for worker in replicator drain; do
        settings=""
        if [ "$worker" = replicator ]; then
            settings="$replication"
        fi
        new_stores "$1"
        start_mover "$settings"
        tool large "$mover_url" "$mover_admin" "${S3O_BENCH_MOVES_LARGE:-4}"
        stop_s3o mover
        # A new process: the memory of the writes does not count.
        start_mover "$settings"
        # shellcheck disable=SC2154
        tool memory "$worker" "$1" "$mover_admin" "$mover_pid" "${S3O_BENCH_MOVES_LARGE:-4}"
        stop_s3o mover
        rm -rf "$scratch/stores-$runs"
    done
}

for kind in ${S3O_BENCH_MOVES_STORES:-fs s3}; do
    if [ "$kind" = s3 ] && { [ -n "${S3O_BENCH_ALONE:-}" ] || ! start_seaweed; }; then
        continue
    fi
    for part in $parts; do
        tool heading "$part"
        case "$part" in
            rates | beside | memory) "measure_$part" "$kind" ;;
            *)
                echo "bench: the section moves has no part $part" >&2
                exit 2
                ;;
        esac
    done
done
