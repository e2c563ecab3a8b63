#!/usr/bin/env bash
# Measures the deletion of expired objects of 4 KiB, a third of which share content, until the last byte is gone: on
# each catalog, on a folder and on a SeaweedFS. It also measures the slowdown of requests (4 KiB PUTs), and clients that
# list and delete as many bodies on the same store. Catalog and store are filled directly, while s3o is stopped.
#
# S3O_BENCH_EXPIRIES          how many objects (default: 1000000)
# S3O_BENCH_EXPIRY_CATALOGS   which catalogs (default: sqlite postgres)
# S3O_BENCH_EXPIRY_STORES     which stores (default: fs s3)
# S3O_BENCH_EXPIRY_SECONDS    how long PUTs are measured each time (default: 4)
# S3O_BENCH_EXPIRY_ROUNDS     number of rounds of PUTs without and then with expiry (default: 12)
# S3O_BENCH_BINARY            the build to measure (default: the release build)
# S3O_BENCH_FOLDER            parent of the servers' data folders (default: the folder for temporary files)
# S3O_BENCH_ALONE             set to start no SeaweedFS; then the `s3` store is not measured either
set -euo pipefail
cd "$(dirname "$0")/.."

# shellcheck source=scripts/bench_servers.sh
. scripts/bench_servers.sh
binary="${S3O_BENCH_BINARY:-$binary}"
make_scratch
objects="${S3O_BENCH_EXPIRIES:-1000000}"
bodies=$((objects - objects / 3))
seconds="${S3O_BENCH_EXPIRY_SECONDS:-4}"
rounds="${S3O_BENCH_EXPIRY_ROUNDS:-12}"
sample=$((bodies < 10000 ? bodies / 1000 * 1000 : 10000))
runs=0
export AWS_REGION=us-east-1 AWS_EC2_METADATA_DISABLED=true
if [ -z "${S3O_BENCH_ALONE:-}" ]; then
    start_seaweed || true
fi

tool() {
    PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=tests/blackbox "$venv/bin/python" scripts/bench_expiry.py "$@"
}

# Creates a new catalog and sets $url.
fresh_catalog() {
    runs=$((runs + 1))
    if [ "$1" = sqlite ]; then
        url="sqlite:$scratch/expiry-$runs.db"
        return
    fi
    if [ ! -d "$scratch/postgres/data" ]; then
        postgres="$(scripts/postgres.sh start "$scratch/postgres")"
    fi
    psql --quiet "$postgres" -c "CREATE DATABASE expiry_$runs" >/dev/null
    url="${postgres%/*}/expiry_$runs"
}

# Creates a store with all bodies and no mark of another catalog; sets $store (settings for s3o) and $backend. The
# bucket is filled once and restored from a copy afterwards; $kept_store holds its settings.
filled_store() {
    if [ "$1" = fs ]; then
        rm -rf "$scratch/disk"
        store=disk backend=disk
        tool fill-folder "$scratch/disk" "$bodies"
    elif [ -d "$scratch/seaweed-filled" ]; then
        stop_seaweed
        rm -rf "$scratch/seaweed"
        cp -r "$scratch/seaweed-filled" "$scratch/seaweed"
        start_seaweed
        store="$(store_at "$S3O_TEST_S3_ENDPOINT")" backend="$(of_store name)"
    else
        kept_store="$(PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=tests/blackbox "$venv/bin/python" -c \
            'import json, seaweed; print(json.dumps(seaweed.fresh_bucket()))')"
        bucket="$(of_store bucket)"
        tool fill-folder "$scratch/bodies" "$bodies"
        at_the_store "$venv/bin/s5cmd" --numworkers 32 --endpoint-url "$S3O_TEST_S3_ENDPOINT" \
            cp "$scratch/bodies/bench/*" "s3://$bucket/bench/" >/dev/null
        rm -rf "$scratch/bodies"
        stop_seaweed
        cp -r "$scratch/seaweed" "$scratch/seaweed-filled"
        start_seaweed
        store="$(store_at "$S3O_TEST_S3_ENDPOINT")" backend="$(of_store name)"
    fi
}

