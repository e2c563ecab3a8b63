#!/usr/bin/env bash
# Runs every test: installs missing programs, builds once, starts a temporary S3 server, PostgreSQL and Redis, runs the
# suites, prints the duration of each and stops the servers. Fails if any suite failed.
#
# S3O_BIN       binary for the black-box tests (default: the one built here)
# S3O_SUITES    suites to run, by name (default: all; chaos is a part of alone, damage of blackbox, drills of both)
set -euo pipefail
cd "$(dirname "$0")/.."

target="${CARGO_TARGET_DIR:-$PWD/target}"
venv="${S3O_TEST_VENV:-$PWD/target/test-venv}"
suites="${S3O_SUITES:-check rust doc blackbox alone}"
scratch="$(mktemp -d "${TMPDIR:-/tmp}/s3o-test.XXXXXX")"
# PostgreSQL may run as another user, which needs access to its folder.
chmod 755 "$scratch"
seaweed_pid=
report=()
failed=()

stop_servers() {
    status=$?
    trap - EXIT INT TERM
    if [ -n "$seaweed_pid" ]; then
        kill "$seaweed_pid" 2>/dev/null || true
        wait "$seaweed_pid" 2>/dev/null || true
    fi
    if [ -d "$scratch/postgres/data" ]; then
        scripts/postgres.sh stop "$scratch/postgres" || true
    fi
    if [ -f "$scratch/redis/pid" ]; then
        scripts/redis.sh stop "$scratch/redis" || true
    fi
    rm -rf "$scratch"
    exit "$status"
}
trap stop_servers EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

suite() {
    local name="$1" began="$SECONDS" outcome=passed
    shift
    echo
    echo "== $name"
    "$@" || outcome=FAILED
    local took=$((SECONDS - began))
    report+=("$(printf '%-10s %3d min %02d s  %s' "$name" $((took / 60)) $((took % 60)) "$outcome")")
    if [ "$outcome" = FAILED ]; then
        failed+=("$name")
    fi
}

summary() {
    echo
    echo "== minutes"
    printf '%s\n' "${report[@]}"
    if [ ${#failed[@]} -gt 0 ]; then
        echo "failed: ${failed[*]}" >&2
        exit 1
    fi
}

build() {
    cargo build --workspace --all-targets
}

start_seaweed() {
    PYTHONDONTWRITEBYTECODE=1 "$venv/bin/python" tests/blackbox/seaweed.py "$scratch/seaweed" "$scratch/s3.env" &
    seaweed_pid=$!
    while [ ! -f "$scratch/s3.env" ]; do
        kill -0 "$seaweed_pid" 2>/dev/null || return 1
        sleep 0.1
    done
    # shellcheck disable=SC1091
    . "$scratch/s3.env"
}

start_postgres() {
    S3O_TEST_POSTGRES_URL="$(scripts/postgres.sh start "$scratch/postgres")"
    export S3O_TEST_POSTGRES_URL
}

start_redis() {
    S3O_TEST_REDIS_URL="$(scripts/redis.sh start "$scratch/redis")"
    export S3O_TEST_REDIS_URL
}

start_servers() {
    start_seaweed && start_postgres && start_redis
}

rust_tests() {
    if cargo nextest --version >/dev/null 2>&1; then
        cargo nextest run --workspace --no-fail-fast --no-tests=pass
    else
        cargo test --workspace --lib --bins --tests --no-fail-fast
    fi
}

blackbox() {
    PYTHONDONTWRITEBYTECODE=1 "$venv/bin/python" -m pytest -c tests/blackbox/pytest.ini --rootdir tests/blackbox \
        --quiet --durations=5 "$@" tests/blackbox
}

suite setup scripts/setup.sh
suite build build
suite servers start_servers
if [ ${#failed[@]} -gt 0 ]; then
    summary
fi
export S3O_BIN="${S3O_BIN:-$target/debug/s3o}"

for name in $suites; do
    case "$name" in
        check) suite check scripts/check.sh ;;
        rust) suite rust rust_tests ;;
        doc) suite doc cargo test --workspace --doc --quiet ;;
        blackbox) suite blackbox blackbox -n 2 -m "not alone" ;;
        alone) suite alone blackbox -m alone ;;
        chaos) suite chaos blackbox -k test_chaos ;;
        damage) suite damage blackbox -k test_no_damage_deletes -s ;;
        drills)
            suite drills blackbox -k "test_store_faults or test_large_drain or test_idle_copies" -s
            S3O_STORE_FAULT_INSTANCES=2 suite instances blackbox -k test_faults_of_one_store_at_a_time -s
            ;;
        *) echo "$name is not a suite; use check, rust, doc, blackbox, alone, chaos, damage or drills" >&2; exit 2 ;;
    esac
done
summary
