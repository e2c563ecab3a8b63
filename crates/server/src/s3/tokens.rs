//! Continuation tokens: where the next page starts, opaque to clients.

use base64_simd::URL_SAFE_NO_PAD;

use super::refusal::Refusal;

/// The token for the page after this key or common prefix.
pub fn encode(after: &str) -> String {
    URL_SAFE_NO_PAD.encode_to_string(after)
}

/// Where the page of the token of a request starts. An empty token means none, as in S3.
pub fn asked(token: Option<&str>) -> Result<Option<String>, Refusal> {
    token.filter(|token| !token.is_empty()).map(decode).transpose()
}

fn decode(token: &str) -> Result<String, Refusal> {
    let refusal = || Refusal::because("InvalidArgument", "The continuation token provided is incorrect");
    let bytes = URL_SAFE_NO_PAD.decode_to_vec(token).map_err(|_| refusal())?;
    String::from_utf8(bytes).ok().filter(|after| !after.is_empty()).ok_or_else(refusal)
}

#[cfg(test)]
mod tests {
    use super::{asked, decode, encode};

    #[test]
    fn tokens_read_back() {
        for after in ["a", "photos/2026/", "ä \u{1}\"<>"] {
            assert_eq!(decode(&encode(after)).unwrap(), after);
        }
    }

    #[test]
    fn an_empty_token_means_none() {
        assert_eq!(asked(None).unwrap(), None);
        assert_eq!(asked(Some("")).unwrap(), None);
        assert_eq!(asked(Some(&encode("a"))).unwrap().as_deref(), Some("a"));
    }

    #[test]
    fn foreign_tokens_are_refused() {
        for token in ["", "not base64!", "_w"] {
            assert_eq!(decode(token).unwrap_err().code, "InvalidArgument", "{token}");
        }
    }
}
