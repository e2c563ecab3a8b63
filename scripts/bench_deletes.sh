#!/usr/bin/env bash
# Measures deletes until the bytes are gone: objects of 4 KiB, deleted singly and by DeleteObjects, on a folder and on a
# SeaweedFS behind s3o, each in turns with that SeaweedFS itself. At the end it checks that the stores are empty.
#
# S3O_BENCH_DELETES    how many objects each line deletes (default: 16000)
# S3O_BENCH_FOLDER     parent of the servers' data folders (default: the folder for temporary files)
# S3O_BENCH_ALONE      set to start no SeaweedFS; then the `s3` backend is not measured either
set -euo pipefail
cd "$(dirname "$0")/.."

# shellcheck source=scripts/bench_servers.sh
. scripts/bench_servers.sh
make_scratch
load=(--deletes "${S3O_BENCH_DELETES:-16000}" --sizes 4KiB)
if [ -z "${S3O_BENCH_ALONE:-}" ]; then
    start_seaweed || true
fi

expect_empty() {
    if [ "$2" -ne 0 ]; then
        echo "bench: $2 objects are left on $1" >&2
        exit 1
    fi
}

in_python() {
    PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=tests/blackbox "$venv/bin/python" -c "$@"
}

echo
start_s3o folder "sqlite:$scratch/folder.db" disk
# shellcheck disable=SC2154
"$binary" bench "${load[@]}" --names "s3o on a folder,SeaweedFS" ${compare[@]+"${compare[@]}"} \
    --endpoint "$folder_url" --pid "$folder_pid" --metrics "$folder_metrics"
expect_empty "the folder" "$(find "$scratch/disk" -type f -not -path "$scratch/disk/.s3o/*" | wc -l)"
stop_s3o folder

if [ ${#compare[@]} -gt 0 ]; then
    echo
    store="$(in_python 'import json, seaweed; print(json.dumps(seaweed.fresh_bucket()))')"
    start_s3o bucket "sqlite:$scratch/bucket.db" "$store"
    # shellcheck disable=SC2154
    "$binary" bench "${load[@]}" --names "s3o on SeaweedFS,SeaweedFS" "${compare[@]}" \
        --endpoint "$bucket_url" --pid "$bucket_pid" --metrics "$bucket_metrics"
    expect_empty "SeaweedFS" "$(in_python '
import json, os, sys, seaweed
keys = [os.environ[f"S3O_TEST_S3_{name}"] for name in ("ENDPOINT", "ACCESS_KEY", "SECRET_KEY")]
page = seaweed.connect(*keys).list_objects_v2(Bucket=json.loads(sys.argv[1])["bucket"])
print(sum(not entry["Key"].startswith(".s3o/") for entry in page.get("Contents", [])))
' "$store")"
fi
