//! The credential scope of a signature must name `s3` and the region of this server.
//!
//! The protocol library accepts any region. It also accepts the service `sts`, and reads part of the body before it
//! verifies such a signature.

use std::borrow::Cow;

use http::HeaderName;
use http::header::AUTHORIZATION;
use http::request::Parts;

use crate::s3::refusal::Refusal;
use crate::s3::url_encoding::parameters;

/// Response header that names the region of this server.
pub const REGION_HEADER: HeaderName = HeaderName::from_static("x-amz-bucket-region");
const SERVICE: &str = "s3";

/// Refuses signatures for another service or region, with S3's messages.
pub fn check(request: &Parts, region: &str) -> Result<(), Refusal> {
    for value in request.headers.get_all(AUTHORIZATION) {
        let text = String::from_utf8_lossy(value.as_bytes());
        let credential = text.split_once("Credential=").and_then(|(_, rest)| rest.split([',', ' ']).next());
        if let Some(wrong) = credential.and_then(|credential| fault(credential, region)) {
            let message = format!("The authorization header is malformed; {wrong}");
            return Err(Refusal::because("AuthorizationHeaderMalformed", message).with_header(REGION_HEADER, region));
        }
    }
    let mut credentials =
        parameters(request.uri.query().unwrap_or_default()).filter(|(name, _)| name == "X-Amz-Credential");
    match credentials.find_map(|(_, credential)| fault(&credential, region)) {
        Some(wrong) => {
            let message = format!("Error parsing the X-Amz-Credential parameter; {wrong}");
            let refusal = Refusal::because("AuthorizationQueryParametersError", message);
            Err(refusal.with_header(REGION_HEADER, region))
        }
        None => Ok(()),
    }
}

/// Error text if `<access key>/<date>/<region>/<service>/aws4_request` names another service or region. The library
/// refuses texts of any other form.
fn fault(credential: &str, region: &str) -> Option<Cow<'static, str>> {
    let mut parts = credential.rsplitn(5, '/');
    let (_, service, named, _, _) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    if service != SERVICE {
        return Some(format!("incorrect service {service:?}. This endpoint belongs to {SERVICE:?}.").into());
    }
    (named != region).then(|| format!("the region '{named}' is wrong; expecting '{region}'").into())
}

#[cfg(test)]
mod tests {
    use super::{REGION_HEADER, check};
    use crate::s3::refusal::Refusal;
    use http::Request;

    fn in_header(scope: &str) -> Option<Refusal> {
        let value = format!("AWS4-HMAC-SHA256 Credential=app/{scope}, SignedHeaders=host, Signature=b");
        let request = Request::get("/b/k").header("authorization", value).body(()).unwrap();
        check(&request.into_parts().0, "us-east-1").err()
    }

    fn in_query(scope: &str) -> Option<Refusal> {
        let uri = format!("/b/k?X-Amz-Credential=app%2F{}", scope.replace('/', "%2F"));
        check(&Request::get(uri).body(()).unwrap().into_parts().0, "us-east-1").err()
    }

    #[test]
    fn scope_of_this_server_passes() {
        for scope in ["20261115/us-east-1/s3/aws4_request", "nonsense"] {
            assert!(in_header(scope).is_none() && in_query(scope).is_none(), "{scope}");
        }
    }

    #[test]
    fn other_services_and_regions_are_refused_with_the_right_region() {
        for scope in ["20261115/us-east-1/sts/aws4_request", "20261115/eu-north-1/s3/aws4_request", "20261115//s3/x"] {
            let (header, query) = (in_header(scope).unwrap(), in_query(scope).unwrap());
            assert_eq!((&*header.code, header.status.as_u16()), ("AuthorizationHeaderMalformed", 400));
            assert_eq!((&*query.code, query.status.as_u16()), ("AuthorizationQueryParametersError", 400));
            assert_eq!(header.headers[REGION_HEADER], "us-east-1");
        }
        assert!(in_header("20261115/eu-north-1/s3/aws4_request").unwrap().message.contains("expecting 'us-east-1'"));
    }
}
