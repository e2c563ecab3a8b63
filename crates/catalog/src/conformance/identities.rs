//! Facts about the marks of backends.

use super::refused;
use super::scene::{Scene, backend};
use crate::{Identities, KnownBackend, Verdict};

/// The first name that is offered stays the cluster's.
pub async fn a_cluster_keeps_its_first_name(scene: &Scene) {
    assert_eq!(scene.catalog.cluster_id("one").await.expect("named"), "one");
    assert_eq!(scene.catalog.cluster_id("two").await.expect("named"), "one");
}

/// A backend that was never seen is entered, without a mark.
pub async fn a_new_backend_has_no_mark(scene: &Scene) {
    let known = scene.catalog.known_backend(&backend("disk")).await.expect("entered");
    assert_eq!(known, KnownBackend::default());
}

/// A planned mark stands until it is confirmed: another plan is told of it.
pub async fn an_unconfirmed_mark_is_kept(scene: &Scene) {
    let disk = scene.attach("disk", None).await;
    assert_eq!(scene.catalog.plan_mark(&disk, "m1").await.expect("planned"), "m1");
    assert_eq!(scene.catalog.plan_mark(&disk, "m2").await.expect("planned"), "m1");
    refused(scene.catalog.confirm_mark(&disk, "m2").await, Verdict::RunAgain);
    let known = scene.catalog.known_backend(&disk).await.expect("known");
    assert_eq!((known.mark, known.next_mark.as_deref()), (None, Some("m1")));
    scene.catalog.confirm_mark(&disk, "m1").await.expect("confirmed");
    refused(scene.catalog.confirm_mark(&disk, "m1").await, Verdict::RunAgain);
    let known = scene.catalog.known_backend(&disk).await.expect("known");
    assert_eq!((known.mark.as_deref(), known.next_mark, known.past_marks), (Some("m1"), None, vec![]));
}

/// The last sixteen marks are kept, newest last, each backend's its own.
pub async fn past_marks_are_kept(scene: &Scene) {
    let disk = scene.attach("disk", None).await;
    scene.attach("other", None).await;
    for number in 0..20 {
        let mark = format!("m{number}");
        scene.catalog.plan_mark(&disk, &mark).await.expect("planned");
        scene.catalog.confirm_mark(&disk, &mark).await.expect("confirmed");
    }
    let known = scene.catalog.known_backend(&disk).await.expect("known");
    let expected: Vec<String> = (3..19).map(|number| format!("m{number}")).collect();
    assert_eq!((known.mark.as_deref(), known.past_marks), (Some("m19"), expected));
    let other = scene.catalog.known_backend(&backend("other")).await.expect("known");
    assert_eq!(other, KnownBackend::default());
}

/// A backend is frozen with its reason, and thawed.
pub async fn a_backend_is_frozen_and_thawed(scene: &Scene) {
    let disk = scene.attach("disk", None).await;
    for reason in [Some("another cluster's mark"), None] {
        scene.catalog.set_frozen(&disk, reason).await.expect("set");
        let known = scene.catalog.known_backend(&disk).await.expect("known");
        assert_eq!(known.frozen_reason.as_deref(), reason);
    }
}
