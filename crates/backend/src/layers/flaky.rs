//! Faults on purpose: every call has a number, and any of them can be made to fail.
//!
//! Calls are numbered from one in the order in which they begin, so a test can count the calls of
//! a healthy run and then fail each of them in turn. Without a plan it changes nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use s3o_model::clock::Clock;
use s3o_model::entropy::Entropy;
use s3o_model::names::BackendName;

use crate::{
    Backend, ByteStream, DeleteAnswer, Doomed, Error, Page, PartOf, Probe, SharedBackend, Span, Traits,
    UnfinishedUpload, UploadedPart, UploadsPage, Written, body,
};

mod injury;
mod late;
#[cfg(test)]
mod tests;

use injury::{cut, cut_in, injected, lost, no_space, stalled, told, undone, without_effect};
use late::{LateCall, LateWrite};

/// What goes wrong with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The call fails and has no effect.
    Before,
    /// The call takes effect and its answer is lost.
    After,
    /// The call is answered late.
    Delay(Duration),
    /// The store has every byte of a write and stores and answers this much later; other calls are answered late.
    Stall(Duration),
    /// The call has no effect, and that only shows when somebody loses patience.
    Hang(Duration),
    /// The store understands and refuses; the call has no effect.
    Refused,
    /// The call has no effect, and the answer does not tell.
    Unknown,
    /// The answer is lost and a write takes effect this much later; other calls have none.
    Late(Duration),
    /// The stream of bytes, in or out, breaks after this many.
    Cut(u64),
    /// Only every other key of a batch is tried; the rest is answered `Away`.
    PartialBatch,
    /// A 404 that does not come from the store: a probe knows nothing, a read is away.
    Wrong404,
    /// A page holds at most one key and says that more may follow.
    ShortPage,
    /// A PUT reads this many bytes of its body and then reports that there is no space left.
    NoSpace(u64),
}

/// Decides, call by call, what goes wrong; asked where no plan names the call.
pub trait Weather: Send + Sync {
    /// What goes wrong with this call, if anything.
    fn strike(&self, operation: &'static str, key: &str) -> Option<Fault>;
}

/// One call that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Its number, from one.
    pub number: u64,
    /// The name of the trait method.
    pub operation: &'static str,
    /// The key, prefix or first key of the batch.
    pub key: String,
    /// What went wrong with it, if anything.
    pub fault: Option<Fault>,
}

/// A backend that fails by plan.
pub struct Flaky {
    inner: SharedBackend,
    plan: Mutex<Plan>,
    clock: Option<Arc<dyn Clock>>,
    late: Mutex<Vec<LateWrite>>,
}

#[derive(Default)]
struct Plan {
    faults: BTreeMap<u64, Fault>,
    away: bool,
    refusing: bool,
    weather: Option<Arc<dyn Weather>>,
    made: Vec<Call>,
}

impl fmt::Debug for Flaky {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flaky").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Flaky {
    /// Wraps a backend; nothing fails yet.
    #[must_use]
    pub fn new(inner: SharedBackend) -> Self {
        Self { inner, plan: Mutex::default(), clock: None, late: Mutex::default() }
    }

    /// Late writes land by this clock; without one they wait for [`Self::land_all`].
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Lets the weather decide from now on, or nobody.
    pub fn set_weather(&self, weather: Option<Arc<dyn Weather>>) {
        self.lock().weather = weather;
    }

