//! What stands between the engine and the world: calls take time, the catalog fails, and every
//! delete is held against the locations of that very moment.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use s3o_backend::{
    Backend, ByteStream, DeleteAnswer, Doomed, Error, Page, PartOf, Probe, SharedBackend, Span, Traits,
    UnfinishedUpload, UploadedPart, UploadsPage, Written,
};
use s3o_catalog::unit::{Answer, Row, Statement, Unit};
use s3o_catalog::{Driver, DriverLayer, Error as CatalogError};
use s3o_model::names::BackendName;

use crate::journal::Journal;
use crate::storm::{CatalogFault, Storm};

/// Deletes of bytes that a location named: there must be none, ever.
#[derive(Default)]
pub struct Crimes(Mutex<Vec<String>>);

impl Crimes {
    fn note(&self, crime: String) {
        self.0.lock().push(crime);
    }

    /// All of them.
    pub fn all(&self) -> Vec<String> {
        self.0.lock().clone()
    }
}

/// A catalog whose calls take time and fail.
pub struct Distant {
    /// What does the work.
    pub inner: Arc<dyn Driver>,
    /// What goes wrong.
    pub storm: Arc<Storm>,
    /// Where it is told.
    pub journal: Journal,
}

async fn pass(storm: &Storm) {
    if let Some(latency) = storm.latency() {
        tokio::time::sleep(latency).await;
    }
}

#[async_trait]
impl DriverLayer for Distant {
    fn inner(&self) -> &dyn Driver {
        self.inner.as_ref()
    }

    async fn on_write(&self, unit: Unit) -> Result<Vec<Answer>, CatalogError> {
        pass(&self.storm).await;
        let (name, fault) = (unit.name, self.storm.catalog());
        let answers = match fault {
            Some(CatalogFault::Away) => Err(CatalogError::Away("injected".to_owned())),
            Some(CatalogFault::UnitLost) => Err(CatalogError::Unknown("injected: it did not happen".to_owned())),
            Some(CatalogFault::AnswerLost) => {
                let answers = self.inner.write(unit).await;
                // A guard that failed is no commit in doubt.
                answers.and_then(|_| Err(CatalogError::Unknown("injected: it happened".to_owned())))
            }
            None => self.inner.write(unit).await,
        };
        match &answers {
            Ok(_) => {
                self.journal.tell(format_args!("  unit {name}"));
                if name == "pin" {
                    self.journal.count("content pinned");
                }
            }
            Err(error) => self.journal.tell(format_args!("  unit {name}: {error}")),
        }
        pass(&self.storm).await;
        answers
    }

    async fn on_read(&self, query: Statement) -> Result<Vec<Row>, CatalogError> {
        pass(&self.storm).await;
        match self.storm.catalog() {
            Some(_) => Err(CatalogError::Away("injected".to_owned())),
            None => self.inner.read(query).await,
        }
    }
}

/// A backend whose calls take time and whose deletes are judged.
pub struct Watched {
    /// What does the work.
    pub inner: SharedBackend,
    /// The catalog as it is, without faults.
    pub truth: Arc<dyn Driver>,
    /// Where crimes are noted.
    pub crimes: Arc<Crimes>,
    /// How long calls take.
    pub storm: Arc<Storm>,
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watched").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Watched {
    async fn timed<T>(&self, call: impl Future<Output = T> + Send) -> T {
        pass(&self.storm).await;
        let answer = call.await;
        pass(&self.storm).await;
        answer
    }

    async fn judge(&self, doomed: &Doomed) {
        const NAMED: &str = "SELECT 1 FROM object_locations WHERE backend_name = $1 AND physical_key = $2";
        let params = vec![self.name().into(), (&doomed.key).into()];
        let named = self.truth.read(Statement::new(NAMED, params)).await.expect("a query");
        if !named.is_empty() {
            self.crimes.note(format!("a delete of {} was issued while a location named it", doomed.key));
        }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Backend for Watched {
    fn name(&self) -> &BackendName {
        self.inner.name()
    }

    fn put_bytes_max(&self) -> u64 {
        self.inner.put_bytes_max()
    }

    async fn probe_traits(&self) -> Result<Traits, Error> {
        self.timed(self.inner.probe_traits()).await
    }

    async fn put(&self, key: &str, size_bytes: u64, body: ByteStream) -> Result<Written, Error> {
        self.timed(self.inner.put(key, size_bytes, body)).await
    }

    async fn get(&self, key: &str, span: Option<Span>) -> Result<ByteStream, Error> {
        self.timed(self.inner.get(key, span)).await
    }

    async fn probe(&self, key: &str) -> Probe {
        self.timed(self.inner.probe(key)).await
    }

    async fn delete_batch(&self, doomed: &[Doomed]) -> Vec<DeleteAnswer> {
        pass(&self.storm).await;
        for doomed in doomed {
            self.judge(doomed).await;
        }
        let answers = self.inner.delete_batch(doomed).await;
        pass(&self.storm).await;
        answers
    }

    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page, Error> {
        self.timed(self.inner.list(prefix, after, limit)).await
    }

    async fn start_upload(&self, key: &str) -> Result<String, Error> {
        self.timed(self.inner.start_upload(key)).await
    }

    async fn put_part(&self, part: PartOf<'_>, size_bytes: u64, body: ByteStream) -> Result<UploadedPart, Error> {
        self.timed(self.inner.put_part(part, size_bytes, body)).await
    }

    async fn finish_upload(&self, key: &str, upload: &str, parts: &[UploadedPart]) -> Result<Written, Error> {
        self.timed(self.inner.finish_upload(key, upload, parts)).await
    }

    async fn abort_upload(&self, key: &str, upload: &str) -> DeleteAnswer {
        self.timed(self.inner.abort_upload(key, upload)).await
    }

    async fn list_uploads(&self, after: Option<&UnfinishedUpload>) -> Result<UploadsPage, Error> {
        self.timed(self.inner.list_uploads(after)).await
    }

    async fn uploads_of(&self, key: &str) -> Result<Vec<String>, Error> {
        self.timed(self.inner.uploads_of(key)).await
    }

    async fn read_own(&self, key: &str) -> Result<Option<Bytes>, Error> {
        self.timed(self.inner.read_own(key)).await
    }

    async fn write_own(&self, key: &str, body: Bytes) -> Result<(), Error> {
        self.timed(self.inner.write_own(key, body)).await
    }

    async fn place_changed(&self) -> bool {
        self.inner.place_changed().await
    }

    async fn reopen_place(&self) -> Result<(), Error> {
        self.inner.reopen_place().await
    }
}
