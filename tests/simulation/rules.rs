//! Lifecycle rules: while one is in force, the worker may delete its objects at any moment.

use s3o_model::clock::Timestamp;
use s3o_model::lifecycle::{Expiration, Filter, Form, Rule, Status};
use s3o_tests::harness::bucket;

use crate::client::SimulatedClient;
use crate::ledger::SMALL;

/// A rule that deletes everything below a prefix.
fn rule(prefix: &str) -> Rule {
    Rule {
        id: "rule".to_owned(),
        status: Status::Enabled,
        filter: Filter { prefix: Some(prefix.to_owned()), ..Filter::default() },
        form: Form::Plain,
        expiration: Some(Expiration::Date(Timestamp::from_millis(0))),
        abort_after_days: None,
    }
}

impl SimulatedClient {
    /// Sets or removes the rule. One client at a time, because the order of two concurrent changes is unknown.
    pub async fn change_rules(&self) {
        let Ok(_turn) = self.context.rules.try_lock() else { return };
        let prefix = self.draw(fastrand::Rng::bool).then(|| self.pick(&["a", "b/", "z"]));
        let rules: Vec<Rule> = prefix.map(rule).into_iter().collect();
        self.record(format_args!("rules for {prefix:?}"));
        let earlier = {
            let matching = SMALL.into_iter().filter(|key| prefix.is_some_and(|prefix| key.starts_with(prefix)));
            self.context.ledger().start_removals(matching)
        };
        let set = (!rules.is_empty()).then_some(rules.as_slice());
        let answer = self.send(self.engine.set_lifecycle(&bucket(), set)).await;
        self.record(format_args!("rules for {prefix:?}: {answer:?}"));
        if let Some(Ok(())) = answer {
            self.context.ledger().end_removals(earlier);
        }
    }
}
