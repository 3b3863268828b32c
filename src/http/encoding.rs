//! Content codings (RFC 9110, 8.4): encoded request bodies are rejected, large responses are compressed.
//!
//! The length of a compressed response reveals a secret in it when an attacker controls other parts of it (BREACH). So
//! a response is compressed only if its route declares that its responses hold no secrets.

use std::future::poll_fn;
use std::io::Write as _;
use std::pin::Pin;

use actix_web::HttpResponse;
use actix_web::body::{BodySize, BodyStream, BoxBody, MessageBody as _};
use actix_web::http::StatusCode;
use actix_web::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, ETAG, HeaderMap, HeaderName, HeaderValue, VARY};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::stream::{self, Stream};

use crate::rationing::cpu;

/// Error text for an encoded request body.
pub const ENCODED_BODY_ERROR: &str = "Content-Encoding: not supported for request bodies; send the body unencoded";
/// Smallest response that is compressed, in bytes.
const MIN_COMPRESSED_BYTES: u64 = 8 << 10;
/// Suffix of the entity tag of a compressed response, before the closing quote.
const GZIP_TAG_SUFFIX: &str = "-gzip";

/// `true` if a request body has a content coding other than `identity`.
pub fn is_encoded(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(CONTENT_ENCODING).flat_map(|value| value.as_bytes().split(|b| *b == b','));
    codings.any(|coding| !matches!(coding.trim_ascii(), b"") && !coding.trim_ascii().eq_ignore_ascii_case(b"identity"))
}

/// Adds `Accept-Encoding: identity` to the rejection of an encoded body (RFC 9110, 12.5.3).
pub fn add_accept_encoding(response: &mut HttpResponse, request: &HeaderMap) {
    if response.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE && is_encoded(request) {
        response.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
}

/// Compresses a response without secrets if it is large and the client accepts gzip.
pub async fn compress_if_accepted(mut response: HttpResponse, request: &HeaderMap) -> HttpResponse {
    response.headers_mut().append(VARY, HeaderValue::from_static("accept-encoding"));
    let large = match response.body().size() {
        BodySize::Sized(length) => length >= MIN_COMPRESSED_BYTES,
        BodySize::Stream => true,
        BodySize::None => false,
    };
    if !large || response.status() != StatusCode::OK || !accepts_gzip(request) {
        return response;
    }
    let (response, body) = response.into_parts();
    if body.size() == BodySize::Stream {
        return mark_compressed(response.set_body(BodyStream::new(compress_stream(body))).map_into_boxed_body());
    }
    let bytes = match body.try_into_bytes() {
        Ok(bytes) => bytes,
        // A body in several chunks from a shared buffer is not compressed.
        Err(body) => return response.set_body(body),
    };
    let plain = bytes.clone();
    match cpu::run(move || compress(&bytes)).await {
        Ok(Ok(short)) => mark_compressed(response.set_body(short).map_into_boxed_body()),
        _ => response.set_body(plain).map_into_boxed_body(),
    }
}

fn compress(bytes: &[u8]) -> std::io::Result<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::fast());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?.into())
}

type BoxError = Box<dyn std::error::Error>;

/// Compresses a body of unknown length while it is produced. If the body fails, the stream ends with its error.
fn compress_stream(body: BoxBody) -> impl Stream<Item = Result<Bytes, BoxError>> {
    let encoder = GzEncoder::new(Vec::new(), Compression::fast());
    stream::try_unfold(Some((Box::pin(body), encoder)), |state| async move {
        let Some((mut body, mut encoder)) = state else { return Ok(None) };
        while let Some(piece) = next_chunk(body.as_mut()).await? {
            encoder = cpu::run(move || encoder.write_all(&piece).map(|()| encoder)).await??;
            let short = std::mem::take(encoder.get_mut());
            if !short.is_empty() {
                return Ok(Some((short.into(), Some((body, encoder)))));
            }
        }
        Ok(Some((encoder.finish()?.into(), None)))
    })
}

