//! What the kernel says of the wall clock.

use s3o_workers::KernelClock;

/// The status bit of a clock that nothing disciplines.
const UNSYNCHRONISED: i32 = 0x40;
/// The state of a clock that is not synchronised.
const TIME_ERROR: i32 = 5;

/// The kernel of this machine.
pub struct ThisKernel;

impl KernelClock for ThisKernel {
    #[cfg(target_os = "linux")]
    fn is_synchronised(&self) -> bool {
        // Without modes it only reads.
        let mut answer = rtime_clock::adjtime::Timex::new();
        rtime_clock::adjtime::adjtimex(&mut answer)
            .is_ok_and(|state| state != TIME_ERROR && answer.0.status & UNSYNCHRONISED == 0)
    }

    #[cfg(not(target_os = "linux"))]
    fn is_synchronised(&self) -> bool {
        false
    }
}
