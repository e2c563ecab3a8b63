//! Signed requests with mutations: the server accepts them only if the signature still covers everything it uses.

use crate::mutate::{rng_of, tamper};
use crate::requests::{self, Wire};
use crate::s3_server::S3Server;
use crate::sign;

pub fn target(server: &mut S3Server, input: &[u8]) {
    let Some(genuine) = requests::signed(server, input) else { return };
    let mut rng = rng_of(input);
    let mut bytes = genuine.write();
    for _ in 0..=rng.usize(..2) {
        tamper(&mut bytes, &mut rng);
    }
    let Some(wire) = Wire::read(&bytes) else { return };
    let answer = server.send(&wire);
    if !sign::is_genuine(&wire) {
        let status = answer.status.as_u16();
        assert!(status >= 400, "{status} for a forged {}", String::from_utf8_lossy(&bytes));
        assert!(!answer.changed, "a forged request changed something");
    }
    server.renew();
}
