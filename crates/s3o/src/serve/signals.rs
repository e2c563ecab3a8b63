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

/// Installs a handler for SIGHUP, so that it does not end the process from now on. Call it before anything else, before the
/// runtime of the server starts its threads. Handler and stream outlive the short-lived runtime here: a signal that comes
/// before the server's own runtime is delivered there.
pub fn take_sighup() -> std::io::Result<Signal> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _entered = runtime.enter();
    signal(SignalKind::hangup())
}

impl Signals {
    /// Takes the signals that stop the process, beside the ones that reload it.
    pub fn take(hang_ups: Signal) -> std::io::Result<Self> {
        let stop = Stop { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? };
        Ok(Self { stop, hang_ups })
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
