//! Tests of what only the memory backend has.

use bytes::Bytes;

use super::Memory;
use crate::{Backend, DeleteKey, Error, body};

fn memory() -> Memory {
    Memory::new("memory".parse().expect("valid"))
}

async fn put(memory: &Memory, key: &str) -> Result<crate::Written, Error> {
    memory.put(key, 3, body::whole(Bytes::from("abc"))).await
}

#[tokio::test]
async fn second_write_to_a_key_is_refused_and_recorded_even_after_a_delete() {
    let memory = memory();
    put(&memory, "k").await.expect("the first write");
    assert!(matches!(put(&memory, "k").await, Err(Error::Refused(_))));
    memory.delete_batch(&[DeleteKey { key: "k".to_owned(), version_id: None }]).await;
    assert!(matches!(put(&memory, "k").await, Err(Error::Refused(_))));
    assert_eq!(memory.violations(), ["k", "k"]);
    assert!(memory.keys().is_empty());
}

#[tokio::test]
async fn bytes_uploads_and_calls_are_counted() {
    let memory = memory().with_put_bytes_max(5);
    put(&memory, "k").await.expect("put");
    memory.write_own(".s3o/x", Bytes::from("1234")).await.expect("written");
    let upload = memory.start_upload("l").await.expect("started");
    let part = crate::PartOf { key: "l", upload: &upload, number: 1 };
    memory.put_part(part, 5, body::whole(Bytes::from("12345"))).await.expect("put part");
    assert_eq!((memory.total_bytes(), memory.uploads(), memory.calls("put")), (8, 1, 1));
    assert!(matches!(memory.put("m", 6, body::empty()).await, Err(Error::Refused(_))));
}
