//! The HTTP interfaces: routing between them, and the metrics page.
//!
//! `/v1` is the secrets service ([`secrets`]), `/api/v2` the projects API ([`jsonapi`]). Each has its own pipeline,
//! limits, tokens and response format, and neither depends on the other. Modules that both use are next to them, such
//! as the worker's state ([`state`]), request bodies ([`body`]) and the caller's address ([`address`]).

pub mod access;
pub mod address;
pub mod body;
pub mod encoding;
pub mod entity_tag;
pub mod exposition;
pub mod fair_scheduler;
pub mod gauges;
pub mod jsonapi;
pub mod long_lists;
pub mod public;
pub mod rate;
mod refusal_delay;
pub mod request_id;
pub mod response_budget;
pub mod secrets;
pub mod sender;
pub mod settings;
pub mod state;
pub mod store_probe;
pub mod wrap_quota;

use std::sync::LazyLock;

use actix_web::dev::Payload;
use actix_web::http::header::{ALLOW, CONTENT_TYPE, HeaderValue, VARY};
use actix_web::http::{Method, StatusCode};
use actix_web::web::{self, ServiceConfig};
use actix_web::{FromRequest, Handler, HttpRequest, HttpResponse, Resource};

use crate::error::{Error, Kind};
use crate::rationing::cpu;
use crate::telemetry::{self, RouteMeter};
use request_id::RequestId;
use secrets::EntryPoint;
use sender::Sender;
use state::WorkerState;

/// Access metrics of the routes outside both APIs.
static METRICS_METER: LazyLock<RouteMeter> = LazyLock::new(|| server_meter("metrics"));
static DISCOVERY_METER: LazyLock<RouteMeter> = LazyLock::new(|| server_meter("terraform.json"));
static UNROUTED_METER: LazyLock<RouteMeter> = LazyLock::new(|| server_meter("none"));

fn server_meter(route: &str) -> RouteMeter {
    RouteMeter::new("server", "read", route.to_owned())
}

/// Registers the routes of both APIs, of service discovery and of the metrics page on a worker's application.
pub fn configure(app: &mut ServiceConfig, state: WorkerState) {
    app.app_data(state)
        .service(web::scope("/v1").default_service(web::to(handle_secrets_request)))
        .service(web::scope("/api/v2").default_service(web::to(handle_projects_request)))
        .service(read_only("/.well-known/terraform.json", serve_discovery))
        .service(web::resource("/metrics").default_service(web::to(handle_metrics_request)))
        .default_service(web::to(reject_unknown_path));
}

/// Registers the route of the metrics listener, which serves the metrics to every client without a token.
pub fn configure_metrics(app: &mut ServiceConfig, state: WorkerState) {
    app.app_data(state)
        .service(read_only("/metrics", serve_metrics_without_token_check))
        .default_service(web::to(reject_unknown_path));
}

fn read_only<F, A>(path: &'static str, handler: F) -> Resource
where
    F: Handler<A, Output = HttpResponse> + Clone,
    A: FromRequest + 'static,
{
    let resource = web::resource(path).route(web::get().to(handler.clone())).route(web::head().to(handler));
    resource.default_service(web::to(reject_method))
}

async fn reject_method(request: HttpRequest) -> HttpResponse {
    let mut refused = reject(&request, &Error::new(Kind::UnsupportedMethod, "unsupported operation"));
    refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    refused
}

impl FromRequest for WorkerState {
    type Error = actix_web::Error;
    type Future = std::future::Ready<std::result::Result<Self, Self::Error>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let state = request.app_data::<Self>().cloned();
        std::future::ready(state.ok_or_else(|| actix_web::error::ErrorInternalServerError("")))
    }
}

async fn handle_secrets_request(state: WorkerState, request: HttpRequest, payload: web::Payload) -> HttpResponse {
    // The router also matches encoded spellings (`/%761/…`); only the plain form is served.
    match request.uri().path().strip_prefix("/v1/") {
        Some(path) => secrets::handle(state, &request, path, payload).await,
        None => reject_unknown_path(request).await,
    }
}

async fn handle_projects_request(state: WorkerState, request: HttpRequest, payload: web::Payload) -> HttpResponse {
    match request.uri().path().strip_prefix("/api/v2/") {
        Some(path) => jsonapi::handle(state, &request, path, payload).await,
        None => reject_unknown_path(request).await,
    }
}

/// Service discovery of the projects API. The document has an entry for each API version, because some clients look up
/// only a later version than 2.0. A token in the request is ignored.
async fn serve_discovery(request: HttpRequest) -> HttpResponse {
    access::log_unrouted(&request, &RequestId::of(request.headers()), &DISCOVERY_METER, StatusCode::OK);
    const DISCOVERY_DOCUMENT: &str = "{\"tfe.v2\":\"/api/v2/\",\"tfe.v2.1\":\"/api/v2/\",\"tfe.v2.2\":\"/api/v2/\"}";
    HttpResponse::Ok().insert_header((CONTENT_TYPE, secrets::render::JSON_MEDIA_TYPE)).body(DISCOVERY_DOCUMENT)
}

/// Serves the metrics page. If the setting `open_metrics` is on, the request needs no token. Otherwise it is authorized
/// as a read of `sys/metrics`.
async fn handle_metrics_request(state: WorkerState, request: HttpRequest, payload: web::Payload) -> HttpResponse {
    if state.settings.open_metrics {
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        return if reads {
            serve_metrics_without_token_check(state, request).await
        } else {
            reject_method(request).await
        };
    }
    secrets::handle_at(EntryPoint::Metrics, state, &request, "sys/metrics", payload).await
}

async fn serve_metrics_without_token_check(state: WorkerState, request: HttpRequest) -> HttpResponse {
    let caller = Sender::of_address(request.peer_addr().map(|peer| peer.ip())).queue_caller();
    let figures = gauges::collect_series(&state);
    let form = exposition::negotiate(&request);
    let text = match cpu::run_as(caller, move || telemetry::render_metrics(form, &figures)).await {
        Ok(text) => text,
        Err(error) => return reject_metered(&request, &METRICS_METER, &error),
    };
    access::log_scrape(&request, &RequestId::of(request.headers()), &METRICS_METER, StatusCode::OK);
    let response =
        HttpResponse::Ok().insert_header((CONTENT_TYPE, form.media_type())).insert_header((VARY, "accept")).body(text);
    caller.scope(encoding::compress_if_accepted(response, request.headers())).await
}

async fn reject_unknown_path(request: HttpRequest) -> HttpResponse {
    let text = "no such path: the secrets service is below /v1/, the projects API below /api/v2/";
    reject(&request, &Error::new(Kind::NotFound, text))
}

/// Renders an error for a path outside both APIs.
fn reject(request: &HttpRequest, error: &Error) -> HttpResponse {
    reject_metered(request, &UNROUTED_METER, error)
}

fn reject_metered(request: &HttpRequest, meter: &'static RouteMeter, error: &Error) -> HttpResponse {
    let id = RequestId::of(request.headers());
    let response = secrets::render::render_error(error, &id, &[]);
    access::log_unrouted(request, &id, meter, response.status());
    response
}