async fn next_chunk(mut body: Pin<&mut BoxBody>) -> Result<Option<Bytes>, BoxError> {
    poll_fn(|cx| body.as_mut().poll_next(cx)).await.transpose()
}

/// Marks a response as compressed. Its bytes differ, so its strong entity tag must too (RFC 9110, 8.8.3.3).
fn mark_compressed(mut response: HttpResponse) -> HttpResponse {
    let headers = response.headers_mut();
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    let tag = headers.get(ETAG).and_then(|tag| tag.to_str().ok()?.strip_suffix('"').map(str::to_owned));
    if let Some(tag) = tag.and_then(|tag| HeaderValue::from_str(&format!("{tag}{GZIP_TAG_SUFFIX}\"")).ok()) {
        headers.insert(ETAG, tag);
    }
    response
}

/// Returns the entity tag of the uncompressed response; `tag` may be the tag of the compressed one.
pub fn uncompressed_tag(tag: &str) -> String {
    tag.strip_suffix('"')
        .and_then(|tag| tag.strip_suffix(GZIP_TAG_SUFFIX))
        .map_or_else(|| tag.to_owned(), |tag| format!("{tag}\""))
}

/// `true` if the client accepts gzip, by name or as `*`, with a weight above 0 (RFC 9110, 12.5.3).
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(HeaderName::from_static("accept-encoding")).filter_map(|value| value.to_str().ok());
    let mut named = None;
    let mut any = None;
    for item in lines.flat_map(|line| line.split(',')) {
        let mut parts = item.split(';').map(str::trim);
        let coding = parts.next().unwrap_or_default();
        let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        let wanted = weight.is_none_or(|weight| weight.parse::<f32>().is_ok_and(|weight| weight > 0.0));
        match coding {
            "*" => any = Some(wanted),
            _ if coding.eq_ignore_ascii_case("gzip") || coding.eq_ignore_ascii_case("x-gzip") => named = Some(wanted),
            _ => {}
        }
    }
    named.or(any).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    fn request_with(name: &'static str, lines: &[&'static str]) -> actix_web::HttpRequest {
        let request = lines.iter().fold(TestRequest::default(), |request, line| request.append_header((name, *line)));
        request.to_http_request()
    }

    #[test]
    fn gzip_is_used_only_if_the_client_accepts_it() {
        for (lines, taken) in [
            (&[][..], false),
            (&["gzip"], true),
            (&["deflate, GZIP;q=0.5"], true),
            (&["deflate", "gzip"], true),
            (&["x-gzip"], true),
            (&["*"], true),
            (&["*;q=0"], false),
            (&["gzip;q=0, *"], false),
            (&["gzip; q=0.000"], false),
            (&["*;q=0, gzip;q=1"], true),
            (&["identity"], false),
            (&["gzip;q=x"], false),
            (&["gzipped"], false),
        ] {
            assert_eq!(accepts_gzip(request_with("accept-encoding", lines).headers()), taken, "{lines:?}");
        }
    }

    #[test]
    fn request_body_is_encoded_unless_every_coding_is_identity() {
        for (lines, encoded) in [
            (&[][..], false),
            (&[""], false),
            (&["identity"], false),
            (&["Identity , identity"], false),
            (&["gzip"], true),
            (&["identity", "br"], true),
            (&["identity,zstd"], true),
        ] {
            assert_eq!(is_encoded(request_with("content-encoding", lines).headers()), encoded, "{lines:?}");
        }
    }

    #[test]
    fn entity_tag_of_the_gzip_form_maps_to_the_plain_tag() {
        assert_eq!(
            ["\"ab\"", "\"ab-gzip\"", "*", "\"-gzip"].map(uncompressed_tag),
            ["\"ab\"", "\"ab\"", "*", "\"-gzip"]
        );
    }
}
