//! Tests of the passes of the scrubber.

use std::time::Duration;

use s3o_model::ids::{BucketId, ContentId};

use super::fixture::{Fixture, backend};
use crate::{FindingSelection, ScrubEntry, ScrubPass, ScrubRetry};

const HOUR: Duration = Duration::from_hours(1);

/// Contents with a copy on `disk`, and one with a copy on `east` only.
async fn four(fixture: &Fixture) -> (BucketId, Vec<ContentId>) {
    let bucket = fixture.bucket_with_factor(1).await;
    let mut contents = Vec::new();
    for (name, place) in [("a", "disk"), ("b", "east"), ("c", "disk"), ("d", "disk")] {
        fixture.clock.advance(Duration::from_secs(1));
        contents.push(put(fixture, bucket, name, place).await);
    }
    (bucket, contents)
}

/// Writes an object with one copy.
async fn put(fixture: &Fixture, bucket: BucketId, name: &str, place: &str) -> ContentId {
    let mut intents = fixture.copy_intents(bucket, &[place]);
    intents[0].key = super::fixture::key(name);
    fixture.stage_copies(&intents).await.expect("staged");
    let put = fixture.put_of_copies(&intents, Vec::new(), 1);
    let content = put.content;
    fixture.commit_put(put).await.expect("committed");
    content
}

async fn pass(fixture: &Fixture) -> ScrubPass {
    let state = fixture.catalog.scrub_state().await.expect("a query");
    state.passes.into_iter().find(|pass| pass.backend == backend("disk")).expect("a pass")
}

/// Begins a pass on `disk` after the last one.
async fn begin(fixture: &Fixture) -> ScrubPass {
    let state = fixture.catalog.scrub_state().await.expect("a query");
    fixture.catalog.begin_scrub(&backend("disk"), state.passes.first()).await.expect("begun");
    pass(fixture).await
}

async fn settle(fixture: &Fixture, pass: &ScrubPass, page: &[ScrubEntry], later: &[ScrubRetry]) {
    fixture.catalog.settle_scrub(&backend("disk"), Some((pass, page)), later, &[]).await.expect("settled");
}

/// Reads the rest of a pass.
async fn finish(fixture: &Fixture) {
    loop {
        let pass = pass(fixture).await;
        let page = fixture.catalog.scrub_page(&pass, 2).await.expect("a page");
        settle(fixture, &pass, &page, &[]).await;
        if page.is_empty() {
            return;
        }
    }
}

fn copies(page: &[ScrubEntry]) -> Vec<ContentId> {
    page.iter().filter_map(|entry| entry.copy.as_ref()).map(|copy| copy.content).collect()
}

/// Contents without a copy on the backend belong to the page, so that the position moves on.
pub async fn pass_reads_contents_in_the_order_of_their_identifiers(fixture: &Fixture) {
    let (_, contents) = four(fixture).await;
    let first = begin(fixture).await;
    assert_eq!((first.total, first.done, first.position.as_str()), (4, 0, ""));
    let page = fixture.catalog.scrub_page(&first, 2).await.expect("a page");
    assert_eq!((page.len(), copies(&page)), (2, contents[..1].to_vec()));
    let read = page[0].copy.as_ref().expect("a copy");
    assert_eq!(read.location, fixture.copy_on(contents[0], "disk").await);
    assert!(read.is_trusted && !read.has_wrong_digest);
    settle(fixture, &first, &page, &[]).await;
    let second = pass(fixture).await;
    assert_eq!((second.done, &second.position), (2, &contents[1].to_string()));
    let page = fixture.catalog.scrub_page(&second, 2).await.expect("a page");
    assert_eq!(copies(&page), contents[2..]);
}

/// Two processes have read the same page.
pub async fn pass_is_moved_by_one_process(fixture: &Fixture) {
    four(fixture).await;
    let first = begin(fixture).await;
    let page = fixture.catalog.scrub_page(&first, 3).await.expect("a page");
    settle(fixture, &first, &page[..2], &[]).await;
    let moved = pass(fixture).await;
    settle(fixture, &first, &page, &[]).await;
    settle(fixture, &first, &[], &[]).await;
    assert_eq!(pass(fixture).await, moved);
}

/// Content that is written during a pass is read in the next one.
pub async fn pass_ends_after_the_content_that_existed_at_its_start(fixture: &Fixture) {
    let (bucket, contents) = four(fixture).await;
    begin(fixture).await;
    fixture.clock.advance(Duration::from_secs(1));
    put(fixture, bucket, "e", "disk").await;
    finish(fixture).await;
    let ended = pass(fixture).await;
    assert_eq!((ended.done, ended.position, ended.finished_at), (4, contents[3].to_string(), Some(fixture.now())));
    assert_eq!((begin(fixture).await.total, pass(fixture).await.position), (5, String::new()));
}

