//! The scenario `ocsp`: GET and POST, each without a nonce (responses can be cached) and with one (every response is
//! signed), for the certificates of the mount.
//!
//! The four parts run one after the other with the same bounds, so that each has its own CPU time. The cache hit rate
//! comes from the server's metrics.

use hyper::Method;
use serde_json::{Value, json};

use crate::client::Client;
use crate::drive::{ServerAccess, drive};
use crate::figures::Figures;
use crate::ocsp_requests::{CertificateRequests, MAX_CERTIFICATES};
use crate::order::{Order, RunArgs};
use crate::report::Report;
use crate::run_context::is_interrupted;
use crate::single_run::PreparedServer;

/// Results of one part.
struct OcspPart {
    figures: Figures,
    /// Fraction of the requests without a nonce that were served from the cache; `None` without such requests or
    /// without metrics.
    cached_fraction: Option<f64>,
}

/// Runs the four parts and reports them.
pub(crate) async fn run(args: &RunArgs) -> Result<(), String> {
    let Order { target, plan, wanted, .. } = args.order()?;
    let ready = PreparedServer::open(&target, plan.clone(), wanted).await?;
    let admin = ready.server.access();
    let requests = CertificateRequests::find(&admin, MAX_CERTIFICATES).await?;
    let mut client = admin.connect().await?;
    let access = ServerAccess { token: "", ..admin };
    let mut parts = Vec::new();
    for (method, nonce) in [(Method::GET, false), (Method::POST, false), (Method::GET, true), (Method::POST, true)] {
        if is_interrupted() {
            break;
        }
        let class = requests.class(&method, nonce, plan.clients.into());
        let before = cache_counters(&mut client).await;
        let figures = drive(&access, vec![class], &plan.bounds(), ready.server.watched).await?;
        let after = cache_counters(&mut client).await;
        let cached_fraction = before.zip(after).and_then(|(before, after)| hit_fraction(before, after));
        parts.push(OcspPart { figures, cached_fraction });
    }
    let part_json = |part: &OcspPart| {
        let mut json = ready.json(&part.figures)?;
        json["answers_used_again"] = json!(part.cached_fraction);
        Ok::<Value, String>(json)
    };
    let json: Vec<Value> = parts.iter().map(part_json).collect::<Result<_, _>>()?;
    let mut report = Report::new("ocsp", json!({ "scenario": "ocsp", "parts": json })).facts(ready.facts()?);
    for part in &parts {
        let title = part.figures.only()?.name.clone();
        if let Some(fraction) = part.cached_fraction {
            report = report.fact("cached", format!("{:.2} % of the answers to {title}", fraction * 100.0));
        }
        report = report.run(title, &part.figures);
    }
    report.publish(&args.outputs)?;
    outcome(&parts)
}

/// Returns the error of the first part that failed.
fn outcome(parts: &[OcspPart]) -> Result<(), String> {
    parts.iter().try_for_each(|part| part.figures.outcome())
}

/// Returns the cache hits and misses so far; `None` if the metrics are not accessible at this address.
async fn cache_counters(client: &mut Client) -> Option<(f64, f64)> {
    let page = client.get("/metrics").await.ok()?;
    hits_and_misses(std::str::from_utf8(&page).ok()?)
}

fn hits_and_misses(page: &str) -> Option<(f64, f64)> {
    let of = |result: &str| {
        let series = format!("signet_pki_ocsp_kept_total{{result=\"{result}\"}} ");
        page.lines().find_map(|line| line.strip_prefix(&series)?.parse::<f64>().ok())
    };
    Some((of("hit")?, of("miss")?))
}

fn hit_fraction((hits, misses): (f64, f64), (hits_after, misses_after): (f64, f64)) -> Option<f64> {
    let (hits, all) = (hits_after - hits, hits_after - hits + misses_after - misses);
    (all > 0.0).then(|| hits / all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_without_responses_fails_the_run() {
        let part = |count: u64| OcspPart { figures: Figures::of_counts(&[count]), cached_fraction: None };
        assert_eq!(outcome(&[part(1), part(1)]), Ok(()));
        assert_eq!(outcome(&[part(1), part(0)]), Err("some requests failed".to_owned()));
    }

    #[test]
    fn cache_hit_ratio_is_that_of_the_run() {
        let page = "# HELP x y\nsignet_pki_ocsp_kept_total{result=\"hit\"} 40\nsignet_pki_ocsp_kept_total{result=\"miss\"} 60\n";
        assert_eq!(hits_and_misses(page), Some((40.0, 60.0)));
        assert_eq!(hits_and_misses("else"), None);
        assert_eq!(hit_fraction((40.0, 60.0), (70.0, 70.0)), Some(0.75));
        assert_eq!(hit_fraction((40.0, 60.0), (40.0, 60.0)), None, "requests with nonces use no cached response");
    }
}