of_store() {
    "$venv/bin/python" -c 'import json, sys; print(json.loads(sys.argv[1])[sys.argv[2]])' "$kept_store" "$1"
}

# Settings of the filled bucket at the server's current endpoint.
store_at() {
    "$venv/bin/python" -c 'import json, sys; print(json.dumps({**json.loads(sys.argv[1]), "endpoint": sys.argv[2]}))' \
        "$kept_store" "$1"
}

at_the_store() {
    AWS_ACCESS_KEY_ID="$S3O_TEST_S3_ACCESS_KEY" AWS_SECRET_ACCESS_KEY="$S3O_TEST_S3_SECRET_KEY" "$@"
}

start() {
    start_s3o expiry "$url" "$store" 'expiry: {interval: 1s}'
}

# filled CATALOG STORE COUNT [alive]: starts s3o with that many objects and its expiry worker paused.
filled() {
    filled_store "$2"
    fresh_catalog "$1"
    start
    # shellcheck disable=SC2154
    "$binary" workers pause expiry --admin "$expiry_admin" >/dev/null
    "$venv/bin/aws" --endpoint-url "$expiry_url" s3 mb s3://bench >/dev/null
    stop_s3o expiry
    tool fill-catalog "$url" "$backend" "$3" ${4:+"$4"}
    start
}

# timed NAME COUNT COMMAND...
timed() {
    local name="$1" count="$2" began ended
    shift 2
    began="$(date +%s.%N)"
    "$@" >/dev/null 2>&1
    ended="$(date +%s.%N)"
    awk -v n="$count" -v began="$began" -v ended="$ended" -v name="$name" \
        'BEGIN {s = ended - began; printf "| %s | %d | %.1f | %.0f |\n", name, n, s, n / s}'
}

through_s3o() {
    "$venv/bin/s5cmd" --endpoint-url "$expiry_url" rm 's3://bench/*'
    tool drained "$expiry_admin"
}

# Measures clients instead: with the same bodies on the store itself, and with the same objects through s3o.
clients() {
    printf '\n| instead, on %s | deleted | seconds | per second |\n|---|---:|---:|---:|\n' "$1"
    if [ "$1" = fs ]; then
        filled_store fs
        timed "rclone delete, bodies" "$bodies" "$venv/bin/rclone" delete --config /dev/null "$scratch/disk/bench"
        filled_store fs
        timed "the disk's own, rm -r, bodies" "$bodies" rm -r "$scratch/disk/bench"
    else
        filled_store s3
        timed "s5cmd rm, bodies" "$bodies" at_the_store \
            "$venv/bin/s5cmd" --endpoint-url "$S3O_TEST_S3_ENDPOINT" rm "s3://$bucket/bench/*"
        filled_store s3
        tool own-rate "$store" "$bodies"
        # These delete one by one, so a sample is enough.
        filled_store s3
        timed "rclone delete, bodies" "$sample" at_the_store "$venv/bin/rclone" delete --config /dev/null \
            --include "/0000[0-$((sample / 1000 - 1))]/**" \
            ":s3,provider=Other,env_auth=true,endpoint='$S3O_TEST_S3_ENDPOINT':$bucket/bench"
        timed "aws s3 rm, bodies" 1000 at_the_store "$venv/bin/aws" --endpoint-url "$S3O_TEST_S3_ENDPOINT" \
            s3 rm --recursive "s3://$bucket/bench/00010/"
    fi
    filled sqlite "$1" "$objects" alive
    timed "s5cmd rm through s3o, objects" "$objects" through_s3o
    stop_s3o expiry
}

measure() {
    filled "$1" "$2" "$objects"
    printf '\n%s on %s\n\n' "$1" "$2"
    echo '| objects | rows gone s | objects/s | bytes gone s | objects/s | commits | delete calls | peak MiB |'
    echo '|---:|---:|---:|---:|---:|---:|---:|---:|'
    # shellcheck disable=SC2154
    tool watch "$expiry_admin" "$expiry_pid" "$objects"
    stop_s3o expiry
    filled "$1" "$2" "$objects"
    # shellcheck disable=SC2154
    tool beside "$expiry_admin" "$binary" "$expiry_url" "$seconds" "$rounds"
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
