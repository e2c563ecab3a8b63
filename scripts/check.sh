#!/usr/bin/env bash
# Checks format, lints, documentation and the rules of tests/tidy.rs, without running the product.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo fmt --all -- --check
cargo clippy --workspace --all-targets -- -D warnings
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items
cargo test --quiet --workspace --test tidy
