//! Continuation tokens: where the next page starts, opaque to clients.

use base64_simd::URL_SAFE_NO_PAD;

use super::refusal::Refusal;

/// The token for the page after this key or common prefix.
pub fn encode(after: &str) -> String {
    URL_SAFE_NO_PAD.encode_to_string(after)
}

/// Where the page of this token starts.
pub fn decode(token: &str) -> Result<String, Refusal> {
    let refusal = || Refusal::because("InvalidArgument", "The continuation token provided is incorrect");
    let bytes = URL_SAFE_NO_PAD.decode_to_vec(token).map_err(|_| refusal())?;
    String::from_utf8(bytes).ok().filter(|after| !after.is_empty()).ok_or_else(refusal)
}

#[cfg(test)]
mod tests {
    use super::{decode, encode};

    #[test]
    fn tokens_read_back() {
        for after in ["a", "photos/2026/", "ä \u{1}\"<>"] {
            assert_eq!(decode(&encode(after)).unwrap(), after);
        }
    }

    #[test]
    fn foreign_tokens_are_refused() {
        for token in ["", "not base64!", "_w"] {
            assert_eq!(decode(token).unwrap_err().code, "InvalidArgument", "{token}");
        }
    }
}
