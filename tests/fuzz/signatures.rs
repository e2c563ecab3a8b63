//! Signed requests that someone changed on the way: they are answered only where the signature still
//! covers everything they say.

use crate::door::Keeper;
use crate::mutate::{rng_of, tamper};
use crate::requests::{self, Wire};
use crate::sign;

pub fn target(door: &mut Keeper, input: &[u8]) {
    let Some(genuine) = requests::signed(door, input) else { return };
    let mut rng = rng_of(input);
    let mut bytes = genuine.write();
    for _ in 0..=rng.usize(..2) {
        tamper(&mut bytes, &mut rng);
    }
    let Some(wire) = Wire::read(&bytes) else { return };
    let answer = door.send(&wire);
    if !sign::is_genuine(&wire) {
        let status = answer.status.as_u16();
        assert!(status >= 400, "{status} for a forged {}", String::from_utf8_lossy(&bytes));
        assert!(!answer.changed, "a forged request changed something");
    }
    door.renew();
}
