//! Which endpoints are given the process's own credential.

/// DNS suffixes of the provider's services.
const SUFFIXES: [&str; 4] = [".amazonaws.com", ".amazonaws.com.cn", ".api.aws", ".api.amazonwebservices.com.cn"];
/// The names of this service there.
const SERVICES: [&str; 2] = ["kms", "kms-fips"];

/// Whether a host is one of the provider's for this service, in whatever region, private endpoints among them. What
/// customers run has names below these suffixes too, and the service's name is not in those.
pub(super) fn is_own(host: &str) -> bool {
    SUFFIXES.iter().any(|suffix| host.ends_with(suffix)) && host.split('.').any(|label| SERVICES.contains(&label))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_of_the_service_is_told_from_those_of_customers() {
        for own in [
            "kms.eu-central-1.amazonaws.com",
            "kms-fips.us-gov-west-1.amazonaws.com",
            "kms.cn-north-1.amazonaws.com.cn",
            "kms.eu-west-1.api.aws",
            "vpce-0123456789abcdef0-abcdefgh.kms.eu-central-1.vpce.amazonaws.com",
            "vpce-0123456789abcdef0-abcdefgh-eu-central-1a.kms-fips.eu-central-1.vpce.amazonaws.com",
        ] {
            assert!(is_own(own), "{own}");
        }
        for other in [
            "127.0.0.1",
            "localhost",
            "kms.example",
            "kms.amazonaws.com.example",
            "kms.evilamazonaws.com",
            "abcdefghij.execute-api.eu-central-1.amazonaws.com",
            "ec2-192-0-2-1.eu-central-1.compute.amazonaws.com",
            "vpce-0123456789abcdef0-abcdefgh.vpce-svc-0123456789abcdef0.eu-central-1.vpce.amazonaws.com",
            "amazonaws.com",
            "",
        ] {
            assert!(!is_own(other), "{other}");
        }
    }
}