/// Two processes see that the next pass is due.
pub async fn next_pass_begins_after_the_last_one_ended(fixture: &Fixture) {
    four(fixture).await;
    let first = begin(fixture).await;
    fixture.clock.advance(HOUR);
    assert_eq!(begin(fixture).await, first, "it is under way");
    finish(fixture).await;
    let ended = pass(fixture).await;
    fixture.clock.advance(HOUR);
    let next = begin(fixture).await;
    assert_eq!((next.started_at, next.finished_at), (fixture.now(), None));
    let page = fixture.catalog.scrub_page(&next, 2).await.expect("a page");
    settle(fixture, &next, &page, &[]).await;
    let moved = pass(fixture).await;
    fixture.catalog.begin_scrub(&backend("disk"), Some(&ended)).await.expect("an answer");
    assert_eq!(pass(fixture).await, moved, "the other process began it");
}

/// The copy is due after its delay, until it was read or is gone.
pub async fn unread_copy_is_noted_and_read_again(fixture: &Fixture) {
    let (bucket, contents) = four(fixture).await;
    let (disk, first) = (backend("disk"), begin(fixture).await);
    let page = fixture.catalog.scrub_page(&first, 3).await.expect("a page");
    let retry = |content, delay, why: Option<&str>| ScrubRetry { content, delay, why: why.map(str::to_owned) };
    let later = [retry(contents[0], HOUR, Some("away")), retry(contents[2], Duration::ZERO, None)];
    settle(fixture, &first, &page, &later).await;
    assert_eq!(fixture.catalog.scrub_state().await.expect("a query").retries, [disk.clone()]);
    let (due, rows) = fixture.catalog.scrub_retries(&disk, 9).await.expect("a query");
    assert_eq!((due.len(), due[0].content, due[0].attempts, rows), (1, contents[2], 0, 1));
    fixture.catalog.settle_scrub(&disk, None, &[], &[contents[2]]).await.expect("settled");
    assert!(fixture.catalog.scrub_state().await.expect("a query").retries.is_empty());
    fixture.clock.advance(HOUR);
    let (due, _) = fixture.catalog.scrub_retries(&disk, 9).await.expect("a query");
    assert_eq!((due[0].content, due[0].attempts), (contents[0], 1));
    fixture.catalog.settle_scrub(&disk, None, &later[..1], &[]).await.expect("settled");
    fixture.clock.advance(HOUR);
    assert_eq!(fixture.catalog.scrub_retries(&disk, 9).await.expect("a query").0[0].attempts, 2);
    assert!(fixture.delete(bucket, "a").await);
    assert_eq!(fixture.catalog.scrub_retries(&disk, 9).await.expect("a query"), (vec![], 1));
    assert_eq!(fixture.catalog.scrub_retries(&disk, 9).await.expect("a query"), (vec![], 0));
}

/// A copy that is noted for later keeps the age that it had.
pub async fn age_counts_from_the_start_of_the_last_complete_pass(fixture: &Fixture) {
    assert_eq!(fixture.catalog.scrubbed_since().await.expect("a query"), None);
    let (_, contents) = four(fixture).await;
    let written = fixture.now().millis() - 3000;
    fixture.clock.advance(HOUR);
    let first = begin(fixture).await;
    let since = async || fixture.catalog.scrubbed_since().await.expect("a query").expect("a pass").0.millis();
    assert_eq!(since().await, written, "when the first content was written");
    let retry = ScrubRetry { content: contents[0], delay: HOUR, why: Some("away".to_owned()) };
    settle(fixture, &first, &fixture.catalog.scrub_page(&first, 1).await.expect("a page"), &[retry]).await;
    fixture.clock.advance(HOUR);
    finish(fixture).await;
    assert_eq!((since().await, pass(fixture).await.read_since), (written, first.started_at));
    fixture.catalog.settle_scrub(&backend("disk"), None, &[], &contents[..1]).await.expect("settled");
    assert_eq!(since().await, first.started_at.millis());
}

/// The stop is a finding, which every instance sees.
pub async fn stop_lasts_until_it_is_resumed(fixture: &Fixture) {
    for why in ["one", "two"] {
        fixture.catalog.stop_scrub(why).await.expect("stopped");
        assert_eq!(fixture.catalog.scrub_state().await.expect("a query").stopped.as_deref(), Some(why));
    }
    let findings = fixture.catalog.findings(&FindingSelection::default(), 0, 9).await.expect("a query");
    assert_eq!((findings.len(), findings[0].kind.as_str(), findings[0].detail.as_str()), (1, "scrub_stopped", "two"));
    fixture.catalog.resume_scrub().await.expect("resumed");
    assert_eq!(fixture.catalog.scrub_state().await.expect("a query").stopped, None);
}

/// A store that is attached under the same name later begins with a pass of its own.
pub async fn removed_backend_has_no_pass(fixture: &Fixture) {
    fixture.bucket("data").await;
    let (disk, first) = (backend("disk"), begin(fixture).await);
    let later = [ScrubRetry { content: fixture.content(), delay: HOUR, why: None }];
    settle(fixture, &first, &[], &later).await;
    fixture.catalog.begin_removal(&disk).await.expect("begun");
    assert_eq!(fixture.catalog.scrubbed_since().await.expect("a query"), None);
    fixture.catalog.finish_removal(&disk).await.expect("removed");
    assert!(fixture.catalog.scrub_state().await.expect("a query").passes.is_empty());
    assert_eq!(fixture.number("SELECT count(*) AS n FROM scrub_retries").await, 0);
}
