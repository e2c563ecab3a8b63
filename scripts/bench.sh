#!/usr/bin/env bash
# Starts a private server of the release build and loads it with `s3o bench`, in turns with a SeaweedFS where
# scripts/setup.sh has installed one. Without arguments it takes about four minutes; arguments go to `s3o bench` instead.
#
# S3O_BENCH_ENDPOINT   load this server instead (with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY) and start none
# S3O_BENCH_FOLDER     where the servers keep what they store (default: the folder for temporary files)
# S3O_BENCH_ALONE      set to load no SeaweedFS
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --release --bin s3o
binary="${CARGO_TARGET_DIR:-$PWD/target}/release/s3o"
venv="${S3O_TEST_VENV:-$PWD/target/test-venv}"
if [ $# -eq 0 ]; then
    set -- --sizes 4KiB,1MiB --concurrency 1,16,64 --duration 3s
fi

if [ -n "${S3O_BENCH_ENDPOINT:-}" ]; then
    exec "$binary" bench --endpoint "$S3O_BENCH_ENDPOINT" "$@"
fi

scratch="$(mktemp -d "${S3O_BENCH_FOLDER:-${TMPDIR:-/tmp}}/s3o-bench.XXXXXX")"
server_pid=
seaweed_pid=
stop_what_was_started() {
    status=$?
    trap - EXIT INT TERM
    for pid in $server_pid $seaweed_pid; do
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    rm -rf "$scratch"
    exit "$status"
}
trap stop_what_was_started EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

start_seaweed() {
    PYTHONDONTWRITEBYTECODE=1 "$venv/bin/python" tests/blackbox/seaweed.py "$scratch/seaweed" "$scratch/s3.env" &
    seaweed_pid=$!
    while [ ! -f "$scratch/s3.env" ]; do
        if ! kill -0 "$seaweed_pid" 2>/dev/null; then
            echo "bench: SeaweedFS did not start, going on without it" >&2
            return
        fi
        sleep 0.1
    done
    # shellcheck disable=SC1091
    . "$scratch/s3.env"
    compare=(--compare "$S3O_TEST_S3_ENDPOINT")
    compare+=(--compare-access-key "$S3O_TEST_S3_ACCESS_KEY" --compare-secret-key "$S3O_TEST_S3_SECRET_KEY")
    # The server itself is the child of the program that watches over it.
    local child
    child="$(tr -d ' ' <"/proc/$seaweed_pid/task/$seaweed_pid/children" 2>/dev/null || true)"
    if [ -n "$child" ]; then
        compare+=(--compare-pid "$child")
    fi
    echo "bench: A is s3o, B is SeaweedFS"
}

port=$((20000 + RANDOM % 5000))
export AWS_ACCESS_KEY_ID=bench AWS_SECRET_ACCESS_KEY=bench-secret-0123456789
cat >"$scratch/s3o.yaml" <<YAML
server: {listen: "127.0.0.1:$port"}
admin: {listen: "127.0.0.1:$((port + 5000))", token: bench}
database: {url: "sqlite:$scratch/catalog.db"}
access_keys:
  - {access_key_id: $AWS_ACCESS_KEY_ID, secret_access_key: $AWS_SECRET_ACCESS_KEY, buckets: ["*"], access: admin}
backends:
  - {name: disk, kind: fs, root: "$scratch/disk"}
YAML
(cd "$scratch" && exec "$binary" serve --config s3o.yaml) >"$scratch/server.log" 2>&1 &
server_pid=$!
for _ in $(seq 100); do
    if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
        break
    fi
    if ! kill -0 "$server_pid" 2>/dev/null; then
        cat "$scratch/server.log" >&2
        exit 1
    fi
    sleep 0.1
done
compare=()
if [ -z "${S3O_BENCH_ALONE:-}" ] && [ -x "$venv/bin/weed" ]; then
    start_seaweed
fi
"$binary" bench --endpoint "http://127.0.0.1:$port" --pid "$server_pid" ${compare[@]+"${compare[@]}"} "$@"
