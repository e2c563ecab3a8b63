//! Limits the share of the free capacity that unfinished writes of one access key may reserve.
//!
//! A write reserves its declared length before its body arrives. Without a limit, one client could declare all free
//! capacity and send nothing. Each process counts the reservations of its own writes, until the write ends.

use std::collections::HashMap;
use std::sync::Arc;

use http::header::RETRY_AFTER;
use parking_lot::Mutex;
use s3o_engine::Engine;
use s3s::auth::Credentials;

use super::errors::refuse;
use super::refusal::Refusal;

/// Counts the reserved bytes of each access key; clones share the counts.
#[derive(Debug, Clone)]
pub struct ReservedShare {
    share: f64,
    reserved: Arc<Mutex<HashMap<String, u64>>>,
}

/// A counted reservation, released on drop.
#[derive(Debug)]
pub struct Reservation {
    access_key_id: String,
    size_bytes: u64,
    reserved: Arc<Mutex<HashMap<String, u64>>>,
}

impl ReservedShare {
    /// `share` is between 0.0 and 1.0; 1.0 means no limit besides the quotas.
    pub fn new(share: f64) -> Self {
        Self { share, reserved: Arc::default() }
    }

    /// Counts a write of this size; refuses it if its key would exceed the share. `None` if there is no limit.
    pub async fn reserve(
        &self,
        engine: &Engine,
        credentials: Option<&Credentials>,
        size_bytes: u64,
    ) -> Result<Option<Reservation>, Refusal> {
        let Some(credentials) = credentials.filter(|_| self.share < 1.0) else { return Ok(None) };
        let Some(free_bytes) = engine.free_capacity_bytes().await.map_err(refuse)? else { return Ok(None) };
        self.count(&credentials.access_key, size_bytes, self.bound(free_bytes)).map(Some)
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    fn bound(&self, free_bytes: u64) -> u64 {
        (free_bytes as f64 * self.share) as u64
    }

    fn count(&self, access_key_id: &str, size_bytes: u64, bound: u64) -> Result<Reservation, Refusal> {
        let mut reserved = self.reserved.lock();
        let own = reserved.get(access_key_id).copied().unwrap_or(0);
        let total = own.saturating_add(size_bytes);
        if total > bound {
            let message = format!(
                "Unfinished writes of this access key would reserve {total} bytes; max_reserved_share allows {bound}."
            );
            return Err(Refusal::because("SlowDown", message).with_header(RETRY_AFTER, "1"));
        }
        reserved.insert(access_key_id.to_owned(), total);
        let reserved = Arc::clone(&self.reserved);
        Ok(Reservation { access_key_id: access_key_id.to_owned(), size_bytes, reserved })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut reserved = self.reserved.lock();
        let Some(total) = reserved.get_mut(&self.access_key_id) else { return };
        *total = total.saturating_sub(self.size_bytes);
        if *total == 0 {
            reserved.remove(&self.access_key_id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ReservedShare;

    #[test]
    fn key_may_reserve_its_share_until_its_writes_end() {
        let share = ReservedShare::new(0.5);
        let bound = share.bound(100);
        let first = share.count("a", 30, bound).unwrap();
        assert_eq!(share.count("a", 21, bound).unwrap_err().code, "SlowDown");
        let _second = share.count("a", 20, bound).unwrap();
        let _other = share.count("b", 50, bound).unwrap();
        drop(first);
        assert!(share.count("a", 30, bound).is_ok());
    }

    #[test]
    fn keys_without_writes_are_removed() {
        let share = ReservedShare::new(0.5);
        drop(share.count("a", 0, 10).unwrap());
        drop(share.count("a", 10, 10).unwrap());
        assert!(share.reserved.lock().is_empty());
    }
}
