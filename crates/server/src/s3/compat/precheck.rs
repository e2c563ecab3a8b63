//! Refuses requests before the protocol library sees them.

use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method};

use super::{credential_scope, signing_dates};
use crate::s3::refusal::Refusal;

/// Limit for the names and values of all headers of a request together.
const HEADER_BYTES_MAX: usize = 32 * 1024;
const MULTIPART: &[u8] = b"multipart/";

/// Refuses requests that the library would answer wrongly. The order decides which error a client gets.
pub fn check(request: &Parts, region: &str) -> Result<(), Refusal> {
    check_host(&request.headers)?;
    check_size(&request.headers)?;
    check_method(request)?;
    check_signature_version(request)?;
    signing_dates::check(request)?;
    credential_scope::check(request, region)?;
    check_session_token(&request.headers)?;
    check_decoded_length(&request.headers)
}

fn check_host(headers: &HeaderMap) -> Result<(), Refusal> {
    match headers.get_all(HOST).iter().count() {
        1 => Ok(()),
        0 => Err(Refusal::because("InvalidRequest", "Missing required header for this request: Host")),
        _ => Err(Refusal::because("InvalidRequest", "The header Host must not be repeated")),
    }
}

fn check_size(headers: &HeaderMap) -> Result<(), Refusal> {
    let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if bytes > HEADER_BYTES_MAX { Err(Refusal::new("RequestHeaderSectionTooLarge")) } else { Ok(()) }
}

fn check_method(request: &Parts) -> Result<(), Refusal> {
    match request.method {
        Method::OPTIONS => Err(Refusal::new("AccessForbidden")),
        Method::POST if request.headers.get_all(CONTENT_TYPE).iter().any(is_multipart) => {
            Err(Refusal::because("NotImplemented", "POST forms are not implemented"))
        }
        Method::GET | Method::HEAD | Method::PUT | Method::POST | Method::DELETE => Ok(()),
        _ => Err(Refusal::new("MethodNotAllowed")),
    }
}

/// True for every `multipart/...` media type, in any letter case, as the library compares them. The library reads a
/// whole form into memory before it verifies the signature. No S3 request uses another multipart type.
fn is_multipart(content_type: &HeaderValue) -> bool {
    let value = content_type.as_bytes().trim_ascii_start();
    value.get(..MULTIPART.len()).is_some_and(|start| start.eq_ignore_ascii_case(MULTIPART))
}

/// Refuses all but version 4 signatures. Version 2 covers too little of a request, and the library takes any other
/// algorithm for version 4, although the signature does not cover that word.
fn check_signature_version(request: &Parts) -> Result<(), Refusal> {
    let query = request.uri.query().unwrap_or_default();
    let in_query = query.split('&').any(|pair| pair.starts_with("Signature="));
    let is_other = |value: &HeaderValue| {
        value.as_bytes().split(u8::is_ascii_whitespace).next() != Some(b"AWS4-HMAC-SHA256".as_slice())
    };
    if in_query || request.headers.get(AUTHORIZATION).is_some_and(is_other) {
        let message = "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256.";
        return Err(Refusal::because("InvalidRequest", message));
    }
    Ok(())
}

/// Refuses session tokens: temporary credentials do not exist here, so the token cannot belong to the signer.
fn check_session_token(headers: &HeaderMap) -> Result<(), Refusal> {
    let is_given = |name: &&str| headers.get_all(*name).iter().any(|value| !value.is_empty());
    match ["x-amz-security-token", "x-amz-s3session-token"].iter().find(|name| is_given(name)) {
        Some(name) => Err(Refusal::because("InvalidToken", format!("{name}: session tokens are not supported"))),
        None => Ok(()),
    }
}

fn check_decoded_length(headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(value) = headers.get("x-amz-decoded-content-length") else { return Ok(()) };
    let valid =
        value.to_str().is_ok_and(|text| text.bytes().all(|b| b.is_ascii_digit()) && text.parse::<i64>().is_ok());
    if valid {
        Ok(())
    } else {
        Err(Refusal::because("InvalidArgument", "x-amz-decoded-content-length is not a length"))
    }
}

#[cfg(test)]
mod tests {
    use super::check;
    use http::Request;
    use http::request::{Builder, Parts};

    fn parts(builder: Builder) -> Parts {
        builder.body(()).unwrap().into_parts().0
    }

    fn code(builder: Builder) -> Option<String> {
        check(&parts(builder.header("host", "x")), "us-east-1").err().map(|refusal| refusal.code.into_owned())
    }

    #[test]
    fn request_needs_exactly_one_host() {
        let without = parts(Request::get("/b/k"));
        assert_eq!(check(&without, "r").unwrap_err().status.as_u16(), 400);
        assert_eq!(code(Request::get("/b/k").header("host", "y")).as_deref(), Some("InvalidRequest"));
    }

    #[test]
    fn ordinary_requests_pass() {
        assert_eq!(code(Request::get("/b/k")), None);
        assert_eq!(code(Request::put("/b/k").header("x-amz-decoded-content-length", "12")), None);
    }

    #[test]
    fn multipart_forms_are_refused_in_any_letter_case() {
        for media in ["multipart/form-data", "Multipart/Form-Data", "MULTIPART/FORM-DATA", " multipart/Form-data"] {
            let form = Request::post("/b").header("content-type", format!("{media}; boundary=x"));
            assert_eq!(code(form).as_deref(), Some("NotImplemented"), "{media}");
        }
        let second = Request::post("/b").header("content-type", "text/xml").header("content-type", "Multipart/Mixed");
        assert_eq!(code(second).as_deref(), Some("NotImplemented"));
        assert_eq!(code(Request::put("/b/k").header("content-type", "multipart/form-data")), None);
    }

    #[test]
    fn each_refusal_has_its_code() {
        let large = "x".repeat(40_000);
        assert_eq!(code(Request::options("/b/k")).as_deref(), Some("AccessForbidden"));
        assert_eq!(code(Request::patch("/b/k")).as_deref(), Some("MethodNotAllowed"));
        assert_eq!(code(Request::get("/b").header("x-large", large)).as_deref(), Some("RequestHeaderSectionTooLarge"));
        assert_eq!(code(Request::get("/b/k").header("authorization", "AWS a:b")).as_deref(), Some("InvalidRequest"));
        for word in ["SignedHeaders=x-amz-copy-source,", "AWS4-H\u{e4}MAC-SHA256", "AWS4-HMAC-SHA256,"] {
            let value = format!("{word} Credential=a/20261115/r/s3/aws4_request, SignedHeaders=host, Signature=b");
            let request = Request::get("/b/k").header("authorization", value);
            assert_eq!(code(request).as_deref(), Some("InvalidRequest"), "{word}");
        }
        assert_eq!(code(Request::get("/b/k?AWSAccessKeyId=a&Signature=b")).as_deref(), Some("InvalidRequest"));
        for name in ["x-amz-security-token", "x-amz-s3session-token"] {
            assert_eq!(code(Request::get("/b/k").header(name, "token")).as_deref(), Some("InvalidToken"), "{name}");
            assert_eq!(code(Request::get("/b/k").header(name, "")), None, "{name}");
        }
        for length in ["-1", "12x", "", "99999999999999999999"] {
            let request = Request::put("/b/k").header("x-amz-decoded-content-length", length);
            assert_eq!(code(request).as_deref(), Some("InvalidArgument"), "{length}");
        }
    }
}
