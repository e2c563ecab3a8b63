//! What the outside asks of the process.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// All that is listened to. From the moment it is taken, none of it ends the process by itself.
pub(super) struct Signals {
    pub stop: Stop,
    pub hang_ups: Signal,
}

/// Being asked to stop, in one way or the other.
pub(super) struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub fn take() -> std::io::Result<Self> {
        let stop = Stop { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? };
        Ok(Self { stop, hang_ups: signal(SignalKind::hangup())? })
    }
}

impl Stop {
    /// Completes when the process is, or already was, asked to stop.
    pub async fn asked(mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
