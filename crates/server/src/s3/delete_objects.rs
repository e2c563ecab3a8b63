//! DeleteObjects.

use s3o_engine::{DeleteFailure, DeleteTarget};
use s3o_model::etag::ETag;
use s3s::dto::{DeleteObjectsInput, DeleteObjectsOutput, DeletedObject, Error, ObjectIdentifier};
use s3s::{S3Request, S3Response};

use super::errors::refuse;
use super::names;
use super::refusal::Refusal;
use super::s3_handler::{S3Answer, S3Handler};
use crate::middleware::RequestContext;

/// The most objects that one request may delete.
const TARGETS_MAX: usize = 1000;

/// Deletes up to 1000 objects; each key has its own result.
pub async fn delete(handler: &S3Handler, request: S3Request<DeleteObjectsInput>) -> S3Answer<DeleteObjectsOutput> {
    let input = request.input;
    let objects = input.delete.objects;
    if objects.is_empty() || objects.len() > TARGETS_MAX {
        return Err(Refusal::new("MalformedXML").into());
    }
    let bucket = names::bucket(&input.bucket)?;
    let named: Vec<String> = objects.iter().map(|object| object.key.clone()).collect();
    if let Some(context) = request.extensions.get::<RequestContext>() {
        context.set_keys(named.clone());
    }
    let targets: Vec<Result<DeleteTarget, Refusal>> = objects.into_iter().map(target).collect();
    let valid = targets.iter().filter_map(|target| target.as_ref().ok().cloned()).collect();
    let results = handler.engine.delete_objects(&bucket, valid).await.map_err(refuse)?;
    let outcomes = merge(targets, results);
    Ok(S3Response::new(report(named, outcomes, input.delete.quiet.unwrap_or(false))))
}

fn target(object: ObjectIdentifier) -> Result<DeleteTarget, Refusal> {
    names::version(object.version_id.as_deref())?;
    if object.last_modified_time.is_some() || object.size.is_some() {
        return Err(Refusal::new("NotImplemented"));
    }
    let if_match = object.e_tag.map(|etag| ETag::from_text(etag.value()));
    Ok(DeleteTarget { key: names::key(&object.key)?, if_match })
}

/// Merges the engine's results with the targets that were refused before.
fn merge(
    targets: Vec<Result<DeleteTarget, Refusal>>,
    results: Vec<Result<(), DeleteFailure>>,
) -> Vec<Result<(), Refusal>> {
    let mut results = results.into_iter();
    let missing = || Err(Refusal::new("InternalError"));
    let outcome = |target: Result<DeleteTarget, Refusal>| {
        target
            .and_then(|_| results.next().map_or_else(missing, |result| result.map_err(|failure| refuse_one(&failure))))
    };
    targets.into_iter().map(outcome).collect()
}

fn refuse_one(failure: &DeleteFailure) -> Refusal {
    match failure {
        DeleteFailure::PreconditionFailed => Refusal::new("PreconditionFailed"),
        DeleteFailure::Away(why) => {
            tracing::warn!(error = why, "object of DeleteObjects not deleted, answered ServiceUnavailable");
            Refusal::new("ServiceUnavailable")
        }
    }
}

fn report(names: Vec<String>, outcomes: Vec<Result<(), Refusal>>, quiet: bool) -> DeleteObjectsOutput {
    let (mut deleted, mut errors) = (Vec::new(), Vec::new());
    for (key, outcome) in names.into_iter().zip(outcomes) {
        match outcome {
            Ok(()) if quiet => {}
            Ok(()) => deleted.push(DeletedObject { key: Some(key), ..DeletedObject::default() }),
            Err(refusal) => errors.push(Error {
                key: Some(key),
                code: Some(refusal.code.into_owned()),
                message: Some(refusal.message.into_owned()),
                version_id: None,
            }),
        }
    }
    DeleteObjectsOutput { deleted: Some(deleted), errors: Some(errors), ..DeleteObjectsOutput::default() }
}

#[cfg(test)]
mod tests {
    use super::{merge, report, target};
    use s3o_engine::DeleteFailure;
    use s3s::dto::ObjectIdentifier;

    fn object(key: &str) -> ObjectIdentifier {
        ObjectIdentifier { key: key.to_owned(), ..ObjectIdentifier::default() }
    }

    #[test]
    fn each_key_gets_its_own_result() {
        let long = "k".repeat(1025);
        let targets = vec![target(object("a")), target(object(&long)), target(object("b"))];
        let outcomes = merge(targets, vec![Ok(()), Err(DeleteFailure::PreconditionFailed)]);
        let output = report(vec!["a".into(), long, "b".into()], outcomes, false);
        assert_eq!(output.deleted.unwrap()[0].key.as_deref(), Some("a"));
        let codes: Vec<_> = output.errors.unwrap().into_iter().filter_map(|error| error.code).collect();
        assert_eq!(codes, ["KeyTooLongError", "PreconditionFailed"]);
    }

    #[test]
    fn quiet_mode_reports_only_failures() {
        let outcomes = merge(vec![target(object("a"))], vec![Ok(())]);
        assert!(report(vec!["a".into()], outcomes, true).deleted.unwrap().is_empty());
    }

    #[test]
    fn only_the_null_version_exists() {
        let versioned = ObjectIdentifier { version_id: Some("v1".into()), ..object("a") };
        assert_eq!(target(versioned).unwrap_err().code, "NoSuchVersion");
    }
}
