#!/usr/bin/env bash
# Measures a long cleanup queue. While s3o is stopped, its catalog is filled with rows whose bytes do not exist; then
# s3o empties the queue. Memory must stay flat and the server must answer in the meantime. A row costs the catalog the
# same as any other, and the folder one lookup of a missing name.
#
# S3O_BENCH_QUEUE_ROWS      how many rows (default: 1000000)
# S3O_BENCH_QUEUE_CATALOGS  which catalogs (default: sqlite postgres)
# S3O_BENCH_QUEUE_SPREAD    set for rows whose keys are far apart; otherwise they are in key order
# S3O_BENCH_FOLDER          parent of the servers' data folders (default: the folder for temporary files)
set -euo pipefail
cd "$(dirname "$0")/.."

# shellcheck source=scripts/bench_servers.sh
. scripts/bench_servers.sh
make_scratch
rows="${S3O_BENCH_QUEUE_ROWS:-1000000}"
now="$(date +%s)000"
folder="i / 1000"
if [ -n "${S3O_BENCH_QUEUE_SPREAD:-}" ]; then
    folder="i % 1000"
fi
columns="backend_name, physical_key, size_bytes, stripe, reason, due, created_at"

fill_sqlite() {
    python3 - "$scratch/queue.db" "$rows" "$now" "$columns" "$folder" <<'PYTHON'
import sqlite3, sys
path, rows, now, columns, folder = sys.argv[1:]
with sqlite3.connect(path) as catalog:
    catalog.execute("PRAGMA synchronous = OFF")
    catalog.execute(
        f"INSERT INTO cleanup_queue ({columns}) "
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) "
        f"SELECT 'disk', 'bench/folder-' || ({folder}) || '/' || i || '~' || lower(hex(randomblob(16))), "
        "0, 0, 'delete', ?2, ?2 FROM n",
        (int(rows), int(now)),
    )
PYTHON
}

fill_postgres() {
    psql --quiet "$postgres" -c "INSERT INTO cleanup_queue ($columns) \
        SELECT 'disk', 'bench/folder-' || ($folder) || '/' || i || '~' || md5(random()::text), \
        0, 0, 'delete', $now, $now \
        FROM generate_series(1, $rows) i"
}

for catalog in ${S3O_BENCH_QUEUE_CATALOGS:-sqlite postgres}; do
    case "$catalog" in
        sqlite) url="sqlite:$scratch/queue.db" ;;
        *)
            postgres="$(scripts/postgres.sh start "$scratch/postgres")"
            url="$postgres"
            ;;
    esac
    start_s3o queue "$url" "$catalog-disk"
    # shellcheck disable=SC2154
    "$binary" workers pause cleanup --admin "$queue_admin" >/dev/null
    stop_s3o queue
    "fill_$catalog"
    start_s3o queue "$url" "$catalog-disk"
    printf '\n%s, %s rows\n\n' "$catalog" "$rows"
    # shellcheck disable=SC2154
    "$binary" bench --drain --endpoint "$queue_url" --pid "$queue_pid" --metrics "$queue_metrics"
    stop_s3o queue
done
