//! Content negotiation of the metrics page (RFC 9110, 12.5.1).

use actix_web::HttpRequest;
use actix_web::http::header::{Accept, Header as _, Quality, QualityItem};
use actix_web::mime::Mime;

use crate::telemetry::Exposition;

/// Returns OpenMetrics if the client lists it and does not prefer the text format, otherwise the text format.
pub fn negotiate(request: &HttpRequest) -> Exposition {
    let Ok(Accept(accepted)) = Accept::parse(request) else { return Exposition::Text };
    let quality = |fits: fn(&Mime) -> bool| {
        let fitting = accepted.iter().filter(|accepted| fits(&accepted.item));
        fitting.map(|QualityItem { quality, .. }| *quality).max()
    };
    let openmetrics = quality(is_openmetrics).unwrap_or(Quality::ZERO);
    // The weight of the most specific matching media range applies.
    let text = quality(|range| range.essence_str() == "text/plain")
        .or_else(|| quality(|range| range.essence_str() == "text/*"))
        .or_else(|| quality(|range| range.essence_str() == "*/*"));
    match openmetrics > Quality::ZERO && openmetrics >= text.unwrap_or(Quality::ZERO) {
        true => Exposition::OpenMetrics,
        false => Exposition::Text,
    }
}

/// `true` for OpenMetrics without a version, or with the version that the server renders.
fn is_openmetrics(range: &Mime) -> bool {
    let version = range.get_param("version");
    range.essence_str() == "application/openmetrics-text" && version.is_none_or(|version| version == "1.0.0")
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn openmetrics_is_for_clients_that_name_it_and_prefer_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
            application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
            text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, is_openmetrics) in [
            (Some(prometheus), true),
            (Some("application/openmetrics-text"), true),
            (Some("application/openmetrics-text; version=1.0.0; charset=utf-8"), true),
            (Some("text/plain, application/openmetrics-text"), true),
            (Some("text/*;q=0.9, text/plain;q=0.1, application/openmetrics-text;q=0.5"), true),
            (Some("application/openmetrics-text;q=0.5, text/plain"), false),
            (Some("application/openmetrics-text;q=0.5, */*"), false),
            (Some("application/openmetrics-text;q=0"), false),
            (Some("application/openmetrics-text;version=0.0.1"), false),
            (Some("application/*"), false),
            (Some("*/*"), false),
            (Some("text/plain;version=0.0.4"), false),
            (Some("nonsense"), false),
            (Some(""), false),
            (None, false),
        ] {
            let request = accept.into_iter().fold(TestRequest::get(), |r, accept| r.insert_header(("accept", accept)));
            let form = negotiate(&request.to_http_request());
            assert_eq!(form == Exposition::OpenMetrics, is_openmetrics, "{accept:?}");
        }
    }
}
