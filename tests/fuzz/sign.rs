//! Signature Version 4: signing as a client does, and a verification that is independent of the product.

use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderMap, HeaderValue, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use s3o_model::etag::hex;
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;
use time::macros::format_description;

use crate::requests::Wire;
use crate::s3_server::{KEY_ID, READER_ID, REGION, SECRET};

const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const PATH: &AsciiSet = &QUERY.remove(b'/');
/// Headers that the signature covers in another way, or that have no effect.
const EXEMPT: [&str; 3] = ["x-amz-content-sha256", "x-amz-date", "x-amz-user-agent"];
const SHA256: &str = "x-amz-content-sha256";

/// The current time in the format of signatures.
pub fn now() -> String {
    let form = format_description!("[year][month][day]T[hour][minute][second]Z");
    OffsetDateTime::now_utc().format(form).expect("a date")
}

pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Escapes a path as signatures do.
pub fn path(text: &str) -> String {
    utf8_percent_encode(text, PATH).to_string()
}

/// Escapes a name or value of a query as signatures do.
pub fn query(text: &str) -> String {
    utf8_percent_encode(text, QUERY).to_string()
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("keys have any length");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

/// Signs a text with the key of this day and region.
fn signature(date: &str, region: &str, text: &str) -> String {
    let day = date.get(..8).unwrap_or_default();
    let key = [day, region, "s3", "aws4_request"]
        .iter()
        .fold(format!("AWS4{SECRET}").into_bytes(), |key, piece| mac(&key, piece));
    hex(&mac(&key, text))
}

fn scope(date: &str) -> String {
    format!("{}/{REGION}/s3/aws4_request", date.get(..8).unwrap_or_default())
}

/// The signature of a chunk or, with another kind and hash, of a trailer.
pub fn chunk_signature(kind: &str, date: &str, previous: &str, hashes: &str) -> String {
    let text = format!("{kind}\n{date}\n{}\n{previous}\n{hashes}", scope(date));
    signature(date, REGION, &text)
}

fn decoded(piece: &str) -> String {
    percent_decode_str(&piece.replace('+', " ")).decode_utf8_lossy().into_owned()
}

fn canonical_query(uri: &Uri) -> String {
    let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let mut pairs: Vec<_> = pairs
        .map(|(name, value)| (query(&decoded(name)), query(&decoded(value))))
        .filter(|(name, _)| name != "X-Amz-Signature")
        .collect();
    pairs.sort_by(|one, other| one.0.cmp(&other.0));
    pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

fn canonical_headers(headers: &HeaderMap, names: &[String]) -> String {
    let words = |value: &HeaderValue| {
        String::from_utf8_lossy(value.as_bytes()).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let mut lines = String::new();
    for name in names {
        let values: Vec<_> = headers.get_all(name).iter().map(words).collect();
        lines.extend([name.as_str(), ":", &values.join(","), "\n"]);
    }
    lines
}

fn request_signature(
    wire: &Wire,
    raw_path: &str,
    names: &[String],
    payload: &str,
    (date, region): (&str, &str),
) -> String {
    let (query, lines) = (canonical_query(&wire.uri), canonical_headers(&wire.headers, names));
    let request = format!("{}\n{raw_path}\n{query}\n{lines}\n{}\n{payload}", wire.method, names.join(";"));
    let day = date.get(..8).unwrap_or_default();
    let text = format!("AWS4-HMAC-SHA256\n{date}\n{day}/{region}/s3/aws4_request\n{}", sha256(request.as_bytes()));
    signature(date, region, &text)
}

fn canonical_path(uri: &Uri) -> String {
    path(&percent_decode_str(uri.path()).decode_utf8_lossy())
}

fn names_to_sign(headers: &HeaderMap) -> Vec<String> {
    let mut names: Vec<_> = headers.keys().map(|name| name.as_str().to_owned()).collect();
    // The length of a chunked body is unknown when the request is signed.
    names.retain(|name| name != "authorization" && name != "content-length");
    names.sort();
    names
}

fn set(headers: &mut HeaderMap, name: &'static str, value: &str) {
    headers.insert(name, value.parse().expect("a header"));
}

/// Signs every header of the request in the `Authorization` header; returns the signature.
pub fn in_header(wire: &mut Wire, payload: Option<&str>) -> String {
    in_header_as(KEY_ID, wire, payload)
}

/// Signs with another access key, which has the same secret.
pub fn in_header_as(key_id: &str, wire: &mut Wire, payload: Option<&str>) -> String {
    let date = now();
    let payload = payload.map_or_else(|| sha256(&wire.body), str::to_owned);
    wire.headers.entry("host").or_insert(HeaderValue::from_static("s3.test"));
    set(&mut wire.headers, "x-amz-date", &date);
    set(&mut wire.headers, SHA256, &payload);
    let names = names_to_sign(&wire.headers);
    let signature = request_signature(wire, &canonical_path(&wire.uri), &names, &payload, (&date, REGION));
    let (scope, names) = (scope(&date), names.join(";"));
    let value = format!("AWS4-HMAC-SHA256 Credential={key_id}/{scope}, SignedHeaders={names}, Signature={signature}");
    set(&mut wire.headers, "authorization", &value);
    signature
}

/// Signs in the query, as in presigned URLs.
pub fn in_query(wire: &mut Wire) {
    let date = now();
    wire.headers.entry("host").or_insert(HeaderValue::from_static("s3.test"));
    let names = names_to_sign(&wire.headers);
    let own = wire.uri.query().map_or_else(String::new, |query| format!("{query}&"));
    let unsigned = format!(
        "{}?{own}X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={}&X-Amz-Date={date}&X-Amz-Expires=600\
         &X-Amz-SignedHeaders={}",
        wire.uri.path(),
        query(&format!("{KEY_ID}/{}", scope(&date))),
        query(&names.join(";"))
    );
    let Ok(uri) = unsigned.parse() else { return };
    wire.uri = uri;
    let path = canonical_path(&wire.uri);
    let signature = request_signature(wire, &path, &names, "UNSIGNED-PAYLOAD", (&date, REGION));
    if let Ok(uri) = format!("{unsigned}&X-Amz-Signature={signature}").parse() {
        wire.uri = uri;
    }
}

/// Whether the signature of the request is valid and covers everything that the server uses.
pub fn is_genuine(wire: &Wire) -> bool {
    let stated = in_authorization(&wire.headers).or_else(|| in_parameters(&wire.uri));
    let Some(stated) = stated else { return false };
    let Some((date, payload)) = stated.date_and_payload(wire) else { return false };
    let mut scope = stated.credential.split('/');
    let (key, day, region) = (scope.next(), scope.next(), scope.next().unwrap_or_default());
    if !key.is_some_and(|key| [KEY_ID, READER_ID].contains(&key)) || day != date.get(..8) || scope.next() != Some("s3")
    {
        return false;
    }
    let meaningful = |name: &str| name.starts_with("x-amz-") && !EXEMPT.contains(&name);
    if wire
        .headers
        .keys()
        .any(|name| meaningful(name.as_str()) && !stated.names.iter().any(|signed| signed == name.as_str()))
    {
        return false;
    }
    // A path with characters that should have been escaped may be signed unescaped.
    [canonical_path(&wire.uri), wire.uri.path().to_owned()]
        .iter()
        .any(|path| request_signature(wire, path, &stated.names, &payload, (&date, region)) == stated.signature)
}

struct SignatureFields {
    credential: String,
    names: Vec<String>,
    signature: String,
    presigned_at: Option<String>,
}

impl SignatureFields {
    fn date_and_payload(&self, wire: &Wire) -> Option<(String, String)> {
        if let Some(date) = &self.presigned_at {
            return Some((date.clone(), "UNSIGNED-PAYLOAD".to_owned()));
        }
        let header = |name: &str| Some(wire.headers.get(name)?.to_str().ok()?.trim().to_owned());
        let payload = header(SHA256)?;
        let fits = payload == "UNSIGNED-PAYLOAD" || payload.starts_with("STREAMING-") || payload == sha256(&wire.body);
        let fits = fits || ignores_body(wire);
        fits.then_some((header("x-amz-date")?, payload))
    }
}

/// Whether the server does not read the body of such a request.
fn ignores_body(wire: &Wire) -> bool {
    let starts_upload = wire.uri.query().is_some_and(|query| query.starts_with("uploads"));
    !matches!(wire.method.as_str(), "PUT" | "POST") || starts_upload || wire.headers.contains_key("x-amz-copy-source")
}

fn in_authorization(headers: &HeaderMap) -> Option<SignatureFields> {
    let text = headers.get("authorization")?.to_str().ok()?;
    text.strip_prefix("AWS4-HMAC-SHA256")?;
    let field = |name: &str| Some(text.split_once(name)?.1.split([',', ' ', '\t']).next()?.to_owned());
    Some(SignatureFields {
        credential: field("Credential=")?,
        names: field("SignedHeaders=")?.split(';').map(str::to_owned).collect(),
        signature: field("Signature=")?,
        presigned_at: None,
    })
}

fn in_parameters(uri: &Uri) -> Option<SignatureFields> {
    let pairs: Vec<_> = uri.query()?.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, ""))).collect();
    let field = |wanted: &str| {
        let found = pairs.iter().find(|(name, _)| decoded(name) == wanted);
        found.map(|(_, value)| decoded(value))
    };
    Some(SignatureFields {
        credential: field("X-Amz-Credential")?,
        names: field("X-Amz-SignedHeaders")?.split(';').map(str::to_owned).collect(),
        signature: field("X-Amz-Signature")?,
        presigned_at: Some(field("X-Amz-Date")?),
    })
}
