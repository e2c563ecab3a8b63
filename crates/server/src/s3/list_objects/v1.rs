//! ListObjects, the first version.

use s3o_model::listing::ListQuery;
use s3s::dto::{EncodingType, ListObjectsInput, ListObjectsOutput};
use s3s::{S3Request, S3Response};

use super::{entries, names as page_names, page_size};
use crate::s3::errors::refuse;
use crate::s3::names;
use crate::s3::s3_handler::{S3Answer, S3Handler};
use crate::s3::url_encoding::{NameEncoding, forbidden_in_xml};

/// Lists objects.
pub async fn list(handler: &S3Handler, request: S3Request<ListObjectsInput>) -> S3Answer<ListObjectsOutput> {
    let input = request.input;
    let encoding = NameEncoding::requested(input.encoding_type.as_ref().map(EncodingType::as_str))?;
    let max_keys = page_size(input.max_keys, "max-keys")?;
    let prefix = input.prefix.unwrap_or_default();
    let marker = input.marker.unwrap_or_default();
    let delimiter = input.delimiter.filter(|delimiter| !delimiter.is_empty());
    let query = ListQuery {
        prefix: prefix.clone(),
        delimiter: delimiter.clone(),
        after: Some(marker.clone()).filter(|marker| !marker.is_empty()),
        limit: usize::try_from(max_keys).unwrap_or_default(),
    };
    let page = handler.engine.list_objects(&names::bucket(&input.bucket)?, query).await.map_err(refuse)?;
    let encoding = encoding.fit_for(page_names(&page).chain([prefix.as_str(), marker.as_str()]));
    let next_marker = page.next_after.as_deref().map(|after| encoding.write(after));
    let (contents, common_prefixes) = entries(page, encoding, true);
    Ok(S3Response::new(ListObjectsOutput {
        name: Some(input.bucket),
        prefix: Some(shown_prefix(&prefix, encoding)),
        marker: Some(encoding.write(&marker)),
        delimiter: delimiter.map(|delimiter| encoding.write(&delimiter)),
        max_keys: Some(max_keys),
        is_truncated: Some(next_marker.is_some()),
        // S3 answers it only with a delimiter; some clients need it always.
        next_marker,
        contents: Some(contents),
        common_prefixes: Some(common_prefixes),
        encoding_type: encoding.stated(),
        request_charged: None,
    }))
}

/// boto3 decodes every name of this listing except the prefix, other clients decode the prefix too. So the prefix is
/// encoded only if decoding would change it or XML cannot represent it.
fn shown_prefix(prefix: &str, encoding: NameEncoding) -> String {
    let differs = |character: char| matches!(character, '%' | '+') || forbidden_in_xml(character);
    if prefix.chars().any(differs) { encoding.write(prefix) } else { prefix.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::shown_prefix;
    use crate::s3::url_encoding::NameEncoding;

    #[test]
    fn prefix_is_encoded_only_if_decoding_would_change_it() {
        for prefix in ["a b", "a\nb", "\u{fc}/", "a\u{7f}"] {
            assert_eq!(shown_prefix(prefix, NameEncoding::Url), prefix);
        }
        for (prefix, encoded) in [("a%20b", "a%2520b"), ("a+b", "a%2Bb"), ("a\u{1}", "a%01")] {
            assert_eq!(shown_prefix(prefix, NameEncoding::Url), encoded);
            assert_eq!(shown_prefix(prefix, NameEncoding::Plain), prefix);
        }
    }
}
