//! Answers of a store are untrusted, too: whatever an S3 service answers, the backend neither fails nor concludes more
//! than the answer says, and listings stay within their prefix and order.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use parking_lot::Mutex;
use s3o_backend::s3::Secret;
use s3o_backend::{Backend as _, DeleteAnswer, DeleteKey, PartOf, Probe, S3, S3Options, Span, UploadedPart, body};
use s3o_model::clock::SystemClock;
use s3o_model::entropy::SeededEntropy;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

use crate::answers::Scripted;

const ANSWER_MAX: Duration = Duration::from_secs(25);

/// A service on a socket that gives one scripted answer to every request.
pub struct ScriptedService {
    runtime: Runtime,
    endpoint: String,
    answer: Arc<Mutex<Vec<u8>>>,
}

impl ScriptedService {
    pub fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let answer = Arc::new(Mutex::new(Vec::new()));
        let shared = answer.clone();
        runtime.spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.expect("a connection");
                tokio::spawn(answer_once(socket, shared.clone()));
            }
        });
        Self { runtime, endpoint, answer }
    }

    fn connect(&self) -> S3 {
        let options = S3Options {
            endpoint: self.endpoint.clone(),
            region: "us-east-1".to_owned(),
            bucket: "bucket".to_owned(),
            access_key_id: "id".to_owned(),
            secret_access_key: Secret::new("secret"),
            path_style: true,
            put_bytes_max: 5 << 30,
            create_bucket: false,
        };
        let entropy = Arc::new(SeededEntropy::new(7));
        S3::connect("store".parse().expect("a name"), &options, Arc::new(SystemClock), entropy).expect("a backend")
    }
}

async fn answer_once(mut socket: TcpStream, answer: Arc<Mutex<Vec<u8>>>) {
    let mut head = Vec::new();
    let mut buffer = [0; 4096];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        match socket.read(&mut buffer).await {
            Ok(length) if length > 0 => head.extend_from_slice(&buffer[..length]),
            _ => return,
        }
    }
    let bytes = answer.lock().clone();
    // A client that has read enough closes the connection first.
    drop(socket.write_all(&bytes).await);
    drop(socket.shutdown().await);
    while socket.read(&mut buffer).await.is_ok_and(|length| length > 0) {}
}

pub fn target(service: &mut ScriptedService, input: &[u8]) {
    let scripted = Scripted::read(input);
    service.answer.lock().clone_from(&scripted.bytes);
    let s3 = service.connect();
    let checks = async {
        check_list(&s3).await;
        check_delete(&s3, &scripted).await;
        check_probe(&s3, &scripted).await;
        check_get(&s3, &scripted).await;
        check_uploads(&s3, &scripted).await;
    };
    let checked = service.runtime.block_on(async { tokio::time::timeout(ANSWER_MAX, checks).await });
    checked.expect("every call returns");
}

async fn check_list(s3: &S3) {
    for (prefix, after) in [("b/", None), ("b/", Some("b/a~1")), (".s3o/", None), ("", Some("b/"))] {
        let Ok(page) = s3.list(prefix, after, 10).await else { continue };
        let mut previous = after.map(str::to_owned);
        for item in page.items {
            assert!(item.key.starts_with(prefix), "{} below {prefix}", item.key);
            assert!(prefix.starts_with(".s3o/") || !item.key.starts_with(".s3o/"), "{}", item.key);
            assert!(previous.is_none_or(|previous| previous < item.key), "out of order at {}", item.key);
            previous = Some(item.key);
        }
    }
}

async fn check_delete(s3: &S3, scripted: &Scripted) {
    let doomed = ["b/a~1", "b/<&>~2"].map(|key| DeleteKey { key: key.to_owned(), version_id: None });
    for batch in [&doomed[..], &doomed[..1]] {
        let answers = s3.delete_batch(batch).await;
        assert_eq!(answers.len(), batch.len());
        for answer in answers {
            let gone = matches!(answer, DeleteAnswer::Deleted | DeleteAnswer::Absent);
            assert!(!gone || scripted.may_prove_absence(), "{answer:?}");
        }
    }
}

async fn check_probe(s3: &S3, scripted: &Scripted) {
    match s3.probe("b/a~1".into()).await {
        Probe::Present(_) => assert!(scripted.is_success()),
        Probe::Absent => assert_eq!(scripted.status(), Some(404)),
        Probe::Unknown(_) => {}
    }
    if let Ok(Some(_)) = s3.read_own(".s3o/mark").await {
        assert!(scripted.is_success());
    }
}

async fn check_get(s3: &S3, scripted: &Scripted) {
    for span in [None, Some(Span { offset: 2, length: 5 })] {
        let Ok(mut stream) = s3.get("b/a~1".into(), span).await else { continue };
        assert!(scripted.is_success());
        let mut length = 0;
        let mut broken = false;
        while let Some(piece) = stream.next().await {
            match piece {
                Ok(bytes) => length += bytes.len() as u64,
                Err(_) => broken = true,
            }
        }
        if let Some(span) = span {
            assert!(length <= span.length && (broken || length == span.length), "{length} bytes of {span:?}");
        }
    }
}

async fn check_uploads(s3: &S3, scripted: &Scripted) {
    if let Ok(upload) = s3.start_upload("b/a~1").await {
        assert!(scripted.is_success() && !upload.is_empty());
    }
    let part = PartOf { key: "b/a~1", upload: "u", number: 1 };
    if let Ok(stored) = s3.put_part(part, 3, body::whole("abc".into())).await {
        assert!(scripted.is_success() && stored.number == 1);
    }
    let parts = [UploadedPart { number: 1, etag: "e".to_owned() }];
    if s3.finish_upload("b/a~1", "u", &parts).await.is_ok() {
        assert!(scripted.is_success());
    }
    if matches!(s3.abort_upload("b/a~1", "u").await, DeleteAnswer::Deleted | DeleteAnswer::Absent) {
        assert!(scripted.may_prove_absence());
    }
    if s3.uploads_of("b/a~1").await.is_ok() {
        assert!(scripted.is_success());
    }
    if s3.put("b/a~1", 3, body::whole("abc".into())).await.is_ok() {
        assert!(scripted.is_success());
    }
}
