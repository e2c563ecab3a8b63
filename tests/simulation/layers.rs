//! The layers between a process and its catalog and backends: calls take time, the catalog fails, and every delete is
//! checked against the locations of that moment.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use s3o_backend::{
    Backend, ByteStream, DeleteAnswer, DeleteKey, Error, ExpectedDelete, Page, PartOf, Probe, SharedBackend, Span,
    Traits, UnfinishedUpload, UploadedPart, UploadsPage, VersionPosition, VersionsPage, Written,
};
use s3o_catalog::unit::{Answer, Row, Statement, Unit};
use s3o_catalog::{Driver, DriverLayer, Error as CatalogError};
use s3o_model::names::BackendName;
use s3o_model::target::{ExpectedBytes, KeyVersion};

use crate::fault_schedule::{CatalogFault, FaultSchedule};
use crate::journal::Journal;

/// Deletes of bytes that had a location when the delete was sent; a correct store sends none.
#[derive(Default)]
pub struct IllegalDeletes(Mutex<Vec<String>>);

impl IllegalDeletes {
    fn add(&self, delete: String) {
        self.0.lock().push(delete);
    }

    pub fn all(&self) -> Vec<String> {
        self.0.lock().clone()
    }
}

/// A catalog with latency and faults.
pub struct FaultyCatalog {
    pub inner: Arc<dyn Driver>,
    pub schedule: Arc<FaultSchedule>,
    pub journal: Journal,
}

async fn delay(schedule: &FaultSchedule) {
    if let Some(latency) = schedule.latency() {
        tokio::time::sleep(latency).await;
    }
}

#[async_trait]
impl DriverLayer for FaultyCatalog {
    fn inner(&self) -> &dyn Driver {
        self.inner.as_ref()
    }

    async fn on_write(&self, unit: Unit) -> Result<Vec<Answer>, CatalogError> {
        delay(&self.schedule).await;
        let (name, fault) = (unit.name, self.schedule.catalog());
        let answers = match fault {
            Some(CatalogFault::Away) => Err(CatalogError::Away("injected".to_owned())),
            Some(CatalogFault::UnitLost) => Err(CatalogError::Unknown("injected: not committed".to_owned())),
            Some(CatalogFault::AnswerLost) => {
                let answers = self.inner.write(unit).await;
                // A failed guard is a certain answer.
                answers.and_then(|_| Err(CatalogError::Unknown("injected: committed, answer lost".to_owned())))
            }
            None => self.inner.write(unit).await,
        };
        match &answers {
            Ok(_) => {
                self.journal.record(format_args!("  unit {name}"));
                if name == "pin" {
                    self.journal.count("content pinned");
                }
            }
            Err(error) => self.journal.record(format_args!("  unit {name}: {error}")),
        }
        delay(&self.schedule).await;
        answers
    }

    async fn on_read(&self, query: Statement) -> Result<Vec<Row>, CatalogError> {
        delay(&self.schedule).await;
        match self.schedule.catalog() {
            Some(_) => Err(CatalogError::Away("injected".to_owned())),
            None => self.inner.read(query).await,
        }
    }
}

/// A backend with latency, whose deletes are checked.
pub struct CheckedBackend {
    pub inner: SharedBackend,
    /// The catalog without faults.
    pub driver: Arc<dyn Driver>,
    pub illegal_deletes: Arc<IllegalDeletes>,
    pub schedule: Arc<FaultSchedule>,
}

impl std::fmt::Debug for CheckedBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CheckedBackend").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl CheckedBackend {
    async fn timed<T>(&self, call: impl Future<Output = T> + Send) -> T {
        delay(&self.schedule).await;
        let answer = call.await;
        delay(&self.schedule).await;
        answer
    }

    async fn check_delete(&self, doomed: &DeleteKey) {
        const NAMED: &str = "SELECT 1 FROM object_locations WHERE backend_name = $1 AND physical_key = $2";
        let params = vec![self.name().into(), (&doomed.key).into()];
        let named = self.driver.read(Statement::new(NAMED, params)).await.expect("a query");
        if !named.is_empty() {
            self.illegal_deletes.add(format!("{} was deleted while it had a location", doomed.key));
        }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Backend for CheckedBackend {
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

    async fn get(&self, at: KeyVersion<'_>, span: Option<Span>) -> Result<ByteStream, Error> {
        self.timed(self.inner.get(at, span)).await
    }

    async fn probe(&self, at: KeyVersion<'_>) -> Probe {
        self.timed(self.inner.probe(at)).await
    }

    async fn delete_batch(&self, doomed: &[DeleteKey]) -> Vec<DeleteAnswer> {
        delay(&self.schedule).await;
        for doomed in doomed {
            self.check_delete(doomed).await;
        }
        let answers = self.inner.delete_batch(doomed).await;
        delay(&self.schedule).await;
        answers
    }

    async fn delete_expected(&self, doomed: &DeleteKey, expected: &ExpectedBytes) -> ExpectedDelete {
        delay(&self.schedule).await;
        self.check_delete(doomed).await;
        let answer = self.inner.delete_expected(doomed, expected).await;
        delay(&self.schedule).await;
        answer
    }

    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page, Error> {
        self.timed(self.inner.list(prefix, after, limit)).await
    }

    async fn list_versions(
        &self,
        prefix: &str,
        after: Option<&VersionPosition>,
        limit: usize,
    ) -> Result<VersionsPage, Error> {
        self.timed(self.inner.list_versions(prefix, after, limit)).await
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

    async fn store_changed(&self) -> bool {
        self.inner.store_changed().await
    }

    async fn reopen_store(&self) -> Result<(), Error> {
        self.inner.reopen_store().await
    }

    async fn trust_store(&self) {
        self.inner.trust_store().await;
    }
}
