//! Every dependency has a licence that goes with ours. Works without a network.

use std::process::Command;

use serde_json::Value;

/// Licences that allow use in an Apache-2.0 program.
const ALLOWED: [&str; 14] = [
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "MIT",
    "MIT-0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "OpenSSL",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// `A OR B` needs one of them, `A AND B` all; old manifests write a slash for OR.
fn is_allowed(expression: &str) -> bool {
    let expression = expression.replace('/', " OR ").replace(['(', ')'], " ");
    let one = |licence: &str| ALLOWED.contains(&licence.trim());
    if expression.contains(" AND ") {
        return expression.split(" AND ").all(|part| part.split(" OR ").any(one));
    }
    expression.split(" OR ").any(one)
}

#[test]
fn every_dependency_may_be_used() {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml");
    // Crates for other platforms are not on this machine.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--filter-platform", &platform])
        .args(["--offline", "--locked", "--format-version", "1", "--manifest-path", manifest])
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    assert!(packages.len() > 50);
    let refused: Vec<String> = packages
        .iter()
        .filter(|package| !is_allowed(package["license"].as_str().unwrap_or_default()))
        .map(|package| format!("{} {}: {}", package["name"], package["version"], package["license"]))
        .collect();
    assert!(refused.is_empty(), "\n{}", refused.join("\n"));
}

#[test]
fn expressions_are_read_as_they_are_meant() {
    assert!(is_allowed("MIT OR GPL-3.0"));
    assert!(is_allowed("MIT/Apache-2.0"));
    assert!(is_allowed("(MIT OR Apache-2.0) AND Unicode-3.0"));
    assert!(!is_allowed("GPL-3.0"));
    assert!(!is_allowed("MIT AND GPL-3.0"));
    assert!(!is_allowed(""));
}
