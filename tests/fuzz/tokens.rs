//! Continuation tokens and markers: one that is answered leads exactly where it says.

use base64_simd::URL_SAFE_NO_PAD;

use crate::door::Keeper;
use crate::requests::Wire;
use crate::sign;

pub fn target(door: &mut Keeper, input: &[u8]) {
    let token = String::from_utf8_lossy(input);
    let asked = door.send(&list(&format!("&continuation-token={}", sign::query(&token))));
    let meant = URL_SAFE_NO_PAD.decode_to_vec(token.as_bytes()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let canonical = meant.filter(|after| !after.is_empty() && URL_SAFE_NO_PAD.encode_to_string(after) == token);
    let keys = |answer: &crate::door::Answer| answer.document().all("Key").map(str::to_owned).collect::<Vec<_>>();
    match canonical {
        // An empty token means none.
        None if token.is_empty() => assert_eq!(keys(&asked), keys(&door.send(&list("")))),
        Some(after) => {
            assert_eq!(asked.status, 200, "{token}");
            let straight = door.send(&list(&format!("&start-after={}", sign::query(&after))));
            assert_eq!(keys(&asked), keys(&straight), "{after:?}");
        }
        None => assert_eq!(asked.status, 400, "{token:?} was taken for a token"),
    }
    walk(door, token.len() % 5 + 1);
    let markers = format!("/bucket?uploads&key-marker={0}&upload-id-marker={0}", sign::query(&token));
    let answer = door.send(&Wire::signed(&format!("GET {markers}"), b""));
    assert!(answer.status.as_u16() < 500);
}

fn list(parameters: &str) -> Wire {
    Wire::signed(&format!("GET /bucket?list-type=2&encoding-type=url{parameters}"), b"")
}

/// Pages of any size, token after token, show every key once and in order.
fn walk(door: &mut Keeper, size: usize) {
    let whole = door.send(&list("")).document();
    let mut shown = Vec::new();
    let mut token = None;
    loop {
        let next =
            token.map_or_else(String::new, |token: String| format!("&continuation-token={}", sign::query(&token)));
        let page = door.send(&list(&format!("&max-keys={size}{next}"))).document();
        shown.extend(page.all("Key").map(str::to_owned));
        token = page.all("NextContinuationToken").next().map(str::to_owned);
        assert_eq!(page.only("IsTruncated"), token.is_some().to_string());
        if token.is_none() {
            break;
        }
    }
    assert_eq!(shown, whole.all("Key").collect::<Vec<_>>());
}
