//! A driver that can be misled: it forgets units, loses the answer to a commit, is away for some units, or promises leases
//! that nobody gave.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use s3o_catalog::unit::{Answer, Unit, Value};
use s3o_catalog::{Driver, DriverLayer, Error};

/// What is done to the units of one name.
pub enum Trick {
    /// They are said to be done, and are not.
    Forget,
    /// They fail, and nothing happens.
    Fail,
    /// They are done, and nobody is told; this happens before anybody can ask.
    LoseAnswer(BoxFuture<'static, ()>),
    /// They are not done, and nobody is told; this happens before anybody can ask.
    LoseUnit(BoxFuture<'static, ()>),
    /// The one number they answer is this much larger.
    Add(i64),
}

pub struct Misled {
    pub inner: Arc<dyn Driver>,
    tricks: Mutex<Vec<(&'static str, Trick)>>,
}

impl Misled {
    pub fn new(inner: Arc<dyn Driver>) -> Self {
        Self { inner, tricks: Mutex::default() }
    }

    /// Plays the trick on the next unit of that name.
    pub fn mislead(&self, unit: &'static str, trick: Trick) {
        self.tricks.lock().push((unit, trick));
    }

    fn trick_for(&self, unit: &str) -> Option<Trick> {
        let mut tricks = self.tricks.lock();
        let place = tricks.iter().position(|(name, _)| *name == unit)?;
        Some(tricks.remove(place).1)
    }
}

fn lost() -> Error {
    Error::Unknown("the connection broke".to_owned())
}

/// Adds to every lone number of the answers.
fn add(answers: &mut [Answer], more: i64) {
    for row in answers.iter_mut().flat_map(|answer| &mut answer.rows) {
        if let [Value::Int(number)] = row.0.as_mut_slice() {
            *number += more;
        }
    }
}

#[async_trait]
impl DriverLayer for Misled {
    fn inner(&self) -> &dyn Driver {
        self.inner.as_ref()
    }

    async fn on_write(&self, unit: Unit) -> Result<Vec<Answer>, Error> {
        match self.trick_for(unit.name) {
            None => self.inner.write(unit).await,
            Some(Trick::Forget) => Ok(vec![Answer::default(); unit.statements.len()]),
            Some(Trick::Fail) => Err(Error::Away("no connection".to_owned())),
            Some(Trick::LoseAnswer(meanwhile)) => {
                self.inner.write(unit).await?;
                meanwhile.await;
                Err(lost())
            }
            Some(Trick::LoseUnit(meanwhile)) => {
                meanwhile.await;
                Err(lost())
            }
            Some(Trick::Add(more)) => {
                let mut answers = self.inner.write(unit).await?;
                add(&mut answers, more);
                Ok(answers)
            }
        }
    }
}
