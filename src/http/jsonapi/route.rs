//! What a route table is made of: a method, a pattern, a handler and what shows its outcome.

use actix_web::http::Method;
use futures_util::future::LocalBoxFuture;

use super::reply::Answer;
use super::request::Call;
use crate::projects::Tx;
use crate::projects::refusal::Outcome;

/// Answers a request inside a session.
pub type Handler = for<'t, 's> fn(&'t mut Tx<'s>, &'t Call) -> LocalBoxFuture<'t, Outcome<Answer>>;

/// One route.
pub struct Route {
    /// The method.
    pub method: &'static Method,
    /// Segments below `/api/v2`; `:name` takes one.
    pub pattern: &'static str,
    /// What the metrics of the store call it.
    pub name: &'static str,
    /// Whether no token is asked for; such a route has nothing but its status to say.
    pub open: bool,
    /// Who answers.
    pub handler: Handler,
}

/// An entry of a route table: `route!(GET "projects/:project_id", "project_show", show => shown)`. What `show`
/// finds in its session is handed to `shown` when the session is over.
macro_rules! route {
    ($method:ident $pattern:literal, $name:literal, $handler:path => $render:path) => {
        $crate::http::jsonapi::route::Route {
            method: &actix_web::http::Method::$method,
            pattern: $pattern,
            name: $name,
            open: false,
            handler: |tx, call| {
                Box::pin(async move {
                    let found = $handler(tx, call).await?;
                    Ok($crate::http::jsonapi::reply::Answer::of(found, $render))
                })
            },
        }
    };
}
pub(super) use route;
