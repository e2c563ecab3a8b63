//! Advisory locks of one PostgreSQL session. One task per instance owns the session: it takes and releases locks, and
//! pings while it holds any. The server ends a silent session, so a suspended instance loses its locks. A session
//! without locks is closed.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::{Client, Config};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{Lock, Locked, Locks};
use crate::PostgresOptions;
use crate::driver::postgres::tls;
use crate::error::Error;

/// Time for an answer, after which the session is dropped.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Number of missing pings after which the server ends the session.
const PINGS_IN_SILENCE: u32 = 4;
/// Start of the session's `application_name`, before the instance ID.
const SESSION_NAME: &str = "s3o lock ";
/// SQL for the lock number of a worker; the schema distinguishes catalogs in one database.
const KEY: &str = "hashtextextended('s3o ' || current_schema() || ' ' || $1::text, 0)";

/// Interval of pings, and the silence after which the server ends the session.
#[derive(Clone, Copy)]
struct PingTimes {
    ping_interval: Duration,
    silence_max: Duration,
}

impl PingTimes {
    fn new(silence_max: Duration) -> Self {
        // Zero would disable the timeout.
        let silence_max = silence_max.max(Duration::from_millis(1));
        Self { ping_interval: silence_max / PINGS_IN_SILENCE, silence_max }
    }
}

enum LockRequest {
    Lock { worker: String, answer: oneshot::Sender<Result<Locked, Error>> },
    Unlock { worker: String, session: u64 },
}

/// Locks of one instance among those that share a PostgreSQL catalog.
pub struct PostgresLocks {
    requests: mpsc::UnboundedSender<LockRequest>,
}

impl PostgresLocks {
    /// Locks of this instance, which loses them after a silence of `silence_max`. It connects for the first lock.
    pub fn new(options: &PostgresOptions, instance: impl fmt::Display, silence_max: Duration) -> Result<Self, Error> {
        let times = PingTimes::new(silence_max);
        let (mut config, tls) = tls::read_url(&options.url).map_err(|error| Error::Internal(error.to_string()))?;
        let schema = options.schema.as_ref().map(|schema| format!(" -c search_path={schema}")).unwrap_or_default();
        let silence = format!("-c idle_session_timeout={}ms", times.silence_max.as_millis());
        config.options(format!("{silence}{schema}")).application_name(format!("{SESSION_NAME}{instance}"));
        config.connect_timeout(ANSWER_MAX).keepalives_idle(ANSWER_MAX).tcp_user_timeout(Duration::from_secs(15));
        let (requests, receiver) = mpsc::unbounded_channel();
        let (instance, weak) = (instance.to_string(), requests.downgrade());
        let owner = SessionOwner { config, tls, times, instance, requests: weak, session: None, count: 0 };
        tokio::task::spawn(owner.run(receiver));
        Ok(Self { requests })
    }
}

#[async_trait]
impl Locks for PostgresLocks {
    async fn try_lock(&self, worker: &str) -> Result<Locked, Error> {
        let (answer, answered) = oneshot::channel();
        let ended = || Error::Away("the lock session has ended".to_owned());
        self.requests.send(LockRequest::Lock { worker: worker.to_owned(), answer }).map_err(|_| ended())?;
        answered.await.map_err(|_| ended())?
    }
}

/// A connection with the locks that it holds.
struct LockSession {
    number: u64,
    client: Client,
    held: HashSet<String>,
    lost: Arc<AtomicBool>,
}

impl Drop for LockSession {
    fn drop(&mut self) {
        self.lost.store(true, Ordering::Relaxed);
    }
}

/// The task that owns the session.
struct SessionOwner {
    config: Config,
    tls: MakeRustlsConnect,
    times: PingTimes,
    instance: String,
    /// Weak, so that held locks alone do not keep the task running.
    requests: mpsc::WeakUnboundedSender<LockRequest>,
    session: Option<LockSession>,
    /// Number of sessions so far.
    count: u64,
}

