#!/usr/bin/env bash
# A temporary PostgreSQL. `postgres.sh start FOLDER` creates one in FOLDER on a free loopback port and prints its URL.
# `postgres.sh stop FOLDER [MODE]` stops it like a crash, unless MODE is `fast` or `smart`; `restart` starts it again.
# `postgres.sh checksums FOLDER enable|disable` switches the data checksums of a stopped one.
# As root it runs under the user postgres, because initdb refuses root.
set -euo pipefail

folder="$2"
programs="$(compgen -G "/usr/lib/postgresql/*/bin" | sort -V | tail -n 1 || true)"
export PATH="${programs:+$programs:}$PATH"

as_owner() {
    if [ "$(id -u)" -eq 0 ]; then
        # The user postgres may have no access to the current folder.
        (cd / && setpriv --reuid postgres --regid postgres --clear-groups env PATH="$PATH" "$@")
    else
        "$@"
    fi
}

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

start() {
    mkdir -p "$folder"
    [ "$(id -u)" -ne 0 ] || chown postgres "$folder"
    chmod 755 "$folder"
    local port
    port="$(free_port)"
    as_owner initdb -D "$folder/data" -U postgres -A trust -E UTF8 --locale=C >"$folder/initdb.log"
    printf '%s\n' "port = $port" "unix_socket_directories = '$folder'" "listen_addresses = '127.0.0.1'" \
        "max_connections = 300" \
        "max_locks_per_transaction = 256" >"$folder/extra.conf"
    as_owner tee -a "$folder/data/postgresql.conf" <"$folder/extra.conf" >/dev/null
    restart
    echo "postgres://postgres@127.0.0.1:$port/postgres"
}

restart() {
    as_owner pg_ctl -D "$folder/data" -l "$folder/log" -w start >/dev/null
}

case "$1" in
    start) start ;;
    restart) restart ;;
    stop) as_owner pg_ctl -D "$folder/data" -m "${3:-immediate}" stop >/dev/null ;;
    # Fails if they are in this state already.
    checksums) as_owner pg_checksums -D "$folder/data" "--$3" >/dev/null 2>&1 || true ;;
    *) echo "usage: $0 start|stop|restart|checksums FOLDER" >&2; exit 2 ;;
esac
