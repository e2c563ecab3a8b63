//! A row that makes its worker panic: it is counted and ends as a dead letter, and the others go.

use std::sync::Arc;
use std::time::Duration;

use s3o_backend::layers::{Fault, Weather};
use s3o_catalog::{Cleanups as _, DeadLetters as _, Mode};
use s3o_engine::DeleteObject;
use s3o_model::cleanup::Selection;
use s3o_model::conditions::WriteCondition;
use s3o_tests::house::{House, bucket, key};

/// A store whose client panics over one key.
struct Poison;

impl Weather for Poison {
    fn strike(&self, operation: &'static str, key: &str) -> Option<Fault> {
        assert!(operation != "delete_batch" || !key.contains("poison"), "scripted");
        None
    }
}

#[tokio::test]
async fn a_row_that_panics_keeps_no_other_and_is_buried_in_the_end() {
    let house = House::new(1 << 20, Mode::Inline).await;
    for name in ["poison", "b", "c"] {
        house.engine.put_object(house.put(name, b"bytes", &Arc::new(()))).await.expect("stored");
        let delete = DeleteObject { bucket: bucket(), key: key(name), condition: WriteCondition::None };
        house.engine.delete_object(delete).await.expect("deleted");
    }
    house.flaky.set_weather(Some(Arc::new(Poison)));
    let report = house.clean_after(Duration::ZERO).await;
    assert_eq!(report.items.into_iter().collect::<Vec<_>>(), [("retry", 1), ("success", 2)]);
    for _ in 1..10 {
        house.clean_after(Duration::from_hours(1)).await;
    }
    let letters = house.catalog.dead_letters(&Selection::default(), 0, 9).await.expect("a page");
    assert_eq!((letters.len(), letters[0].attempts), (1, 10));
    assert!(letters[0].physical_key.contains("poison"));
    assert_eq!(house.catalog.depths().await.expect("depths").cleanups, 0);
}
