//! Continuation tokens and markers: an accepted token continues exactly after its key.

use base64_simd::URL_SAFE_NO_PAD;

use crate::requests::Wire;
use crate::s3_server::S3Server;
use crate::sign;

pub fn target(server: &mut S3Server, input: &[u8]) {
    let token = String::from_utf8_lossy(input);
    let answer = server.send(&list(&format!("&continuation-token={}", sign::query(&token))));
    let decoded = URL_SAFE_NO_PAD.decode_to_vec(token.as_bytes()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let canonical = decoded.filter(|after| !after.is_empty() && URL_SAFE_NO_PAD.encode_to_string(after) == token);
    let keys =
        |answer: &crate::s3_server::CheckedAnswer| answer.document().all("Key").map(str::to_owned).collect::<Vec<_>>();
    match canonical {
        // An empty token counts as no token.
        None if token.is_empty() => assert_eq!(keys(&answer), keys(&server.send(&list("")))),
        Some(after) => {
            assert_eq!(answer.status, 200, "{token}");
            let expected = server.send(&list(&format!("&start-after={}", sign::query(&after))));
            assert_eq!(keys(&answer), keys(&expected), "{after:?}");
        }
        None => assert_eq!(answer.status, 400, "{token:?} was accepted as a token"),
    }
    walk(server, token.len() % 5 + 1);
    let markers = format!("/bucket?uploads&key-marker={0}&upload-id-marker={0}", sign::query(&token));
    let answer = server.send(&Wire::signed(&format!("GET {markers}"), b""));
    assert!(answer.status.as_u16() < 500);
}

fn list(parameters: &str) -> Wire {
    Wire::signed(&format!("GET /bucket?list-type=2&encoding-type=url{parameters}"), b"")
}

/// Pages of any size contain every key once and in order.
fn walk(server: &mut S3Server, size: usize) {
    let whole = server.send(&list("")).document();
    let mut shown = Vec::new();
    let mut token = None;
    loop {
        let next =
            token.map_or_else(String::new, |token: String| format!("&continuation-token={}", sign::query(&token)));
        let page = server.send(&list(&format!("&max-keys={size}{next}"))).document();
        shown.extend(page.all("Key").map(str::to_owned));
        token = page.all("NextContinuationToken").next().map(str::to_owned);
        assert_eq!(page.only("IsTruncated"), token.is_some().to_string());
        if token.is_none() {
            break;
        }
    }
    assert_eq!(shown, whole.all("Key").collect::<Vec<_>>());
}
