//! Backend uploads (S3 multipart): parts of a body that is too large for one request.

use bytes::Bytes;
use http::Method;
use http::header::CONTENT_TYPE;

use s3o_model::target::KeyVersion;

use super::S3;
use super::answer::{ErrorResponse, as_delete_answer};
use super::list::KeyDecoder;
use super::objects::{streamed, version_id};
use super::transport::{Payload, RequestError, S3Request, SuccessResponse, etag, unquote};
use super::xml::{XmlElement, element};
use crate::{ByteStream, DeleteAnswer, Error, PartOf, Probe, UnfinishedUpload, UploadedPart, UploadsPage, Written};

/// Number of pages of unfinished uploads that share one key as a prefix.
const PAGES_MAX: usize = 1000;

impl S3 {
    pub(super) async fn create_upload(&self, key: &str) -> Result<String, Error> {
        let answer = self.transport.answer(S3Request::new(Method::POST, Some(key), &[("uploads", "")])).await?;
        let root = XmlElement::parse(&answer.body)?;
        let upload = root.child_text("UploadId").filter(|upload| !upload.is_empty());
        upload.map(str::to_owned).ok_or_else(|| Error::Unknown("the response has no UploadId".to_owned()))
    }

    pub(super) async fn upload_part(
        &self,
        part: PartOf<'_>,
        size_bytes: u64,
        body: ByteStream,
    ) -> Result<UploadedPart, Error> {
        let number = part.number.to_string();
        let query = [("partNumber", number.as_str()), ("uploadId", part.upload)];
        let payload = streamed(size_bytes, body).await?;
        let request = S3Request::new(Method::PUT, Some(part.key), &query).with_payload(payload);
        let answer = self.transport.answer(request).await?;
        let etag =
            etag(&answer.headers).ok_or_else(|| Error::Unknown("the response to a part has no ETag".to_owned()))?;
        Ok(UploadedPart { number: part.number, etag })
    }

    pub(super) async fn complete_upload(
        &self,
        key: &str,
        upload: &str,
        parts: &[UploadedPart],
    ) -> Result<Written, Error> {
        let query = [("uploadId", upload)];
        let request = S3Request::new(Method::POST, Some(key), &query)
            .header(CONTENT_TYPE, "application/xml")
            .with_payload(Payload::Known(Bytes::from(parts_document(parts))));
        let answer = self.transport.answer(request).await?;
        let etag = completed(&answer)?;
        // The response does not contain the size of the object.
        let version_id = version_id(&answer.headers);
        let Probe::Present(present) = self.probe_object(KeyVersion::new(key, version_id.as_deref())).await else {
            return Err(Error::Unknown("the upload was completed, but its object was not found".to_owned()));
        };
        if version_id.is_some() {
            self.set_keeps_versions();
        }
        Ok(Written { size_bytes: present.size_bytes, etag: etag.or(present.etag), version_id })
    }

    pub(super) async fn abandon_upload(&self, key: &str, upload: &str) -> DeleteAnswer {
        let query = [("uploadId", upload)];
        match self.transport.answer(S3Request::new(Method::DELETE, Some(key), &query)).await {
            Ok(_) => DeleteAnswer::Deleted,
            Err(RequestError::Response(failure)) => match failure.delete_answer() {
                // An absent key says nothing about its uploads.
                DeleteAnswer::Absent if failure.code != "NoSuchUpload" => DeleteAnswer::Unknown(failure.to_string()),
                answer => answer,
            },
            Err(RequestError::Lost(error)) => as_delete_answer(&error),
        }
    }

    pub(super) async fn unfinished_uploads(&self, key: &str) -> Result<Vec<String>, Error> {
        let mut found = Vec::new();
        let mut from = None;
        for _ in 0..PAGES_MAX {
            let page = self.uploads_page(key, from.as_ref()).await?;
            found.extend(page.items.into_iter().filter(|item| item.key == key).map(|item| item.upload));
            match page.next {
                None => return Ok(found),
                next => from = next,
            }
        }
        Err(Error::Unknown("the listing of uploads has more than 1000 pages".to_owned()))
    }

    pub(super) async fn all_uploads(&self, from: Option<&UnfinishedUpload>) -> Result<UploadsPage, Error> {
        self.uploads_page("", from).await
    }

