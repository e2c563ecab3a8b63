//! Second check of keys that seemed wrong in the first one.

use std::collections::HashMap;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use s3o_backend::{Backend, Probe, SharedBackend};
use s3o_model::verify::{Invariant, KeyDoubt, NamingRow, Ruling, Seen, rule};

use super::Verifier;
use super::report::{BackendHeld, VerifyReport};
use crate::Error;

/// Number of concurrent probes.
const PROBES: usize = 8;

const NAMED: &str = "a row names the bytes under each s3o key";
const THERE: &str = "the bytes of a location exist";
const WHOLE: &str = "the bytes of a location have the recorded size";

/// Groups rows by the key that they name.
pub(super) fn by_key(rows: Vec<NamingRow>) -> HashMap<String, Vec<NamingRow>> {
    let mut found: HashMap<String, Vec<NamingRow>> = HashMap::new();
    for row in rows {
        found.entry(row.physical_key.clone()).or_default().push(row);
    }
    found
}

/// Adds the checks to the report, so that they also appear without violations.
pub(super) fn register_checks(report: &mut VerifyReport) {
    for (invariant, what) in [(Invariant::I3, NAMED), (Invariant::I2, THERE), (Invariant::I1, WHOLE)] {
        report.note(invariant, what, []);
    }
}

impl Verifier {
    /// Probes doubtful keys, then reads their rows again; what is still wrong is a violation.
    pub(super) async fn recheck(
        &self,
        backend: &SharedBackend,
        doubted: Vec<(String, KeyDoubt)>,
        held: &mut BackendHeld,
        report: &mut VerifyReport,
    ) -> Result<(), Error> {
        if doubted.is_empty() {
            return Ok(());
        }
        let seen = probe_all(backend.as_ref(), &doubted).await;
        let keys: Vec<&str> = doubted.iter().map(|(key, _)| key.as_str()).collect();
        let rows = by_key(self.parts.verification.naming_rows(backend.name(), &keys).await?);
        for ((key, doubt), seen) in doubted.iter().zip(seen) {
            if let Seen::Present(size_bytes) = seen {
                held.objects += 1;
                held.bytes += size_bytes;
            }
            let naming = rows.get(key).map(Vec::as_slice).unwrap_or_default();
            add_ruling(backend, key, rule(*doubt, seen, naming), report);
        }
        Ok(())
    }
}

fn add_ruling(backend: &SharedBackend, key: &str, ruling: Ruling, report: &mut VerifyReport) {
    let location = format!("backend {}: {key}", backend.name());
    match ruling {
        Ruling::Agrees => {}
        Ruling::Stray(size) => report.note(Invariant::I3, NAMED, [format!("{location}, {size} bytes")]),
        Ruling::Gone => report.note(Invariant::I2, THERE, [location]),
        Ruling::WrongSize { expected, found } => {
            report.note(Invariant::I1, WHOLE, [format!("{location}, {found} of {expected} bytes")]);
        }
        Ruling::Unknown(why) => report.leave_out(location, &why),
    }
}

async fn probe_all(backend: &dyn Backend, doubted: &[(String, KeyDoubt)]) -> Vec<Seen> {
    let probes: Vec<_> = doubted.iter().map(|(key, _)| boxed_probe(backend, key)).collect();
    futures_util::stream::iter(probes).buffered(PROBES).collect().await
}

/// The current object under a key.
pub(super) fn boxed_probe<'a>(backend: &'a dyn Backend, key: &'a str) -> BoxFuture<'a, Seen> {
    Box::pin(async move {
        match backend.probe(key.into()).await {
            Probe::Present(present) => Seen::Present(present.size_bytes),
            Probe::Absent => Seen::Absent,
            Probe::Unknown(why) => Seen::Unknown(why),
        }
    })
}
