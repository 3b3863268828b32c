//! Removes series of deleted managed keys and mounts from the metrics page, because the exporter keeps each series
//! for the life of the process.

use super::catalogue::CATALOGUE;
use super::{managed_keys, mount_meter};

/// A label and a function. The values of the label name objects that can be deleted; the function tests if such an
/// object exists. The label must be the first one of its series.
type DeletableLabel = (&'static str, fn(&str) -> bool);

const DELETABLE_LABELS: [DeletableLabel; 2] = [("key", managed_keys::is_exported), ("mount", mount_meter::is_exported)];

pub(super) fn remove_stale(page: &str) -> String {
    page.split_inclusive('\n').filter(|line| is_current(line)).collect()
}

fn is_current(line: &str) -> bool {
    let Some((name, labels)) = line.split_once('{') else { return true };
    let Some((label, rest)) = labels.split_once("=\"") else { return true };
    let Some((label, exists)) = DELETABLE_LABELS.iter().find(|(known, _)| *known == label) else { return true };
    let mut metrics = CATALOGUE.iter().filter(|metric| metric.labels.contains(label));
    let is_in_catalogue = metrics.any(|metric| name.starts_with(metric.name));
    !is_in_catalogue || rest.split_once('"').is_none_or(|(value, _)| exists(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::{ExportedKey, MountMeter};

    #[test]
    fn series_of_keys_and_mounts_are_exported_while_these_exist() {
        let page = "# HELP signet_signer_queue q\nsignet_signer_queue{key=\"stale\"} 1\n\
            signet_signer_wait_seconds_bucket{key=\"stale\",le=\"1\"} 1\nsignet_other{key=\"stale\"} 1\n\
            signet_pki_certificates_total{mount=\"stale/\",operation=\"issue\"} 1\n\
            signet_http_requests_total{mount=\"none\",service=\"projects\"} 1\n\
            signet_http_requests_total{mount=\"other\",service=\"secrets\"} 1\nsignet_store_up 1\n";
        let lines = || remove_stale(page).lines().count();
        assert_eq!(lines(), 5);
        let key = ExportedKey::new("stale");
        let mount = MountMeter::of("stale/");
        assert_eq!(remove_stale(page), page);
        drop(key);
        assert_eq!(lines(), 6);
        drop(mount);
        assert_eq!(lines(), 5);
    }
}