    async fn uploads_page(&self, prefix: &str, from: Option<&UnfinishedUpload>) -> Result<UploadsPage, Error> {
        let mut query = vec![("uploads", ""), ("encoding-type", "url")];
        if !prefix.is_empty() {
            query.push(("prefix", prefix));
        }
        if let Some(from) = from {
            query.push(("key-marker", &from.key));
            query.push(("upload-id-marker", &from.upload));
        }
        match read_uploads(&self.transport.listing(&query).await?)? {
            page if page.next.is_some() && page.next.as_ref() == from => {
                Err(Error::Unknown("the listing of uploads returned the same marker again".to_owned()))
            }
            page => Ok(page),
        }
    }
}

fn read_uploads(root: &XmlElement) -> Result<UploadsPage, Error> {
    if root.name != "ListMultipartUploadsResult" {
        return Err(Error::Unknown(format!("the listing of uploads returned <{}>", root.name)));
    }
    let decoder = KeyDecoder::of(root);
    let read = |element: &XmlElement, key: &str, upload: &str| {
        let key = decoder.decode(element.child_text(key).unwrap_or_default())?;
        Ok::<_, Error>(UnfinishedUpload { key, upload: element.child_text(upload).unwrap_or_default().to_owned() })
    };
    let items = root.all("Upload").map(|entry| read(entry, "Key", "UploadId")).collect::<Result<_, _>>()?;
    let truncated = root.child_text("IsTruncated") == Some("true");
    let next = if truncated { Some(read(root, "NextKeyMarker", "NextUploadIdMarker")?) } else { None };
    Ok(UploadsPage { items, next })
}

/// Reads the response of `CompleteMultipartUpload`: a service may send 200 first and an error later, in the body.
fn completed(answer: &SuccessResponse) -> Result<Option<String>, Error> {
    let root = XmlElement::parse(&answer.body)?;
    match root.name.as_str() {
        "CompleteMultipartUploadResult" => Ok(root.child_text("ETag").map(unquote)),
        "Error" => Err(ErrorResponse::read(http::StatusCode::INTERNAL_SERVER_ERROR, &answer.body).error()),
        other => Err(Error::Unknown(format!("completing an upload returned <{other}>"))),
    }
}

fn parts_document(parts: &[UploadedPart]) -> String {
    let parts = parts.iter().map(|part| {
        let (number, etag) = (part.number.to_string(), format!("\"{}\"", part.etag));
        format!("<Part>{}{}</Part>", element("PartNumber", &number), element("ETag", &etag))
    });
    let parts: String = parts.collect();
    format!(
        r#"<CompleteMultipartUpload xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{parts}</CompleteMultipartUpload>"#
    )
}

#[cfg(test)]
mod tests {
    use super::{SuccessResponse, completed, read_uploads};
    use crate::s3::xml::XmlElement;
    use crate::{Error, UnfinishedUpload};
    use bytes::Bytes;
    use http::HeaderMap;

    #[test]
    fn error_in_the_body_of_a_200_is_an_error() {
        let answer = |body: &'static str| SuccessResponse { headers: HeaderMap::new(), body: Bytes::from(body) };
        let failed = completed(&answer("<Error><Code>InternalError</Code></Error>"));
        assert!(matches!(failed, Err(Error::Away(_))));
        let done = completed(&answer(
            "<CompleteMultipartUploadResult><ETag>&quot;x-2&quot;</ETag></CompleteMultipartUploadResult>",
        ));
        assert_eq!(done.expect("done"), Some("x-2".to_owned()));
        assert!(completed(&answer("")).is_err());
    }

    #[test]
    fn uploads_are_read_with_their_next_markers() {
        let document = b"<ListMultipartUploadsResult><IsTruncated>true</IsTruncated><NextKeyMarker>ab</NextKeyMarker>\
            <NextUploadIdMarker>2</NextUploadIdMarker><Upload><Key>a</Key><UploadId>1</UploadId></Upload>\
            <Upload><Key>ab</Key><UploadId>2</UploadId></Upload></ListMultipartUploadsResult>";
        let root = XmlElement::parse(document).expect("valid");
        let page = read_uploads(&root).expect("read");
        let unfinished = |key: &str, upload: &str| UnfinishedUpload { key: key.to_owned(), upload: upload.to_owned() };
        assert_eq!(page.items, [unfinished("a", "1"), unfinished("ab", "2")]);
        assert_eq!(page.next, Some(unfinished("ab", "2")));
    }
}
