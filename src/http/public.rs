//! The public listener for relying parties: CRLs, OCSP and CA certificates over plain HTTP.
//!
//! RFC 5280 (section 8) recommends plain HTTP for these, because HTTPS would first need the validation of another
//! certificate. So this listener may use public addresses without TLS, and serves nothing else. It serves the routes
//! marked [`Route::on_public_listener`](super::secrets::route::Route::on_public_listener), with the usual pipeline,
//! quotas and audit. All other paths get the same 404, without a token check or an audit record. Requests with a body
//! longer than [`MAX_BODY_BYTES`] or slower than [`body::OPEN_ROUTE_BODY_TIMEOUT`] are rejected.

use actix_web::error::PayloadError;
use actix_web::http::header::CONTENT_TYPE;
use actix_web::web::{self, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use futures_util::{StreamExt as _, stream};
use tokio::time::Instant;

use super::body;
use super::secrets::{self, EntryPoint, PUBLIC_NOT_FOUND_ERROR, render};
use super::state::WorkerState;

/// Maximum number of bytes of a request body that are read, discarded bytes included.
pub const MAX_BODY_BYTES: usize = 16 << 10;

/// Registers the handlers of the public listener on a worker's application.
pub fn configure(app: &mut ServiceConfig, state: WorkerState) {
    app.app_data(state).default_service(web::to(public_service));
}

async fn public_service(state: WorkerState, request: HttpRequest, payload: web::Payload) -> HttpResponse {
    if body::content_length(request.headers()).is_some_and(|length| length > MAX_BODY_BYTES as u64) {
        return error_response(
            HttpResponse::PayloadTooLarge(),
            &format!("request body: larger than {MAX_BODY_BYTES} bytes"),
        );
    }
    match request.uri().path().strip_prefix("/v1/") {
        Some(path) => {
            let payload = limit_body(&request, payload);
            secrets::handle_at(EntryPoint::Public, state, &request, path, payload).await
        }
        None => error_response(HttpResponse::NotFound(), PUBLIC_NOT_FOUND_ERROR),
    }
}

fn error_response(mut response: actix_web::HttpResponseBuilder, text: &str) -> HttpResponse {
    let body = serde_json::json!({ "errors": [text] }).to_string();
    response.insert_header((CONTENT_TYPE, render::JSON_MEDIA_TYPE)).body(body)
}

/// Limits the length of a request body, and the time in which it must arrive.
fn limit_body(request: &HttpRequest, payload: web::Payload) -> web::Payload {
    let until = Instant::now() + body::OPEN_ROUTE_BODY_TIMEOUT;
    let chunks = stream::unfold(Some((payload, 0)), move |reading| async move {
        let (mut payload, before) = reading?;
        match tokio::time::timeout_at(until, payload.next()).await {
            Ok(None) => None,
            Ok(Some(Ok(chunk))) if before + chunk.len() <= MAX_BODY_BYTES => {
                let length = before + chunk.len();
                Some((Ok(chunk), Some((payload, length))))
            }
            Ok(Some(Ok(_))) => Some((Err(PayloadError::Overflow), None)),
            Ok(Some(Err(error))) => Some((Err(error), None)),
            Err(_) => Some((Err(PayloadError::Incomplete(None)), None)),
        }
    });
    body::payload_from_stream(request, chunks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::FromRequest as _;
    use actix_web::test::TestRequest;

    async fn read(body: Vec<u8>) -> Result<usize, PayloadError> {
        let (request, mut inner) = TestRequest::default().set_payload(body).to_http_parts();
        let payload = web::Payload::from_request(&request, &mut inner).await.unwrap();
        let mut payload = limit_body(&request, payload);
        let mut length = 0;
        while let Some(chunk) = payload.next().await {
            length += chunk?.len();
        }
        Ok(length)
    }

    #[actix_web::test]
    async fn public_listener_reads_a_body_only_to_its_limit() {
        assert_eq!(read(vec![0; MAX_BODY_BYTES]).await.unwrap(), MAX_BODY_BYTES);
        assert!(matches!(read(vec![0; MAX_BODY_BYTES + 1]).await, Err(PayloadError::Overflow)));
    }
}
