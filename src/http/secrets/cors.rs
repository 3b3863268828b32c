//! Cross-origin requests of browsers (the CORS protocol of the Fetch standard).
//!
//! CORS is off until `sys/config/cors` lists origins. Then a request whose `Origin` is not listed is rejected before
//! all other checks, and preflights (`OPTIONS` requests that ask for the method of the actual request) are answered
//! here, without token or audit. Requests without `Origin` are not affected. Credentials are never allowed, because the
//! API uses no cookies.

use actix_web::http::Method;
use actix_web::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderMap, HeaderValue, ORIGIN, VARY,
};
use actix_web::{HttpRequest, HttpResponse};

use super::render::set_text;
use crate::auth::cors::{Cors, CorsSettings};
use crate::error::{Error, Kind, Result};

const ALLOWED_METHODS: &str = "DELETE, GET, OPTIONS, POST, PUT, LIST, PATCH";
/// Request headers that are always allowed: those that this API reads, and those that browser libraries and the web
/// interfaces of compatible servers send.
const DEFAULT_ALLOWED_HEADERS: [&str; 18] = [
    "Content-Type",
    "Authorization",
    "Idempotency-Key",
    "If-Modified-Since",
    "If-None-Match",
    "X-Request-Id",
    "X-Requested-With",
    "X-Service-Namespace",
    "X-Service-Token",
    "X-Service-Wrap-TTL",
    "X-Vault-AWS-IAM-Server-ID",
    "X-Vault-MFA",
    "X-Vault-Namespace",
    "X-Vault-No-Request-Forwarding",
    "X-Vault-Policy-Override",
    "X-Vault-Request",
    "X-Vault-Token",
    "X-Vault-Wrap-TTL",
];
/// Seconds for which a browser may cache the response to a preflight.
const PREFLIGHT_MAX_AGE: HeaderValue = HeaderValue::from_static("300");

/// The origin of the web page that sent a request, and the CORS headers that its response gets.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum PageOrigin {
    /// CORS is off, so the response gets no CORS headers.
    #[default]
    None,
    /// The request has no `Origin` or a disallowed one. Its response gets `Vary: origin` only.
    Unknown,
    /// The request is from a page of an allowed origin.
    Allowed(HeaderValue),
    /// The request is a preflight from an allowed origin. The text lists the headers that the page may send.
    Preflight(HeaderValue, String),
}

impl PageOrigin {
    /// Returns the origin of the page that sent a request.
    ///
    /// # Errors
    /// `Forbidden`, with [`PageOrigin::Unknown`], for a disallowed origin.
    pub(super) fn of(request: &HttpRequest, cors: &Cors) -> (Self, Result<()>) {
        let Some(allowed) = cors.settings() else { return (Self::None, Ok(())) };
        let headers = request.headers();
        let mut origins = headers.get_all(ORIGIN);
        let origin = match (origins.next(), origins.next()) {
            (None, _) => return (Self::Unknown, Ok(())),
            (Some(only), None) if only.to_str().is_ok_and(|origin| allowed.allows_origin(origin)) => only.clone(),
            _ => return (Self::Unknown, Err(Error::new(Kind::Forbidden, "origin not allowed"))),
        };
        let page = match request.method() == Method::OPTIONS && requests_known_method(headers) {
            true => Self::Preflight(origin, allowed_headers(allowed).collect::<Vec<_>>().join(", ")),
            false => Self::Allowed(origin),
        };
        (page, Ok(()))
    }

    pub(super) fn is_preflight(&self) -> bool {
        matches!(self, Self::Preflight(..))
    }

    /// Adds the CORS headers to the response.
    pub(super) fn write_headers(self, response: &mut HttpResponse) {
        let headers = response.headers_mut();
        if self != Self::None {
            headers.append(VARY, HeaderValue::from_static("origin"));
        }
        if let Self::Allowed(origin) | Self::Preflight(origin, _) = &self {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        }
        if let Self::Preflight(_, names) = &self {
            headers.insert(ACCESS_CONTROL_MAX_AGE, PREFLIGHT_MAX_AGE);
            headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(ALLOWED_METHODS));
            set_text(response, ACCESS_CONTROL_ALLOW_HEADERS, names);
        }
    }
}

pub(super) fn allowed_headers(allowed: &CorsSettings) -> impl Iterator<Item = &str> {
    let own = allowed.headers.iter().map(String::as_str);
    DEFAULT_ALLOWED_HEADERS
        .into_iter()
        .chain(own.filter(|own| !DEFAULT_ALLOWED_HEADERS.iter().any(|known| known.eq_ignore_ascii_case(own))))
}

fn requests_known_method(headers: &HeaderMap) -> bool {
    let method = headers.get(ACCESS_CONTROL_REQUEST_METHOD);
    method.is_some_and(|method| ALLOWED_METHODS.split(", ").any(|known| known.as_bytes() == method.as_bytes()))
}
