//! Advisory locks of one PostgreSQL session. One task per instance owns that session: it takes
//! and releases locks, and pings while it holds any. A session that is not heard of is ended by
//! the server, so a frozen instance loses its locks; one without locks is closed.

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

/// How long an answer may take before the session is given up.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// How many pings may go missing before the server takes an instance for gone.
const PINGS_IN_SILENCE: u32 = 4;
/// What the session is called on the server, before the instance's name.
const SESSION_NAME: &str = "s3o lock ";
/// One number per catalog and worker; the schema tells catalogs in one database apart.
const KEY: &str = "hashtextextended('s3o ' || current_schema() || ' ' || $1::text, 0)";

/// How often a session that holds locks is heard of, and after which silence the server ends it.
#[derive(Clone, Copy)]
struct Pace {
    ping_interval: Duration,
    silence_max: Duration,
}

impl Pace {
    fn new(silence_max: Duration) -> Self {
        // The server takes none for no end.
        let silence_max = silence_max.max(Duration::from_millis(1));
        Self { ping_interval: silence_max / PINGS_IN_SILENCE, silence_max }
    }
}

enum Ask {
    Lock { worker: String, answer: oneshot::Sender<Result<Locked, Error>> },
    Unlock { worker: String, session: u64 },
}

/// Locks of one instance among those that share a PostgreSQL catalog.
pub struct PostgresLocks {
    asks: mpsc::UnboundedSender<Ask>,
}

impl PostgresLocks {
    /// Locks of this instance, which loses them when it is not heard of for `silence_max`; it
    /// connects when the first one is asked for.
    pub fn new(options: &PostgresOptions, instance: impl fmt::Display, silence_max: Duration) -> Result<Self, Error> {
        let pace = Pace::new(silence_max);
        let (mut config, tls) = tls::read_url(&options.url).map_err(|error| Error::Internal(error.to_string()))?;
        let schema = options.schema.as_ref().map(|schema| format!(" -c search_path={schema}")).unwrap_or_default();
        let silence = format!("-c idle_session_timeout={}ms", pace.silence_max.as_millis());
        config.options(format!("{silence}{schema}")).application_name(format!("{SESSION_NAME}{instance}"));
        config.connect_timeout(ANSWER_MAX).keepalives_idle(ANSWER_MAX).tcp_user_timeout(Duration::from_secs(15));
        let (asks, asked) = mpsc::unbounded_channel();
        let (instance, weak) = (instance.to_string(), asks.downgrade());
        let keeper = Keeper { config, tls, pace, instance, asks: weak, session: None, count: 0 };
        tokio::task::spawn(keeper.keep(asked));
        Ok(Self { asks })
    }
}

#[async_trait]
impl Locks for PostgresLocks {
    async fn try_lock(&self, worker: &str) -> Result<Locked, Error> {
        let (answer, answered) = oneshot::channel();
        let gone = || Error::Away("the lock session has ended".to_owned());
        self.asks.send(Ask::Lock { worker: worker.to_owned(), answer }).map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}

/// A connection and what it holds.
struct Session {
    number: u64,
    client: Client,
    held: HashSet<String>,
    lost: Arc<AtomicBool>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.lost.store(true, Ordering::Relaxed);
    }
}

struct Keeper {
    config: Config,
    tls: MakeRustlsConnect,
    pace: Pace,
    instance: String,
    /// Weak: locks that are out must not keep the task alive on their own.
    asks: mpsc::WeakUnboundedSender<Ask>,
    session: Option<Session>,
    count: u64,
}

impl Keeper {
    async fn keep(mut self, mut asked: mpsc::UnboundedReceiver<Ask>) {
        let mut ping_at = Instant::now() + self.pace.ping_interval;
        loop {
            // Asking for locks must not put the ping off.
            match timeout_at(ping_at, asked.recv()).await {
                Ok(None) => return,
                Ok(Some(Ask::Lock { worker, answer })) => {
                    let locked = self.lock(&worker).await;
                    // Whoever does not wait any more drops the lock, and with it releases it.
                    drop(answer.send(locked));
                }
                Ok(Some(Ask::Unlock { worker, session })) => self.unlock(&worker, session).await,
                Err(_) => {
                    self.ping().await;
                    ping_at = Instant::now() + self.pace.ping_interval;
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
            // The server would let the same session in twice.
            self.session = Some(session);
            return Ok(Locked::By(self.instance.clone()));
        }
        // A session that did not answer in time is dropped here: nobody knows what it holds.
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

    fn released_with(&self, session: &Session, worker: &str) -> Lock {
        let (asks, worker, session_number) = (self.asks.clone(), worker.to_owned(), session.number);
        Lock::new(Arc::clone(&session.lost), move || {
            if let Some(asks) = asks.upgrade() {
                // A keeper that has gone took the session with it, and so the lock.
                asks.send(Ask::Unlock { worker, session: session_number }).unwrap_or_default();
            }
        })
    }

    async fn unlock(&mut self, worker: &str, session_number: u64) {
        // A lock of an earlier session went with it.
        let Some(session) = self.session.as_mut().filter(|session| session.number == session_number) else { return };
        session.held.remove(worker);
        let sql = format!("SELECT pg_advisory_unlock({KEY})");
        if let Err(error) = answered(session.client.query_one(&sql, &[&worker])).await {
            tracing::warn!(%error, worker, "lock session given up");
            self.session = None;
        }
    }

    async fn ping(&mut self) {
        let Some(session) = &self.session else { return };
        if session.held.is_empty() {
            self.session = None;
        } else if let Err(error) = answered(session.client.simple_query("SELECT 1")).await {
            tracing::warn!(%error, "lock session lost");
            self.session = None;
        }
    }

    async fn connect(&mut self) -> Result<Session, Error> {
        let (client, connection) = answered(self.config.connect(self.tls.clone())).await?;
        let lost = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&lost);
        tokio::task::spawn(async move {
            if let Err(error) = connection.await {
                tracing::warn!(%error, "lock session ended");
            }
            ended.store(true, Ordering::Relaxed);
        });
        self.count += 1;
        Ok(Session { number: self.count, client, held: HashSet::new(), lost })
    }
}

/// Takes the lock, or tells who holds it.
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
    // Let go in between, or of a role whose sessions we may not see.
    let instance = name.strip_prefix(SESSION_NAME).unwrap_or("another instance");
    Ok(Some(instance.to_owned()))
}

/// Waits for the server, but not for ever.
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
