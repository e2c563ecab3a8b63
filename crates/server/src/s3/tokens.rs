//! Continuation tokens: base64 of the last key of a page.

use base64_simd::URL_SAFE_NO_PAD;

use super::refusal::Refusal;

/// The token for the page after this key or common prefix.
pub fn encode(after: &str) -> String {
    URL_SAFE_NO_PAD.encode_to_string(after)
}

/// The key after which the page starts. As in S3, an empty token means none.
pub fn requested(token: Option<&str>) -> Result<Option<String>, Refusal> {
    token.filter(|token| !token.is_empty()).map(decode).transpose()
}

fn decode(token: &str) -> Result<String, Refusal> {
    let refusal = || Refusal::because("InvalidArgument", "The continuation token provided is incorrect");
    let bytes = URL_SAFE_NO_PAD.decode_to_vec(token).map_err(|_| refusal())?;
    String::from_utf8(bytes).ok().filter(|after| !after.is_empty()).ok_or_else(refusal)
}

#[cfg(test)]
mod tests {
    use super::{decode, encode, requested};

    #[test]
    fn tokens_round_trip() {
        for after in ["a", "photos/2026/", "ä \u{1}\"<>"] {
            assert_eq!(decode(&encode(after)).unwrap(), after);
        }
    }

    #[test]
    fn empty_token_means_none() {
        assert_eq!(requested(None).unwrap(), None);
        assert_eq!(requested(Some("")).unwrap(), None);
        assert_eq!(requested(Some(&encode("a"))).unwrap().as_deref(), Some("a"));
    }

    #[test]
    fn malformed_tokens_are_refused() {
        for token in ["", "not base64!", "_w"] {
            assert_eq!(decode(token).unwrap_err().code, "InvalidArgument", "{token}");
        }
    }
}
