//! Operations on prefixes: deletes to trash, restores and purges.

use std::time::Duration;

use s3o_catalog::PrefixOperationKind;
use s3o_engine::{Error, PrefixRefused, PrefixRequest};
use s3o_tests::harness::bucket;

use crate::client::SimulatedClient;
use crate::ledger::SMALL;

const KINDS: [PrefixOperationKind; 3] =
    [PrefixOperationKind::Rm, PrefixOperationKind::Restore, PrefixOperationKind::Purge];

/// Longer than a simulation, in which the clock jumps.
const RETENTION: Duration = Duration::from_hours(24 * 365);

impl SimulatedClient {
    /// Runs an operation on the keys of a prefix. One client at a time, so that its end is known.
    pub async fn operate_on_prefix(&self) {
        let Ok(_turn) = self.context.prefixes.try_lock() else { return };
        let prefix = self.pick(&["a", "b/", "b/c", "z"]);
        let kind = self.draw(|rng| KINDS[rng.usize(..KINDS.len())]);
        self.record(format_args!("{} of prefix {prefix}", kind.as_str()));
        if kind != PrefixOperationKind::Purge {
            let matching = SMALL.into_iter().filter(|key| key.starts_with(prefix));
            self.context.ledger().start_prefix_operation(matching, kind == PrefixOperationKind::Restore);
        }
        let answer = self.send(self.run(kind, prefix)).await;
        self.record(format_args!("{} of prefix {prefix}: {answer:?}", kind.as_str()));
        self.context.journal.count(kind.as_str());
        // A client that disconnected leaves a task behind.
        let has_ended = self.engine.tasks().count() == 0
            && self.engine.prefix_operations().await.is_ok_and(|running| running.is_empty());
        if has_ended {
            self.context.ledger().end_prefix_operations();
        }
    }

    async fn run(&self, kind: PrefixOperationKind, prefix: &str) -> Result<u64, Error> {
        let request = PrefixRequest { kind, bucket: bucket(), prefix: prefix.to_owned(), retention: RETENTION };
        match self.engine.run_prefix_operation(request, |_| {}).await {
            Ok((_, counts)) => Ok(counts.objects),
            Err(PrefixRefused::Busy(_)) => Err(Error::Conflict),
            Err(PrefixRefused::Interrupted(why)) => Err(Error::Away(why)),
            Err(PrefixRefused::Failed(error)) => Err(error),
        }
    }
}
