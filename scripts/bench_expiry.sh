#!/usr/bin/env bash
# Expired objects of 4 KiB, a third of them sharing content, to the last byte gone: on each catalog, on a folder and on a
# SeaweedFS. Beside it what it costs requests (4 KiB PUTs), and what a client does that lists and deletes as many bodies on
# the same store. Catalog and store are filled behind the back of s3o, while it stands still.
#
# S3O_BENCH_EXPIRIES          how many objects (default: 1000000)
# S3O_BENCH_EXPIRY_CATALOGS   which catalogs (default: sqlite postgres)
# S3O_BENCH_EXPIRY_STORES     which stores (default: fs s3)
# S3O_BENCH_EXPIRY_SECONDS    how long PUTs are measured (default: 10)
# S3O_BENCH_BINARY            the build to measure (default: the release build)
# S3O_BENCH_FOLDER            where the servers keep what they store (default: the folder for temporary files)
# S3O_BENCH_ALONE             set to load no SeaweedFS: then there is no `s3` store either
set -euo pipefail
cd "$(dirname "$0")/.."

# shellcheck source=scripts/bench_servers.sh
. scripts/bench_servers.sh
binary="${S3O_BENCH_BINARY:-$binary}"
make_scratch
objects="${S3O_BENCH_EXPIRIES:-1000000}"
bodies=$((objects - objects / 3))
seconds="${S3O_BENCH_EXPIRY_SECONDS:-10}"
if [ -z "${S3O_BENCH_ALONE:-}" ]; then
    start_seaweed || true
fi

tool() {
    PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=tests/blackbox "$venv/bin/python" scripts/bench_expiry.py "$@"
}

# One catalog, one store: sets $url, $store (as s3o is told), $place (as the tool is told) and $backend.
choose() {
    case "$1" in
        sqlite) url="sqlite:$scratch/$1-$2.db" ;;
        *)
            if [ ! -d "$scratch/postgres/data" ]; then
                postgres="$(scripts/postgres.sh start "$scratch/postgres")"
            fi
            psql --quiet "$postgres" -c "CREATE DATABASE expiry_$2" >/dev/null
            url="${postgres%/*}/expiry_$2"
            ;;
    esac
    case "$2" in
        fs) store="$1-disk" place="$scratch/$1-disk" backend=disk ;;
        *)
            store="$(PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=tests/blackbox "$venv/bin/python" -c \
                'import json, seaweed; print(json.dumps(seaweed.fresh_bucket()))')"
            place="$store" backend="$("$venv/bin/python" -c 'import json, sys; print(json.loads(sys.argv[1])["name"])' "$store")"
            ;;
    esac
}

start() {
    start_s3o expiry "$url" "$store" 'expiry: {interval: 1s}'
}

fill() {
    stop_s3o expiry
    tool fill-store "$place" "$((($1) - ($1) / 3))"
    tool fill-catalog "$url" "$backend" "$1"
    start
}

# PUTs of 4 KiB per second, 8 at a time.
puts() {
    # shellcheck disable=SC2154
    "$binary" bench --endpoint "$expiry_url" --workloads put --sizes 4KiB --concurrency 8 --duration "${seconds}s" \
        --json | tool rate
}

timed() {
    local name="$1" began ended
    shift
    began="$(date +%s.%N)"
    "$@" >/dev/null 2>&1
    ended="$(date +%s.%N)"
    awk -v n="$bodies" -v began="$began" -v ended="$ended" -v name="$name" \
        'BEGIN {s = ended - began; printf "| %s | %d | %.1f | %.0f |\n", name, n, s, n / s}'
}

# What a user would do instead, on the same store with the same bodies.
clients() {
    printf '\n| instead, on %s | bodies | seconds | bodies/s |\n|---|---:|---:|---:|\n' "$1"
    if [ "$1" = fs ]; then
        tool fill-store "$place" "$bodies"
        timed "rclone delete" "$venv/bin/rclone" delete --config /dev/null "$place/bench"
        return
    fi
    local bucket
    bucket="$("$venv/bin/python" -c 'import json, sys; print(json.loads(sys.argv[1])["bucket"])' "$store")"
    export AWS_REGION=us-east-1 AWS_EC2_METADATA_DISABLED=true
    (
        export AWS_ACCESS_KEY_ID="$S3O_TEST_S3_ACCESS_KEY" AWS_SECRET_ACCESS_KEY="$S3O_TEST_S3_SECRET_KEY"
        tool fill-store "$place" "$bodies"
        timed "s5cmd rm" "$venv/bin/s5cmd" --endpoint-url "$S3O_TEST_S3_ENDPOINT" rm "s3://$bucket/bench/*"
        tool fill-store "$place" "$bodies"
        timed "rclone delete" "$venv/bin/rclone" delete --config /dev/null \
            ":s3,provider=Other,env_auth=true,endpoint='$S3O_TEST_S3_ENDPOINT':$bucket/bench"
        tool fill-store "$place" "$bodies"
        timed "aws s3 rm" "$venv/bin/aws" --endpoint-url "$S3O_TEST_S3_ENDPOINT" s3 rm --recursive "s3://$bucket/bench/"
    )
    tool fill-store "$place" "$bodies"
    tool own-rate "$place" "$bodies"
}

measure() {
    choose "$1" "$2"
    start
    # shellcheck disable=SC2154
    "$binary" workers pause expiry --admin "$expiry_admin" >/dev/null
    "$venv/bin/aws" --endpoint-url "$expiry_url" --region us-east-1 s3 mb s3://bench >/dev/null
    fill "$objects"
    printf '\n%s on %s\n\n| objects | rows gone s | objects/s | bytes gone s | objects/s | commits | delete calls | peak MiB |\n' "$1" "$2"
    echo '|---:|---:|---:|---:|---:|---:|---:|---:|'
    # shellcheck disable=SC2154
    tool watch "$expiry_admin" "$expiry_pid" "$objects"
    "$binary" workers pause expiry --admin "$expiry_admin" >/dev/null
    fill "$((objects / 2))"
    printf '\nPUTs without: %s\n' "$(puts)"
    tool watch "$expiry_admin" "$expiry_pid" "$((objects / 2))" >"$scratch/beside" &
    local watching=$!
    printf 'PUTs beside:  %s\n' "$(puts)"
    wait "$watching"
    printf '%s, beside PUTs\n' "$(cat "$scratch/beside")"
    stop_s3o expiry
    if [ "$1" = sqlite ]; then
        clients "$2"
    fi
}

for catalog in ${S3O_BENCH_EXPIRY_CATALOGS:-sqlite postgres}; do
    for kind in ${S3O_BENCH_EXPIRY_STORES:-fs s3}; do
        if [ "$kind" = fs ] || [ ${#compare[@]} -gt 0 ]; then
            measure "$catalog" "$kind"
        fi
    done
done
