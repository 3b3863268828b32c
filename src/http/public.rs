//! The public listener for relying parties: CRLs, OCSP and CA certificates over plain HTTP.
//!
//! RFC 5280 (section 8) recommends plain HTTP for these, because HTTPS would need the validation of another certificate
//! first. So this listener may be off the loopback without TLS, and serves nothing else. Its routes are those marked
//! [`Route::public`](super::secrets::route::Route::public), with the usual pipeline, quotas and audit. All other paths
//! get the same 404; no token is checked and nothing is recorded. Requests with a body longer than [`MAX_BODY`] or
//! slower than [`body::OPEN`] are rejected.

use actix_web::error::PayloadError;
use actix_web::http::header::CONTENT_TYPE;
use actix_web::web::{self, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use futures_util::{StreamExt as _, stream};
use tokio::time::Instant;

use super::body;
use super::secrets::{self, ELSEWHERE, Entrance, render};
use super::state::State;

/// Maximum size of a request body in bytes, discarded bytes included.
pub const MAX_BODY: usize = 16 << 10;

/// Registers the services of one worker of the listener.
pub fn configure(app: &mut ServiceConfig, state: State) {
    app.app_data(state).default_service(web::to(public_service));
}

async fn public_service(state: State, request: HttpRequest, payload: web::Payload) -> HttpResponse {
    if body::declared(request.headers()).is_some_and(|length| length > MAX_BODY as u64) {
        return error(HttpResponse::PayloadTooLarge(), &format!("body: larger than {MAX_BODY} bytes"));
    }
    match request.uri().path().strip_prefix("/v1/") {
        Some(path) => {
            let payload = bounded(&request, payload);
            secrets::answer_at(Entrance::Public, state, &request, path, payload).await
        }
        None => error(HttpResponse::NotFound(), ELSEWHERE),
    }
}

fn error(mut response: actix_web::HttpResponseBuilder, text: &str) -> HttpResponse {
    let body = serde_json::json!({ "errors": [text] }).to_string();
    response.insert_header((CONTENT_TYPE, render::JSON)).body(body)
}

/// Limits the size and the time of a body.
fn bounded(request: &HttpRequest, payload: web::Payload) -> web::Payload {
    let until = Instant::now() + body::OPEN;
    let chunks = stream::unfold(Some((payload, 0)), move |reading| async move {
        let (mut payload, before) = reading?;
        match tokio::time::timeout_at(until, payload.next()).await {
            Ok(None) => None,
            Ok(Some(Ok(chunk))) if before + chunk.len() <= MAX_BODY => {
                let length = before + chunk.len();
                Some((Ok(chunk), Some((payload, length))))
            }
            Ok(Some(Ok(_))) => Some((Err(PayloadError::Overflow), None)),
            Ok(Some(Err(error))) => Some((Err(error), None)),
            Err(_) => Some((Err(PayloadError::Incomplete(None)), None)),
        }
    });
    body::of_pieces(request, chunks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::FromRequest as _;
    use actix_web::test::TestRequest;

    async fn read(body: Vec<u8>) -> Result<usize, PayloadError> {
        let (request, mut inner) = TestRequest::default().set_payload(body).to_http_parts();
        let payload = web::Payload::from_request(&request, &mut inner).await.unwrap();
        let mut payload = bounded(&request, payload);
        let mut length = 0;
        while let Some(chunk) = payload.next().await {
            length += chunk?.len();
        }
        Ok(length)
    }

    #[actix_web::test]
    async fn a_body_is_read_to_its_limit_and_no_further() {
        assert_eq!(read(vec![0; MAX_BODY]).await.unwrap(), MAX_BODY);
        assert!(matches!(read(vec![0; MAX_BODY + 1]).await, Err(PayloadError::Overflow)));
    }
}