    /// How many calls were made so far.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.lock().made.len() as u64
    }

    /// Every call that was made so far.
    #[must_use]
    pub fn log(&self) -> Vec<Call> {
        self.lock().made.clone()
    }

    /// Makes the call with this number fail.
    pub fn fail_call(&self, number: u64, fault: Fault) {
        self.lock().faults.insert(number, fault);
    }

    /// Makes about this share of the next calls fail, each in a way that the source of
    /// randomness picks; one seed gives one plan.
    pub fn fail_some(&self, calls: u64, share: f64, entropy: &dyn Entropy) {
        const KINDS: [Fault; 6] =
            [Fault::Before, Fault::After, Fault::Cut(1), Fault::PartialBatch, Fault::Wrong404, Fault::ShortPage];
        let next = self.calls() + 1;
        for number in next..next + calls {
            if entropy.next_unit() < share {
                let kind = usize::try_from(entropy.next_u64() % KINDS.len() as u64).unwrap_or(0);
                self.fail_call(number, KINDS[kind]);
            }
        }
    }

    /// Makes every call fail without effect until [`Self::come_back`].
    pub fn go_away(&self) {
        self.lock().away = true;
    }

    /// Ends what [`Self::go_away`] began.
    pub fn come_back(&self) {
        self.lock().away = false;
    }

    /// Makes the store refuse to delete anything, or no longer.
    pub fn refuse_deletes(&self, refusing: bool) {
        self.lock().refusing = refusing;
    }

    fn refuses_deletes(&self) -> bool {
        self.lock().refusing
    }

    /// Forgets all faults that are still to come; calls keep their numbers.
    pub fn clear(&self) {
        let mut plan = self.lock();
        plan.faults.clear();
        plan.weather = None;
        plan.away = false;
        plan.refusing = false;
    }

    fn lock(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock()
    }

    /// Numbers a call and tells what must go wrong with it; a delay is sat out right here.
    async fn begin(&self, operation: &'static str, key: &str) -> Option<Fault> {
        self.land_due().await;
        let fault = self.lock().next(operation, key);
        match fault {
            Some(Fault::Delay(delay) | Fault::Hang(delay)) => tokio::time::sleep(delay).await,
            Some(Fault::Stall(delay)) if !["put", "put_part"].contains(&operation) => tokio::time::sleep(delay).await,
            _ => {}
        }
        fault
    }

    /// A call that fails before it began, after it ended, or not at all.
    async fn plain<T>(
        &self,
        operation: &'static str,
        key: &str,
        call: impl Future<Output = Result<T, Error>> + Send,
    ) -> Result<T, Error> {
        let fault = self.begin(operation, key).await;
        if let Some(error) = fault.and_then(without_effect) {
            return Err(error);
        }
        let answer = call.await;
        // What the store answered is exactly what is lost.
        if fault == Some(Fault::After) { Err(lost()) } else { answer }
    }
}

