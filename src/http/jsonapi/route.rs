//! A route of the projects API: a method, a path pattern, a handler and the function that renders its result.

use actix_web::http::Method;
use futures_util::future::LocalBoxFuture;

use super::reply::HandlerResult;
use super::request::ProjectsCall;
use crate::projects::Tx;
use crate::projects::rejection::WorkResult;

/// Handles a request inside an SQL session ([`Tx`]).
pub type ProjectsHandler =
    for<'t, 's> fn(&'t mut Tx<'s>, &'t ProjectsCall) -> LocalBoxFuture<'t, WorkResult<HandlerResult>>;

/// A route of the projects API.
pub struct ProjectsRoute {
    /// The HTTP method.
    pub method: &'static Method,
    /// Path segments below `/api/v2`; `:name` matches any segment.
    pub pattern: &'static str,
    /// Name of the route in the store's metrics.
    pub name: &'static str,
    /// `true` if the route needs no token. The response of such a route has a status and no content.
    pub needs_no_token: bool,
    /// The handler.
    pub handler: ProjectsHandler,
}

/// Builds an entry of a route table: `route!(GET "projects/:project_id", "project_show", show => shown)`. The handler
/// `show` runs in the session, and `shown` renders its result after the session.
macro_rules! route {
    ($method:ident $pattern:literal, $name:literal, $handler:path => $render:path) => {
        $crate::http::jsonapi::route::ProjectsRoute {
            method: &actix_web::http::Method::$method,
            pattern: $pattern,
            name: $name,
            needs_no_token: false,
            handler: |tx, call| {
                Box::pin(async move {
                    let found = $handler(tx, call).await?;
                    Ok($crate::http::jsonapi::reply::HandlerResult::of(found, $render))
                })
            },
        }
    };
}
pub(super) use route;
