//! Lifecycle rules: while one is in force, what it means may go at any moment; once another answer was given, it stays.

use s3o_model::clock::Timestamp;
use s3o_model::lifecycle::{Expiration, Filter, Form, Rule, Status};

use crate::client::{Client, bucket};
use crate::ledger::SMALL;

/// A rule that takes everything below a prefix for due.
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

impl Client {
    /// Sets a rule, or takes the one that is in force away. One client at a time: which of two came last nobody knows.
    pub async fn change_rules(&self) {
        let Ok(_turn) = self.town.rules.try_lock() else { return };
        let prefix = self.draw(fastrand::Rng::bool).then(|| self.pick(&["a", "b/", "z"]));
        let rules: Vec<Rule> = prefix.map(rule).into_iter().collect();
        self.tell(format_args!("rules for {prefix:?}"));
        let earlier = {
            let meant = SMALL.into_iter().filter(|key| prefix.is_some_and(|prefix| key.starts_with(prefix)));
            self.town.ledger().start_removals(meant)
        };
        let set = (!rules.is_empty()).then_some(rules.as_slice());
        let answer = self.send(self.engine.set_lifecycle(&bucket(), set)).await;
        self.tell(format_args!("rules for {prefix:?}: {answer:?}"));
        if let Some(Ok(())) = answer {
            self.town.ledger().end_removals(earlier);
        }
    }
}
