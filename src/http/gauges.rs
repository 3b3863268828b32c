//! Gauges that are computed when the metrics are scraped: the issuers and CRLs of each mount.

use super::state::ServerState;
use crate::documents::MountId;
use crate::telemetry::{self, Series};

/// Maximum length of a mount path in a label, in characters.
const MAX_LABEL_CHARACTERS: usize = 128;

/// Returns the gauges of all mounts.
pub fn collect_series(shared: &ServerState) -> Vec<Series> {
    let mounts = shared.auth.mounts();
    let path = |mount: MountId| mounts.by_id(mount).map(|mount| truncate_label(&mount.path));
    let mut series = Vec::new();
    for expiry in shared.engine.issuer_expiries() {
        let Some(mount) = path(expiry.mount) else { continue };
        let labels = vec![mount, expiry.issuer];
        let value = expiry.not_after as f64;
        series.push(Series { metric: telemetry::PKI_ISSUER_NOT_AFTER, labels, value });
    }
    for (mount, crls) in shared.engine.crl_metrics() {
        let Some(mount) = path(mount) else { continue };
        let time = |seconds: Option<i64>| seconds.map(|seconds| seconds as f64);
        let figures = [
            (telemetry::PKI_CRL_ENTRIES, Some(crls.entries as f64)),
            (telemetry::PKI_CRL_BYTES, Some(crls.bytes as f64)),
            (telemetry::PKI_CRL_THIS_UPDATE, time(crls.this_update)),
            (telemetry::PKI_CRL_NEXT_UPDATE, time(crls.next_update)),
            (telemetry::PKI_CRL_RENEWAL, time(crls.renewal)),
        ];
        let some = figures.into_iter().filter_map(|(metric, value)| Some((metric, value?)));
        series.extend(some.map(|(metric, value)| Series { metric, labels: vec![mount.clone()], value }));
    }
    series
}

fn truncate_label(name: &str) -> String {
    name.chars().take(MAX_LABEL_CHARACTERS).collect()
}
