//! Endpoints of AWS KMS: that of a region, and the hosts to which the process's own credential may be sent.

const AWS_DNS_SUFFIXES: [&str; 10] = [
    ".amazonaws.com",
    ".api.aws",
    ".amazonaws.com.cn",
    ".api.amazonwebservices.com.cn",
    ".amazonaws.eu",
    ".api.amazonwebservices.eu",
    ".c2s.ic.gov",
    ".sc2s.sgov.gov",
    ".cloud.adc-e.uk",
    ".csp.hci.ic.gov",
];
/// The DNS labels that stand for the service in host names of AWS KMS.
const KMS_HOST_LABELS: [&str; 2] = ["kms", "kms-fips"];

/// DNS suffixes of regions that are not below `amazonaws.com`, by region prefix.
#[cfg(feature = "keys-aws")]
const REGION_SUFFIXES: [(&str, &str); 6] = [
    ("cn-", "amazonaws.com.cn"),
    ("eusc-", "amazonaws.eu"),
    ("us-iso-", "c2s.ic.gov"),
    ("us-isob-", "sc2s.sgov.gov"),
    ("us-isof-", "csp.hci.ic.gov"),
    ("eu-isoe-", "cloud.adc-e.uk"),
];

#[cfg(feature = "keys-aws")]
pub(super) fn region_endpoint(region: &str) -> String {
    let known = REGION_SUFFIXES.iter().find(|(begin, _)| region.starts_with(begin));
    format!("https://kms.{region}.{}", known.map_or("amazonaws.com", |(_, suffix)| suffix))
}

/// `true` if the host is an endpoint of AWS KMS in any region: `kms.REGION` or a private endpoint
/// (`vpce-….kms.REGION.vpce`) below an AWS suffix. The suffix alone proves nothing: services of AWS customers have
/// names below it, too.
pub(super) fn is_aws_endpoint(host: &str) -> bool {
    let Some(inner) = AWS_DNS_SUFFIXES.iter().find_map(|suffix| host.strip_suffix(suffix)) else { return false };
    match inner.split('.').collect::<Vec<_>>()[..] {
        [service, _region] => KMS_HOST_LABELS.contains(&service),
        [endpoint, service, _region, "vpce"] => endpoint.starts_with("vpce-") && KMS_HOST_LABELS.contains(&service),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "keys-aws")]
    #[test]
    fn region_endpoint_is_an_aws_endpoint() {
        for (region, url) in [
            ("eu-central-1", "https://kms.eu-central-1.amazonaws.com"),
            ("us-gov-west-1", "https://kms.us-gov-west-1.amazonaws.com"),
            ("cn-north-1", "https://kms.cn-north-1.amazonaws.com.cn"),
            ("eusc-de-east-1", "https://kms.eusc-de-east-1.amazonaws.eu"),
            ("us-iso-east-1", "https://kms.us-iso-east-1.c2s.ic.gov"),
            ("us-isob-east-1", "https://kms.us-isob-east-1.sc2s.sgov.gov"),
        ] {
            assert_eq!(region_endpoint(region), url);
            assert!(is_aws_endpoint(url.trim_start_matches("https://")), "{url}");
        }
    }

    #[test]
    fn service_hosts_are_distinguished_from_customer_hosts() {
        for own in [
            "kms.eu-central-1.amazonaws.com",
            "kms-fips.us-gov-west-1.amazonaws.com",
            "kms.cn-north-1.amazonaws.com.cn",
            "kms.eu-west-1.api.aws",
            "kms.eusc-de-east-1.amazonaws.eu",
            "vpce-0123456789abcdef0-abcdefgh.kms.eu-central-1.vpce.amazonaws.com",
            "vpce-0123456789abcdef0-abcdefgh-eu-central-1a.kms-fips.eu-central-1.vpce.amazonaws.com",
        ] {
            assert!(is_aws_endpoint(own), "{own}");
        }
        for other in [
            "127.0.0.1",
            "localhost",
            "kms.example",
            "kms.amazonaws.com.example",
            "kms.evilamazonaws.com",
            "kms.abcdefghij.eu-central-1.rds.amazonaws.com",
            "x.kms.s3.eu-central-1.amazonaws.com",
            "kms.amazonaws.com",
            "abcdefghij.execute-api.eu-central-1.amazonaws.com",
            "ec2-192-0-2-1.eu-central-1.compute.amazonaws.com",
            "vpce-0123456789abcdef0-abcdefgh.vpce-svc-0123456789abcdef0.eu-central-1.vpce.amazonaws.com",
            "amazonaws.com",
            "",
        ] {
            assert!(!is_aws_endpoint(other), "{other}");
        }
    }
}
