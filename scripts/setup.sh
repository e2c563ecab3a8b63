#!/usr/bin/env bash
# Installs missing programs for the tests: a private Python environment and the AWS SDK for JavaScript below target/,
# and a few packages of the distribution. Changes nothing if everything is installed.
set -euo pipefail
cd "$(dirname "$0")/.."

venv="${S3O_TEST_VENV:-target/test-venv}"
requirements=tests/blackbox/requirements.txt

missing=()
command -v restic >/dev/null || missing+=(restic)
command -v strace >/dev/null || missing+=(strace)
command -v redis-server >/dev/null || missing+=(redis-server)
command -v node >/dev/null || missing+=(nodejs)
command -v npm >/dev/null || missing+=(npm)
compgen -G "/usr/lib/postgresql/*/bin/initdb" >/dev/null || command -v initdb >/dev/null || missing+=(postgresql)
if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
    missing+=(python3 python3-venv)
fi

if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" -eq 0 ]; then
        as_root=()
    elif sudo -n true 2>/dev/null; then
        as_root=(sudo -n)
    else
        echo "setup: missing ${missing[*]}; run 'apt-get install ${missing[*]}' as root, then try again" >&2
        exit 1
    fi
    echo "setup: installing ${missing[*]}"
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi

stamp="$venv/requirements.sha256"
wanted="$(sha256sum <"$requirements")"
if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$wanted" ]; then
    echo "setup: installing the test clients into $venv"
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$requirements"
    echo "$wanted" >"$stamp"
fi

javascript="${S3O_TEST_JS:-target/test-js}"
sources=tests/blackbox/javascript
stamp="$javascript/package-lock.sha256"
wanted="$(sha256sum <"$sources/package-lock.json")"
if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$wanted" ]; then
    echo "setup: installing the AWS SDK for JavaScript into $javascript"
    rm -rf "$javascript"
    mkdir -p "$javascript"
    cp "$sources/package.json" "$sources/package-lock.json" "$javascript/"
    (cd "$javascript" && npm ci --no-audit --no-fund --loglevel=error)
    echo "$wanted" >"$stamp"
fi
