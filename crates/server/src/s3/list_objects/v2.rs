//! `ListObjectsV2`.

use s3o_model::listing::ListQuery;
use s3s::dto::{EncodingType, ListObjectsV2Input, ListObjectsV2Output};
use s3s::{S3Request, S3Response};

use super::{entries, names as page_names, page_size};
use crate::s3::errors::refuse;
use crate::s3::s3_handler::{S3Answer, S3Handler};
use crate::s3::url_encoding::NameEncoding;
use crate::s3::{names, tokens};

/// Lists objects.
pub async fn list(handler: &S3Handler, request: S3Request<ListObjectsV2Input>) -> S3Answer<ListObjectsV2Output> {
    let input = request.input;
    let encoding = NameEncoding::requested(input.encoding_type.as_ref().map(EncodingType::as_str))?;
    let max_keys = page_size(input.max_keys, "max-keys")?;
    let continued = tokens::requested(input.continuation_token.as_deref())?;
    let prefix = input.prefix.unwrap_or_default();
    let delimiter = input.delimiter.filter(|delimiter| !delimiter.is_empty());
    let start_after = input.start_after.filter(|start| !start.is_empty());
    let query = ListQuery {
        prefix: prefix.clone(),
        delimiter: delimiter.clone(),
        after: continued.or_else(|| start_after.clone()),
        limit: usize::try_from(max_keys).unwrap_or_default(),
    };
    let page = handler.engine.list_objects(&names::bucket(&input.bucket)?, query).await.map_err(refuse)?;
    let encoding = encoding.fit_for(page_names(&page).chain([prefix.as_str()]).chain(start_after.as_deref()));
    let next = page.next_after.as_deref().map(tokens::encode);
    let (contents, common_prefixes) = entries(page, encoding, input.fetch_owner.unwrap_or(false));
    Ok(S3Response::new(ListObjectsV2Output {
        name: Some(input.bucket),
        prefix: Some(encoding.write(&prefix)),
        delimiter: delimiter.map(|delimiter| encoding.write(&delimiter)),
        start_after: start_after.map(|start| encoding.write(&start)),
        max_keys: Some(max_keys),
        key_count: i32::try_from(contents.len() + common_prefixes.len()).ok(),
        continuation_token: input.continuation_token.filter(|token| !token.is_empty()),
        is_truncated: Some(next.is_some()),
        next_continuation_token: next,
        contents: Some(contents),
        common_prefixes: Some(common_prefixes),
        encoding_type: encoding.stated(),
        request_charged: None,
    }))
}
