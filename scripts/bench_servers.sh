# Private servers for measurements, sourced by the bench scripts. They store below $scratch, run the binary $binary, and
# stop with the script.

export AWS_ACCESS_KEY_ID=bench AWS_SECRET_ACCESS_KEY=bench-secret-0123456789 S3O_ADMIN_TOKEN=bench
binary="${CARGO_TARGET_DIR:-$PWD/target}/release/s3o"
venv="${S3O_TEST_VENV:-$PWD/target/test-venv}"
compare=()
started_pids=()

stop_servers() {
    status=$?
    trap - EXIT INT TERM
    for pid in ${started_pids[@]+"${started_pids[@]}"}; do
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    if [ -d "$scratch/postgres/data" ]; then
        scripts/postgres.sh stop "$scratch/postgres" || true
    fi
    if [ -f "$scratch/redis/pid" ]; then
        scripts/redis.sh stop "$scratch/redis" || true
    fi
    rm -rf "$scratch"
    exit "$status"
}

make_scratch() {
    if [ ! -x "$binary" ]; then
        cargo build --release -p s3o
    fi
    scratch="$(mktemp -d "${S3O_BENCH_FOLDER:-${TMPDIR:-/tmp}}/s3o-bench.XXXXXX")"
    # PostgreSQL may run as another user, which needs access to its folder.
    chmod 755 "$scratch"
    trap stop_servers EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

# start_s3o NAME CATALOG STORE [SETTINGS]: sets ${NAME}_url, ${NAME}_metrics, ${NAME}_admin and ${NAME}_pid. STORE is a
# folder below $scratch or a whole entry of `backends` in braces; SETTINGS are lines for the configuration.
start_s3o() {
    local name="$1" store="$3" port=$((20000 + RANDOM % 5000))
    case "$store" in
        "{"*) ;;
        *) store="{name: disk, kind: fs, root: \"$scratch/$store\"}" ;;
    esac
    mkdir -p "$scratch/$name"
    cat >"$scratch/$name/s3o.yaml" <<YAML
server: {listen: "127.0.0.1:$port"}
admin: {listen: "127.0.0.1:$((port + 5000))", token: $S3O_ADMIN_TOKEN}
database: {url: "$2"}
access_keys:
  - {access_key_id: $AWS_ACCESS_KEY_ID, secret_access_key: $AWS_SECRET_ACCESS_KEY, buckets: ["*"], access: admin}
backends:
  - $store
${4:-}
YAML
    (cd "$scratch/$name" && exec "$binary" serve --config s3o.yaml) >"$scratch/$name/server.log" 2>&1 &
    local pid=$!
    started_pids+=("$pid")
    wait_for_port "$port" "$pid" "$scratch/$name/server.log"
    printf -v "${name}_url" 'http://127.0.0.1:%s' "$port"
    printf -v "${name}_admin" 'http://127.0.0.1:%s' $((port + 5000))
    printf -v "${name}_metrics" 'http://127.0.0.1:%s/metrics' $((port + 5000))
    printf -v "${name}_pid" '%s' "$pid"
}

# stop_s3o NAME: keeps its data.
stop_s3o() {
    local pid="${1}_pid"
    kill "${!pid}"
    wait "${!pid}" || true
}

# Starts a SeaweedFS and sets S3O_TEST_S3_... and the options that compare with it. Fails if scripts/setup.sh has not
# installed SeaweedFS.
start_seaweed() {
    if [ ! -x "$venv/bin/weed" ]; then
        return 1
    fi
    rm -f "$scratch/s3.env"
    PYTHONDONTWRITEBYTECODE=1 "$venv/bin/python" tests/blackbox/seaweed.py "$scratch/seaweed" "$scratch/s3.env" &
    seaweed_pid=$!
    started_pids+=("$seaweed_pid")
    while [ ! -f "$scratch/s3.env" ]; do
        if ! kill -0 "$seaweed_pid" 2>/dev/null; then
            echo "bench: SeaweedFS did not start, continuing without it" >&2
            return 1
        fi
        sleep 0.1
    done
    # shellcheck disable=SC1091
    . "$scratch/s3.env"
    compare=(--compare "$S3O_TEST_S3_ENDPOINT")
    compare+=(--compare-access-key "$S3O_TEST_S3_ACCESS_KEY" --compare-secret-key "$S3O_TEST_S3_SECRET_KEY")
    # The server is a child of the Python program that started it.
    local child
    child="$(tr -d ' ' <"/proc/$seaweed_pid/task/$seaweed_pid/children" 2>/dev/null || true)"
    if [ -n "$child" ]; then
        compare+=(--compare-pid "$child")
    fi
}

# Keeps its data in $scratch/seaweed.
stop_seaweed() {
    kill "$seaweed_pid"
    wait "$seaweed_pid" || true
}

# repeated ONE [OTHER]: as often as $turns says. `s3o bench` lets the other server begin in every second cell, so every
# second turn is reversed: otherwise the same server would always begin with the same load.
repeated() {
    local list="" turn
    for turn in $(seq "$turns"); do
        if [ $((turn % 2)) -eq 1 ]; then
            list="$list,$1${2:+,$2}"
        else
            list="$list,${2:+$2,}$1"
        fi
    done
    printf '%s' "${list#,}"
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
