//! Refuses dates of signatures that are none.
//!
//! The protocol library computes with every character of a date before it refuses those that are no
//! digits: in a build that checks arithmetic, any stranger could make it panic.

use http::header::AUTHORIZATION;
use http::request::Parts;

use super::refusal::Refusal;
use super::url_encoding::parameters;

/// Refuses what the library would refuse, in the same words.
pub fn check(request: &Parts) -> Result<(), Refusal> {
    for (name, scoped) in [("x-amz-date", false), (AUTHORIZATION.as_str(), true)] {
        let values = request.headers.get_all(name).iter();
        let mut texts = values.filter_map(|value| std::str::from_utf8(value.as_bytes()).ok());
        if texts.any(|text| is_senseless(if scoped { scope_date(text) } else { text })) {
            return Err(Refusal::because("InvalidRequest", format!("invalid header: {name}")));
        }
    }
    let query = request.uri.query().unwrap_or_default();
    let senseless = parameters(query).any(|(name, value)| match name.as_str() {
        "X-Amz-Date" => is_senseless(&value),
        "X-Amz-Credential" => is_senseless(scope_date(&value)),
        _ => false,
    });
    if senseless { Err(Refusal::new("AuthorizationQueryParametersError")) } else { Ok(()) }
}

/// The date in `<access key>/<date>/<region>/<service>/aws4_request`.
fn scope_date(text: &str) -> &str {
    text.split('/').nth(1).unwrap_or_default()
}

/// Whether this has the length of a date, or of one with a time, and other characters.
fn is_senseless(date: &str) -> bool {
    let is_mark = |at| date.len() == 16 && matches!(at, 8 | 15);
    matches!(date.len(), 8 | 16) && date.bytes().enumerate().any(|(at, byte)| !is_mark(at) && !byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::check;
    use http::Request;
    use http::request::Builder;

    fn code(request: Builder) -> Option<String> {
        check(&request.body(()).unwrap().into_parts().0).err().map(|refusal| refusal.code.into_owned())
    }

    fn authorization(date: &str) -> String {
        format!("AWS4-HMAC-SHA256 Credential=id/{date}/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=ab")
    }

    #[test]
    fn dates_pass() {
        let signed = Request::get("/b").header("x-amz-date", "20261115T120000Z");
        assert_eq!(code(signed.header("authorization", authorization("20261115"))), None);
        assert_eq!(code(Request::get("/b?X-Amz-Date=20261115T120000Z&X-Amz-Credential=id%2F20261115%2Fr")), None);
        assert_eq!(code(Request::get("/b")), None);
    }

    #[test]
    fn what_has_the_length_of_a_date_must_be_one() {
        for date in ["2026111 T120000Z", "20261115T12000.Z", "20261115T120%\u{e4}Z"] {
            assert_eq!(
                code(Request::get("/b").header("x-amz-date", date)).as_deref(),
                Some("InvalidRequest"),
                "{date}"
            );
        }
        let signed = Request::get("/b").header("authorization", authorization("2026-1-1"));
        assert_eq!(code(signed).as_deref(), Some("InvalidRequest"));
        for query in
            ["X-Amz-Date=20261115T12000%2BZ", "X-Amz-Credential=id/2026-1-1/r", "X-Amz-%44ate=+++++++++++++++Z"]
        {
            let refused = code(Request::get(format!("/b?{query}")));
            assert_eq!(refused.as_deref(), Some("AuthorizationQueryParametersError"), "{query}");
        }
    }
}
