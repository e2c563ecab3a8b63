//! Mutates examples: bytes, numbers, lines, escapes, lengths.

use fastrand::Rng;

/// Bytes with a meaning in some parser.
const SPECIAL: &[u8] = b"\0\t\n\r \"#%&'()*+,-./0:;<=>?@[]_{}~\x01\x7f\x80\xc3\xef\xff";
/// Numbers at and beyond limits.
const NUMBERS: [&str; 20] = [
    "0",
    "1",
    "-1",
    "00",
    "+1",
    "4",
    "5",
    "10000",
    "10001",
    "255",
    "65536",
    "2147483647",
    "2147483648",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "1e3",
    "0x10",
];
/// Tokens with a meaning in some parser.
const WORDS: [&str; 26] = [
    "\r\n",
    "\r\n\r\n",
    "0\r\n\r\n",
    "%00",
    "%2F",
    "%2e%2e",
    "%FF",
    "%",
    "%zz",
    "+",
    "..",
    "//",
    "&amp;",
    "&#0;",
    "&#x1;",
    "<![CDATA[",
    "]]>",
    "<!--",
    "<?x ?>",
    "<!DOCTYPE x [<!ENTITY a \"b\">]>",
    "null",
    "*",
    "\"\"",
    "W/",
    "\u{feff}",
    "\u{10ffff}",
];
/// Maximum size of an input.
const BYTES_MAX: usize = 32 * 1024;

/// Generates inputs from examples; equal seeds generate equal inputs.
pub struct Mutator {
    examples: Vec<Vec<u8>>,
}

impl Mutator {
    pub fn new(examples: Vec<Vec<u8>>) -> Self {
        Self { examples }
    }

    /// The input of a seed: an example with up to four mutations, or rarely random bytes.
    pub fn input(&self, seed: u64) -> Vec<u8> {
        let mut rng = Rng::with_seed(seed);
        if rng.u8(..) < 8 {
            let length = rng.usize(..200);
            return std::iter::repeat_with(|| rng.u8(..)).take(length).collect();
        }
        let mut bytes = self.example(&mut rng).to_vec();
        let changes = rng.usize(..5);
        for _ in 0..changes {
            self.change(&mut bytes, &mut rng);
        }
        bytes.truncate(BYTES_MAX);
        bytes
    }

    fn example(&self, rng: &mut Rng) -> &[u8] {
        &self.examples[rng.usize(..self.examples.len())]
    }

    fn change(&self, bytes: &mut Vec<u8>, rng: &mut Rng) {
        match rng.u8(..10) {
            0 => splice_lines(bytes, self.example(rng), rng),
            1 => {
                let other = self.example(rng);
                let piece = other[span(other.len(), rng)].to_vec();
                let place = span(bytes.len(), rng);
                bytes.splice(place, piece);
            }
            _ => tamper(bytes, rng),
        }
    }
}

/// One mutation that needs no other example.
pub fn tamper(bytes: &mut Vec<u8>, rng: &mut Rng) {
    match rng.u8(..12) {
        0 => edit(bytes, rng, |byte, rng| byte ^ (1 << rng.u8(..8))),
        1 => edit(bytes, rng, |_, rng| SPECIAL[rng.usize(..SPECIAL.len())]),
        2 => edit(bytes, rng, |byte, _| if byte.is_ascii_alphabetic() { byte ^ 0x20 } else { byte.wrapping_add(1) }),
        3 => insert(bytes, &[SPECIAL[rng.usize(..SPECIAL.len())]], rng),
        4 => insert(bytes, WORDS[rng.usize(..WORDS.len())].as_bytes(), rng),
        5 => drop(bytes.drain(span(bytes.len(), rng))),
        6 => {
            let piece = bytes[span(bytes.len(), rng)].to_vec();
            insert(bytes, &piece, rng);
        }
        7 | 8 => change_number(bytes, rng),
        9 => change_lines(bytes, rng),
        10 => escape_byte(bytes, rng),
        _ => lengthen(bytes, rng),
    }
}

/// A random range, mostly of at most eight bytes.
fn span(length: usize, rng: &mut Rng) -> std::ops::Range<usize> {
    let start = rng.usize(..=length);
    let longest = if rng.u8(..4) == 0 { length } else { 8 };
    start..(start + rng.usize(..=longest)).min(length)
}

fn edit(bytes: &mut [u8], rng: &mut Rng, change: impl Fn(u8, &mut Rng) -> u8) {
    if !bytes.is_empty() {
        let at = rng.usize(..bytes.len());
        bytes[at] = change(bytes[at], rng);
    }
}

fn insert(bytes: &mut Vec<u8>, piece: &[u8], rng: &mut Rng) {
    let at = rng.usize(..=bytes.len());
    bytes.splice(at..at, piece.iter().copied());
}

fn change_number(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let digit = |byte: &u8| byte.is_ascii_digit();
    let starts: Vec<usize> =
        (0..bytes.len()).filter(|&at| digit(&bytes[at]) && (at == 0 || !digit(&bytes[at - 1]))).collect();
    let Some(&start) = rng.choice(&starts) else { return };
    let length = bytes[start..].iter().take_while(|byte| digit(byte)).count();
    bytes.splice(start..start + length, NUMBERS[rng.usize(..NUMBERS.len())].bytes());
}

fn change_lines(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let mut lines: Vec<Vec<u8>> = bytes.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    let (one, other) = (rng.usize(..lines.len()), rng.usize(..lines.len()));
    match rng.u8(..3) {
        0 => lines.swap(one, other),
        1 => drop(lines.remove(one)),
        _ => lines.insert(other, lines[one].clone()),
    }
    *bytes = lines.join(&b'\n');
}

fn splice_lines(bytes: &mut Vec<u8>, other: &[u8], rng: &mut Rng) {
    let mut lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    let others: Vec<&[u8]> = other.split(|byte| *byte == b'\n').collect();
    lines.insert(rng.usize(..=lines.len()), others[rng.usize(..others.len())]);
    *bytes = lines.join(&b'\n');
}

fn escape_byte(bytes: &mut Vec<u8>, rng: &mut Rng) {
    if !bytes.is_empty() {
        let at = rng.usize(..bytes.len());
        let escaped = format!("%{:02X}", bytes[at]);
        bytes.splice(at..=at, escaped.bytes());
    }
}

fn lengthen(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let piece = bytes[span(bytes.len(), rng)].to_vec();
    let times = [2, 11, 51, 129, 257, 1025][rng.usize(..6)];
    if piece.len() * times <= BYTES_MAX {
        insert(bytes, &piece.repeat(times), rng);
    }
}

/// A generator that is seeded by the input.
pub fn rng_of(input: &[u8]) -> Rng {
    let hash = input
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    Rng::with_seed(hash)
}
