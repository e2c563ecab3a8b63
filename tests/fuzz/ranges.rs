//! Ranges: as numbers against a calculation with wider integers, and as headers of a GET.

use s3o_model::range::{ByteRange, RangeSpec};

use crate::requests::{Wire, claimed};
use crate::s3_server::{BODY, S3Server};
use crate::sign;

pub fn target(server: &mut S3Server, input: &[u8]) {
    check_numbers(input);
    // Servers trim values, and a value that is not text cannot be signed.
    let Ok(text) = std::str::from_utf8(input).map(|text| text.trim_matches([' ', '\t'])) else { return };
    let Ok(value) = http::HeaderValue::from_bytes(text.as_bytes()) else { return };
    let mut wire = Wire::plain("GET /bucket/key", b"").expect("a request");
    wire.headers.insert("range", value);
    sign::in_header(&mut wire, None);
    let answer = server.send(&wire);
    let range = read(text);
    match answer.status.as_u16() {
        206 => {
            let header = answer.header("content-range").expect("a range");
            assert_eq!(answer.body, claimed(header));
            assert_eq!(Some(Some(&answer.body[..])), range.map(wanted), "{header}");
        }
        200 => {
            assert_eq!(answer.body, BODY);
            assert_eq!(answer.header("content-range"), None);
            assert_eq!(range, None, "a range was ignored");
        }
        416 => assert_eq!(range.map(wanted), Some(None), "a range with bytes was refused"),
        status => panic!("a range was answered with {status}"),
    }
}

/// The range of a header; None if the header is ignored.
fn read(text: &str) -> Option<RangeSpec> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse::<u64>().unwrap_or(u64::MAX))
    };
    let wide = |digits: &str| format!("{digits:0>width$}", width = text.len());
    match (number(first), number(last)) {
        (Some(_), Some(_)) if wide(last) < wide(first) => None,
        (Some(first), Some(last)) => Some(RangeSpec::From { first, last: Some(last) }),
        (Some(first), None) if last.is_empty() => Some(RangeSpec::From { first, last: None }),
        (None, Some(length)) if first.is_empty() => Some(RangeSpec::Suffix { length }),
        _ => None,
    }
}

fn wanted(range: RangeSpec) -> Option<&'static [u8]> {
    let size = BODY.len() as u64;
    let (first, last) = match range {
        RangeSpec::From { first, last } => (first, last.unwrap_or(u64::MAX).min(size - 1)),
        RangeSpec::Suffix { length } => (size - length.min(size), size - 1),
    };
    let index = |number| usize::try_from(number).expect("a small number");
    (first <= last && first < size).then(|| &BODY[index(first)..=index(last)])
}

fn check_numbers(input: &[u8]) {
    let mut numbers = input.chunks(8).map(|chunk| {
        let mut bytes = [0; 8];
        bytes[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(bytes) >> (chunk[0] % 64)
    });
    let mut next = || numbers.next().unwrap_or_default();
    let (first, last, size) = (next(), next(), next());
    let specs = [
        RangeSpec::From { first, last: Some(last) },
        RangeSpec::From { first, last: None },
        RangeSpec::Suffix { length: first },
    ];
    for spec in specs {
        let Ok(range) = spec.resolve(size) else { continue };
        assert!(range.length > 0 && u128::from(range.start) + u128::from(range.length) <= u128::from(size), "{spec:?}");
        let cut = range.overlap(0, size);
        assert_eq!(cut, Some(range), "{spec:?} of {size}");
        let half = size / 2;
        let halves = [range.overlap(0, half), range.overlap(half, size - half)];
        let together: u64 = halves.iter().flatten().map(|half: &ByteRange| half.length).sum();
        assert_eq!(together, range.length, "{spec:?} of {size}");
    }
}
