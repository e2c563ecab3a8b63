# Private servers for measurements, sourced by the scripts that measure. They keep what they store below $scratch, are of
# the build $binary, and end with the script.

export AWS_ACCESS_KEY_ID=bench AWS_SECRET_ACCESS_KEY=bench-secret-0123456789
started_pids=()

stop_what_was_started() {
    status=$?
    trap - EXIT INT TERM
    for pid in ${started_pids[@]+"${started_pids[@]}"}; do
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    if [ -d "$scratch/postgres/data" ]; then
        scripts/postgres.sh stop "$scratch/postgres" || true
    fi
    rm -rf "$scratch"
    exit "$status"
}

make_scratch() {
    scratch="$(mktemp -d "${S3O_BENCH_FOLDER:-${TMPDIR:-/tmp}}/s3o-bench.XXXXXX")"
    # PostgreSQL may run as another user and must find its folder.
    chmod 755 "$scratch"
    trap stop_what_was_started EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

# start_s3o NAME CATALOG DISK: sets ${NAME}_url, ${NAME}_metrics and ${NAME}_pid.
start_s3o() {
    local name="$1" port=$((20000 + RANDOM % 5000))
    mkdir -p "$scratch/$name"
    cat >"$scratch/$name/s3o.yaml" <<YAML
server: {listen: "127.0.0.1:$port"}
admin: {listen: "127.0.0.1:$((port + 5000))", token: bench}
database: {url: "$2"}
access_keys:
  - {access_key_id: $AWS_ACCESS_KEY_ID, secret_access_key: $AWS_SECRET_ACCESS_KEY, buckets: ["*"], access: admin}
backends:
  - {name: disk, kind: fs, root: "$scratch/$3"}
YAML
    (cd "$scratch/$name" && exec "$binary" serve --config s3o.yaml) >"$scratch/$name/server.log" 2>&1 &
    local pid=$!
    started_pids+=("$pid")
    wait_for_port "$port" "$pid" "$scratch/$name/server.log"
    printf -v "${name}_url" 'http://127.0.0.1:%s' "$port"
    printf -v "${name}_metrics" 'http://127.0.0.1:%s/metrics' $((port + 5000))
    printf -v "${name}_pid" '%s' "$pid"
}

wait_for_port() {
    for _ in $(seq 100); do
        if (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; then
            return
        fi
        if ! kill -0 "$2" 2>/dev/null; then
            break
        fi
        sleep 0.1
    done
    cat "$3" >&2
    exit 1
}
