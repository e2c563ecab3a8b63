//! A driver that drops units, loses the answer to a commit, fails some units, or reports a longer lease than the
//! catalog granted.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use s3o_catalog::unit::{Answer, Unit, Value};
use s3o_catalog::{Driver, DriverLayer, Error};

/// A fault for the next unit of one name.
pub enum UnitFault {
    /// Reported as committed, but not executed.
    Drop,
    /// Fails without being executed.
    Fail,
    /// Committed, but the answer is lost; the future runs before the caller can query the outcome.
    LoseAnswer(BoxFuture<'static, ()>),
    /// Not committed, and the answer is lost; the future runs before the caller can query the outcome.
    LoseUnit(BoxFuture<'static, ()>),
    /// Committed; the one number in the answer is increased by this.
    Add(i64),
}

pub struct FaultyDriver {
    pub inner: Arc<dyn Driver>,
    faults: Mutex<Vec<(&'static str, UnitFault)>>,
}

impl FaultyDriver {
    pub fn new(inner: Arc<dyn Driver>) -> Self {
        Self { inner, faults: Mutex::default() }
    }

    /// Injects a fault into the next unit of that name.
    pub fn inject(&self, unit: &'static str, fault: UnitFault) {
        self.faults.lock().push((unit, fault));
    }

    fn take_fault(&self, unit: &str) -> Option<UnitFault> {
        let mut faults = self.faults.lock();
        let position = faults.iter().position(|(name, _)| *name == unit)?;
        Some(faults.remove(position).1)
    }
}

fn lost() -> Error {
    Error::Unknown("connection lost".to_owned())
}

/// Adds to every lone number of the answers.
fn add(answers: &mut [Answer], more: i64) {
    for row in answers.iter_mut().flat_map(|answer| &mut answer.rows) {
        if let [Value::Int(number)] = row.values.as_mut_slice() {
            *number += more;
        }
    }
}

#[async_trait]
impl DriverLayer for FaultyDriver {
    fn inner(&self) -> &dyn Driver {
        self.inner.as_ref()
    }

    async fn on_write(&self, unit: Unit) -> Result<Vec<Answer>, Error> {
        match self.take_fault(unit.name) {
            None => self.inner.write(unit).await,
            Some(UnitFault::Drop) => Ok(vec![Answer::default(); unit.statements.len()]),
            Some(UnitFault::Fail) => Err(Error::Away("no connection".to_owned())),
            Some(UnitFault::LoseAnswer(meanwhile)) => {
                self.inner.write(unit).await?;
                meanwhile.await;
                Err(lost())
            }
            Some(UnitFault::LoseUnit(meanwhile)) => {
                meanwhile.await;
                Err(lost())
            }
            Some(UnitFault::Add(more)) => {
                let mut answers = self.inner.write(unit).await?;
                add(&mut answers, more);
                Ok(answers)
            }
        }
    }
}
