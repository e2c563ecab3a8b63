#!/usr/bin/env bash
# A temporary Redis. `redis.sh start FOLDER` starts one on a free loopback port, writes its log to FOLDER and prints its
# URL. `redis.sh stop FOLDER` stops it, `restart` starts it again on the same port. It stores nothing on disk.
set -euo pipefail

folder="$2"

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

start() {
    mkdir -p "$folder"
    free_port >"$folder/port"
    restart
    echo "redis://127.0.0.1:$(cat "$folder/port")"
}

restart() {
    local port
    port="$(cat "$folder/port")"
    redis-server --port "$port" --bind 127.0.0.1 --save "" --appendonly no --dir "$folder" --daemonize yes \
        --pidfile "$folder/pid" --logfile "$folder/log" >/dev/null
    for _ in $(seq 100); do
        if [ "$(redis-cli -p "$port" ping 2>/dev/null)" = PONG ]; then
            return
        fi
        sleep 0.05
    done
    cat "$folder/log" >&2
    return 1
}

stop() {
    local pid
    pid="$(cat "$folder/pid")"
    kill -KILL "$pid" 2>/dev/null || true
    while kill -0 "$pid" 2>/dev/null; do
        sleep 0.05
    done
}

case "$1" in
    start) start ;;
    restart) restart ;;
    stop) stop ;;
    *) echo "usage: $0 start|stop|restart FOLDER" >&2; exit 2 ;;
esac
