//! Guards of the scrubber: only the copy that was read is accused, none is lost while another may be good, and wrong
//! bytes are not served.

use super::Cut::Words;
use super::{Damage, damage_if, guards};
use crate::conformance::fixture::{Fixture, backend};
use crate::{Accused, ScrubCopy, ScrubRetry};

const NOT_READ: &str = "a copy that was not read is suspect";
const GOOD_LOST: &str = "a copy is lost although another one is present";
const SERVED: &str = "wrong bytes are served";
const COUNTED: &str = "a copy with wrong bytes counts";
const SKIPPED: &str = "a pass skips contents";
const RETURNED: &str = "a copy that was written off counts";
const SIZE: &str = "a location is as large as its content";

guards! { [sqlite]
    only_the_copy_that_was_read_is_accused in a_copy_is_replaced_during_its_read: "accuse_copy",
        [Words(" AND physical_key = $3", "")], [NOT_READ];
    a_copy_is_not_lost_beside_a_present_one in one_of_two_copies_is_accused: "accuse_copy",
        [Words(" AND g.state <> 'lost')", " AND g.state = 'lost')")], [GOOD_LOST];
    a_copy_with_a_wrong_digest_is_not_read in a_wrong_copy_is_read: "read",
        [Words(" AND l.wrong_digest = 0", "")], [SERVED];
    a_probe_clears_no_wrong_digest in a_wrong_copy_is_probed: "confirm_copy",
        [Words(" AND state <> 'lost' AND wrong_digest = 0", "")], [COUNTED];
    a_pass_is_moved_from_where_it_was_read in two_processes_move_a_pass: "settle_scrub",
        [Words(" AND position = $3", " AND $3 = $3")], [SKIPPED];
    a_copy_that_was_written_off_is_not_proven in a_copy_is_written_off_during_its_read: "prove_copy",
        [Words(" AND (state <> 'lost' OR wrong_digest = 1)", "")], [RETURNED, SIZE];
}

/// The copy on `disk`, as the scrubber reads it.
async fn read_copy(fixture: &Fixture, backends: &[&str]) -> ScrubCopy {
    let bucket = fixture.bucket_with_factor(backends.len()).await;
    let content = fixture.put_copies(bucket, backends, backends.len()).await;
    ScrubCopy {
        content,
        location: fixture.copy_on(content, "disk").await,
        size_bytes: 5,
        md5: None,
        sha256: None,
        is_trusted: true,
        has_wrong_digest: false,
        attempts: 0,
    }
}

async fn a_copy_is_replaced_during_its_read(fixture: &Fixture) -> Damage {
    let copy = read_copy(fixture, &["disk"]).await;
    fixture.change("UPDATE object_locations SET physical_key = physical_key || '2'", vec![]).await;
    let accused = fixture.catalog.accuse_copy(&copy).await.expect("an answer");
    damage_if(accused != Accused::Changed, NOT_READ)
}

async fn one_of_two_copies_is_accused(fixture: &Fixture) -> Damage {
    let copy = read_copy(fixture, &["disk", "east"]).await;
    let accused = fixture.catalog.accuse_copy(&copy).await.expect("an answer");
    damage_if(accused == Accused::Lost, GOOD_LOST)
}

async fn a_wrong_copy_is_read(fixture: &Fixture) -> Damage {
    let copy = read_copy(fixture, &["disk", "east"]).await;
    fixture.catalog.accuse_copy(&copy).await.expect("an answer");
    let readable = fixture.catalog.readable_copies(copy.content).await.expect("a query");
    damage_if(readable.len() > 1, SERVED)
}

/// The probe began before the copy was accused.
async fn a_wrong_copy_is_probed(fixture: &Fixture) -> Damage {
    let copy = read_copy(fixture, &["disk", "east"]).await;
    fixture.catalog.accuse_copy(&copy).await.expect("an answer");
    fixture.catalog.confirm_copy(copy.content, &copy.location).await.expect("an answer");
    damage_if(fixture.copy_work(false).await.is_empty(), COUNTED)
}

async fn two_processes_move_a_pass(fixture: &Fixture) -> Damage {
    read_copy(fixture, &["disk", "east"]).await;
    let disk = backend("disk");
    fixture.catalog.begin_scrub(&disk, None).await.expect("begun");
    let pass = fixture.catalog.scrub_state().await.expect("a query").passes.remove(0);
    let page = fixture.catalog.scrub_page(&pass, 9).await.expect("a page");
    let unread: [ScrubRetry; 0] = [];
    for _ in 0..2 {
        fixture.catalog.settle_scrub(&disk, Some((&pass, &page)), &unread, &[]).await.expect("settled");
    }
    let moved = fixture.catalog.scrub_state().await.expect("a query").passes.remove(0);
    damage_if(moved.done > moved.total, SKIPPED)
}

async fn a_copy_is_written_off_during_its_read(fixture: &Fixture) -> Damage {
    let (copy, disk) = (read_copy(fixture, &["disk"]).await, backend("disk"));
    fixture.catalog.begin_write_off(&disk).await.expect("begun");
    while fixture.catalog.write_off_copies(&disk, "").await.expect("written off").is_some() {}
    fixture.catalog.prove_copy(&copy).await.expect("an answer");
    damage_if(fixture.number("SELECT count(*) AS n FROM object_locations WHERE state = 'present'").await > 0, RETURNED)
}
