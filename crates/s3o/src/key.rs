//! `s3o key new`.

use s3o_model::entropy::{Entropy, SystemEntropy};

use crate::cli::{KeyAction, KeyCommand};
use crate::credentials::Credentials;

/// Prints a new key pair and does not store it.
pub fn run(command: &KeyCommand) {
    let KeyAction::New { json } = command.action;
    println!("{}", text(&SystemEntropy, json));
}

fn text(entropy: &dyn Entropy, json: bool) -> String {
    let Credentials { access_key_id, secret_access_key, .. } = Credentials::fresh(entropy);
    if json {
        let pair = serde_json::json!({"access_key_id": access_key_id, "secret_access_key": secret_access_key});
        return pair.to_string();
    }
    format!("access_key_id: {access_key_id}\nsecret_access_key: {secret_access_key}")
}

#[cfg(test)]
mod tests {
    use super::text;
    use s3o_model::entropy::SeededEntropy;

    #[test]
    fn key_pairs_differ_and_are_valid_yaml() {
        let (first, second) = (text(&SeededEntropy::new(1), false), text(&SeededEntropy::new(2), false));
        assert_ne!(first, second);
        let parsed: serde_json::Value = serde_saphyr::from_str(&first).expect("YAML");
        let json: serde_json::Value = serde_json::from_str(&text(&SeededEntropy::new(1), true)).expect("JSON");
        assert_eq!(parsed, json);
        assert_eq!(json["secret_access_key"].as_str().map(str::len), Some(40));
    }
}