impl SessionOwner {
    async fn run(mut self, mut requests: mpsc::UnboundedReceiver<LockRequest>) {
        let mut ping_at = Instant::now() + self.times.ping_interval;
        loop {
            // Requests must not delay the ping.
            match timeout_at(ping_at, requests.recv()).await {
                Ok(None) => return,
                Ok(Some(LockRequest::Lock { worker, answer })) => {
                    let locked = self.lock(&worker).await;
                    // If the caller no longer waits, this drops the lock, which releases it.
                    drop(answer.send(locked));
                }
                Ok(Some(LockRequest::Unlock { worker, session })) => self.unlock(&worker, session).await,
                Err(_) => {
                    self.ping().await;
                    ping_at = Instant::now() + self.times.ping_interval;
                }
            }
        }
    }

    async fn lock(&mut self, worker: &str) -> Result<Locked, Error> {
        let mut session = match self.session.take().filter(|session| !session.client.is_closed()) {
            Some(session) => session,
            None => self.connect().await?,
        };
        if session.held.contains(worker) {
            // The server lets a session take its own lock again.
            self.session = Some(session);
            return Ok(Locked::By(self.instance.clone()));
        }
        // A session that does not answer in time is dropped, since it is unknown which locks it holds.
        let holder = answered(holder_or_lock(&session.client, worker)).await?;
        let locked = if let Some(holder) = holder {
            Locked::By(holder)
        } else {
            session.held.insert(worker.to_owned());
            Locked::Held(self.released_with(&session, worker))
        };
        self.session = Some(session);
        Ok(locked)
    }

    fn released_with(&self, session: &LockSession, worker: &str) -> Lock {
        let (requests, worker, session_number) = (self.requests.clone(), worker.to_owned(), session.number);
        Lock::new(Arc::clone(&session.lost), move || {
            if let Some(requests) = requests.upgrade() {
                // A task that has ended dropped the session, which released the lock.
                requests.send(LockRequest::Unlock { worker, session: session_number }).unwrap_or_default();
            }
        })
    }

    async fn unlock(&mut self, worker: &str, session_number: u64) {
        // A lock of an earlier session was released with that session.
        let Some(session) = self.session.as_mut().filter(|session| session.number == session_number) else { return };
        session.held.remove(worker);
        let sql = format!("SELECT pg_advisory_unlock({KEY})");
        if let Err(error) = answered(session.client.query_one(&sql, &[&worker])).await {
            tracing::warn!(%error, worker, "unlock failed, dropping lock session");
            self.session = None;
        }
    }

    async fn ping(&mut self) {
        let Some(session) = &self.session else { return };
        if session.held.is_empty() {
            self.session = None;
        } else if let Err(error) = answered(session.client.simple_query("SELECT 1")).await {
            tracing::warn!(%error, "lock session does not answer, its worker locks are lost");
            self.session = None;
        }
    }

    async fn connect(&mut self) -> Result<LockSession, Error> {
        let (client, connection) = answered(self.config.connect(self.tls.clone())).await?;
        let lost = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&lost);
        tokio::task::spawn(async move {
            if let Err(error) = connection.await {
                tracing::warn!(%error, "lock session ended with an error, its worker locks are lost");
            }
            ended.store(true, Ordering::Relaxed);
        });
        self.count += 1;
        Ok(LockSession { number: self.count, client, held: HashSet::new(), lost })
    }
}

/// Takes the lock, or returns its holder.
async fn holder_or_lock(client: &Client, worker: &str) -> Result<Option<String>, tokio_postgres::Error> {
    let taken = client.query_one(&format!("SELECT pg_try_advisory_lock({KEY})"), &[&worker]).await?;
    if taken.get(0) {
        return Ok(None);
    }
    let sql = format!(
        "SELECT a.application_name FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid \
         WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted AND a.datname = current_database() \
         AND ((l.classid::bigint << 32) | l.objid::bigint) = {KEY}"
    );
    let holders = client.query(&sql, &[&worker]).await?;
    let name = holders.first().and_then(|row| row.get::<_, Option<String>>(0)).unwrap_or_default();
    // No holder is visible if the lock was just released, or if this role may not see the session of its holder.
    let instance = name.strip_prefix(SESSION_NAME).unwrap_or("another instance");
    Ok(Some(instance.to_owned()))
}

/// Waits for the server for at most [`ANSWER_MAX`].
async fn answered<T>(asked: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T, Error> {
    match timeout(ANSWER_MAX, asked).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
            Err(Error::Away(format!("{error}{cause}")))
        }
        Err(_) => Err(Error::Away("the lock session does not answer".to_owned())),
    }
}
