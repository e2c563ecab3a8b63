#!/usr/bin/env bash
# Starts a private server of the release build on embedded defaults and loads it with `s3o bench`.
# Arguments go to `s3o bench`; S3O_BENCH_ENDPOINT, with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, loads another server.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --release --bin s3o
binary="${CARGO_TARGET_DIR:-$PWD/target}/release/s3o"

if [ -n "${S3O_BENCH_ENDPOINT:-}" ]; then
    exec "$binary" bench --endpoint "$S3O_BENCH_ENDPOINT" "$@"
fi

scratch="$(mktemp -d "${S3O_BENCH_FOLDER:-${TMPDIR:-/tmp}}/s3o-bench.XXXXXX")"
server_pid=
stop_what_was_started() {
    status=$?
    trap - EXIT INT TERM
    if [ -n "$server_pid" ]; then
        kill "$server_pid" 2>/dev/null || true
        wait "$server_pid" 2>/dev/null || true
    fi
    rm -rf "$scratch"
    exit "$status"
}
trap stop_what_was_started EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

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
"$binary" bench --endpoint "http://127.0.0.1:$port" --pid "$server_pid" "$@"
