//! Requests that a browser makes for a page of another origin (the Fetch standard's CORS protocol).
//!
//! Off until `sys/config/cors` names origins; then whoever sends an `Origin` that is not among them is refused before
//! anything else is looked at, and what browsers ask beforehand (a preflight: `OPTIONS` with the method to come) is
//! answered here, without a token and unrecorded. Requests without an `Origin`, which are those of all other clients,
//! are served as ever. Nothing is allowed with credentials: this wire has no cookies.

use actix_web::http::Method;
use actix_web::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderMap, HeaderValue, ORIGIN, VARY,
};
use actix_web::{HttpRequest, HttpResponse};

use super::render::set_text;
use crate::auth::cors::{Allowed, Cors};
use crate::error::{Error, Kind, Result};

/// Methods that a page may use.
const METHODS: &str = "DELETE, GET, OPTIONS, POST, PUT, LIST, PATCH";
/// Headers that a page may send whatever is configured: those that this wire reads, and those that libraries in
/// browsers and the peers' own pages send along.
const HEADERS: [&str; 18] = [
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
/// Seconds for which a browser need not ask again.
const MAX_AGE: HeaderValue = HeaderValue::from_static("300");

/// What is known of the page that a request comes from.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Page {
    /// None that matters: there is no `Origin`, or none is looked at.
    #[default]
    None,
    /// One that may not ask, or nobody knows whether there is one; what is answered depends on it.
    Unknown,
    /// One that may ask.
    Allowed(HeaderValue),
    /// One that may ask, and asks what it may do.
    Preflight(HeaderValue, String),
}

impl Page {
    /// The page of a request.
    ///
    /// # Errors
    /// `Forbidden` beside [`Page::Unknown`] where it may not ask.
    pub(super) fn of(request: &HttpRequest, cors: &Cors) -> (Self, Result<()>) {
        let Some(allowed) = cors.allowed() else { return (Self::None, Ok(())) };
        let headers = request.headers();
        let mut origins = headers.get_all(ORIGIN);
        let origin = match (origins.next(), origins.next()) {
            (None, _) => return (Self::Unknown, Ok(())),
            (Some(only), None) if only.to_str().is_ok_and(|origin| allowed.takes(origin)) => only.clone(),
            _ => return (Self::Unknown, Err(Error::new(Kind::Forbidden, "origin not allowed"))),
        };
        let page = match request.method() == Method::OPTIONS && names_method(headers) {
            true => Self::Preflight(origin, shown_headers(allowed).collect::<Vec<_>>().join(", ")),
            false => Self::Allowed(origin),
        };
        (page, Ok(()))
    }

    /// Whether all that is asked is what may be asked.
    pub(super) fn is_preflight(&self) -> bool {
        matches!(self, Self::Preflight(..))
    }

    /// Tells the browser.
    pub(super) fn show(self, response: &mut HttpResponse) {
        let headers = response.headers_mut();
        if self != Self::None {
            headers.append(VARY, HeaderValue::from_static("origin"));
        }
        if let Self::Allowed(origin) | Self::Preflight(origin, _) = &self {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        }
        if let Self::Preflight(_, names) = &self {
            headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
            headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
            set_text(response, ACCESS_CONTROL_ALLOW_HEADERS, names);
        }
    }
}

/// Names of all headers that a page may send.
pub(super) fn shown_headers(allowed: &Allowed) -> impl Iterator<Item = &str> {
    let own = allowed.headers.iter().map(String::as_str);
    HEADERS.into_iter().chain(own.filter(|own| !HEADERS.iter().any(|known| known.eq_ignore_ascii_case(own))))
}

/// Whether the method to come is one that a page may use.
fn names_method(headers: &HeaderMap) -> bool {
    let method = headers.get(ACCESS_CONTROL_REQUEST_METHOD);
    method.is_some_and(|method| METHODS.split(", ").any(|known| known.as_bytes() == method.as_bytes()))
}