impl Plan {
    /// Notes a call and tells what must go wrong with it.
    fn next(&mut self, operation: &'static str, key: &str) -> Option<Fault> {
        let number = self.made.len() as u64 + 1;
        let planned = if self.away { Some(Fault::Before) } else { self.faults.remove(&number) };
        let fault = planned.or_else(|| self.weather.as_ref()?.strike(operation, key));
        self.made.push(Call { number, operation, key: key.to_owned(), fault });
        fault
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Backend for Flaky {
    fn name(&self) -> &BackendName {
        self.inner.name()
    }

    fn put_bytes_max(&self) -> u64 {
        self.inner.put_bytes_max()
    }

    async fn probe_traits(&self) -> Result<Traits, Error> {
        self.plain("probe_traits", "", self.inner.probe_traits()).await
    }

    async fn put(&self, key: &str, size_bytes: u64, body: ByteStream) -> Result<Written, Error> {
        let fault = self.begin("put", key).await;
        if let Some(Fault::Late(delay)) = fault {
            let bytes = body::collect(body, size_bytes).await?;
            return Err(self.write_later(delay, LateCall::Put { key: key.to_owned(), bytes }));
        }
        if let Some(Fault::NoSpace(after_bytes)) = fault {
            return Err(no_space(body, after_bytes).await);
        }
        if let Some(error) = fault.and_then(without_effect) {
            return Err(error);
        }
        let body = stalled(fault, cut_in(fault, body), size_bytes).await?;
        told(fault, self.inner.put(key, size_bytes, body).await)
    }

    async fn get(&self, key: &str, span: Option<Span>) -> Result<ByteStream, Error> {
        match self.begin("get", key).await {
            Some(Fault::Wrong404) => Err(injected()),
            Some(Fault::After) => Err(Error::Away("injected: the answer was lost".to_owned())),
            Some(Fault::Cut(after_bytes)) => Ok(cut(self.inner.get(key, span).await?, after_bytes)),
            fault => match fault.and_then(without_effect) {
                Some(error) => Err(error),
                None => self.inner.get(key, span).await,
            },
        }
    }

    async fn probe(&self, key: &str) -> Probe {
        match self.begin("probe", key).await {
            Some(Fault::After | Fault::Wrong404) => Probe::Unknown("injected: nobody knows".to_owned()),
            fault => match fault.and_then(without_effect) {
                Some(error) => Probe::Unknown(error.to_string()),
                None => self.inner.probe(key).await,
            },
        }
    }

    async fn delete_batch(&self, doomed: &[Doomed]) -> Vec<DeleteAnswer> {
        let key = doomed.first().map(|doomed| doomed.key.as_str()).unwrap_or_default();
        match self.begin("delete_batch", key).await {
            _ if self.refuses_deletes() => vec![DeleteAnswer::Refused("injected: denied".to_owned()); doomed.len()],
            Some(Fault::After) => {
                self.inner.delete_batch(doomed).await;
                vec![DeleteAnswer::Unknown(lost().to_string()); doomed.len()]
            }
            Some(Fault::PartialBatch) => {
                let tried: Vec<Doomed> = doomed.iter().step_by(2).cloned().collect();
                let away = DeleteAnswer::Away("injected: this key was left out".to_owned());
                let answers = self.inner.delete_batch(&tried).await;
                answers.into_iter().flat_map(|answer| [answer, away.clone()]).take(doomed.len()).collect()
            }
            fault => match fault.and_then(without_effect) {
                Some(error) => vec![undone(&error); doomed.len()],
                None => self.inner.delete_batch(doomed).await,
            },
        }
    }

    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page, Error> {
        match self.begin("list", prefix).await {
            Some(Fault::After | Fault::Wrong404) => Err(injected()),
            Some(Fault::ShortPage) => {
                let mut page = self.inner.list(prefix, after, 1).await?;
                page.truncated |= !page.items.is_empty();
                Ok(page)
            }
            fault => match fault.and_then(without_effect) {
                Some(error) => Err(error),
                None => self.inner.list(prefix, after, limit).await,
            },
        }
    }

    async fn start_upload(&self, key: &str) -> Result<String, Error> {
        self.plain("start_upload", key, self.inner.start_upload(key)).await
    }

    async fn put_part(&self, part: PartOf<'_>, size_bytes: u64, body: ByteStream) -> Result<UploadedPart, Error> {
        let fault = self.begin("put_part", part.key).await;
        if let Some(error) = fault.and_then(without_effect) {
            return Err(error);
        }
        let body = stalled(fault, cut_in(fault, body), size_bytes).await?;
        told(fault, self.inner.put_part(part, size_bytes, body).await)
    }

    async fn finish_upload(&self, key: &str, upload: &str, parts: &[UploadedPart]) -> Result<Written, Error> {
        let fault = self.begin("finish_upload", key).await;
        if let Some(Fault::Late(delay)) = fault {
            let (key, upload, parts) = (key.to_owned(), upload.to_owned(), parts.to_vec());
            return Err(self.write_later(delay, LateCall::Finish { key, upload, parts }));
        }
        if let Some(error) = fault.and_then(without_effect) {
            return Err(error);
        }
        told(fault, self.inner.finish_upload(key, upload, parts).await)
    }

    async fn abort_upload(&self, key: &str, upload: &str) -> DeleteAnswer {
        match self.begin("abort_upload", key).await {
            Some(Fault::After) => {
                self.inner.abort_upload(key, upload).await;
                DeleteAnswer::Unknown(lost().to_string())
            }
            fault => match fault.and_then(without_effect) {
                Some(error) => undone(&error),
                None => self.inner.abort_upload(key, upload).await,
            },
        }
    }

    async fn uploads_of(&self, key: &str) -> Result<Vec<String>, Error> {
        self.plain("uploads_of", key, self.inner.uploads_of(key)).await
    }

    async fn list_uploads(&self, from: Option<&UnfinishedUpload>) -> Result<UploadsPage, Error> {
        self.plain("list_uploads", "", self.inner.list_uploads(from)).await
    }

    async fn read_own(&self, key: &str) -> Result<Option<Bytes>, Error> {
        self.plain("read_own", key, self.inner.read_own(key)).await
    }

    async fn write_own(&self, key: &str, body: Bytes) -> Result<(), Error> {
        self.plain("write_own", key, self.inner.write_own(key, body)).await
    }

    async fn place_changed(&self) -> bool {
        self.inner.place_changed().await
    }

    async fn reopen_place(&self) -> Result<(), Error> {
        self.inner.reopen_place().await
    }
}
