//! Validation of the settings of cloud services, which decide where credentials are sent.

use std::net::IpAddr;

use url::{Host, Url};

use super::services::CloudSettings;
use crate::outbound::validate_base_url;

const BASE_URL_RULE: &str =
    "must be an absolute https URL without credentials or query; http is allowed only for loopback addresses";
const URL_TEMPLATE_RULE: &str =
    "must be an absolute https URL that contains {vault_name}; http is allowed only for loopback addresses";
const API_VERSION_RULE: &str = "must be 1 to 32 letters, digits, dots or hyphens";
const DNS_SUFFIXES_RULE: &str = "must be lower-case DNS names with at least two labels, such as vault.example.net";
const LOCAL_URL_RULE: &str =
    "must be a URL of this machine: a loopback or link-local address, or metadata.google.internal";
const FOLDER_RULE: &str = "must be the absolute path of a folder";

impl CloudSettings {
    /// Returns the invalid settings by their names in the server's configuration, each with the rule that it breaks.
    pub fn problems(&self) -> Vec<(&'static str, &'static str)> {
        let azure = &self.azure;
        let google = &self.google;
        let template = azure.vault_url_template.as_str();
        let sample = template.replace("{vault_name}", "name").replace("{resource}", "vault.example");
        let is_base = |url: &str| validate_base_url("", url).is_ok();
        let checks = [
            ("azure_authority_url", azure.authority_url.as_deref().is_none_or(is_base), BASE_URL_RULE),
            ("azure_vault_url_template", template.contains("{vault_name}") && is_base(&sample), URL_TEMPLATE_RULE),
            ("azure_api_version", is_api_version(&azure.api_version), API_VERSION_RULE),
            ("azure_extra_suffixes", azure.extra_suffixes.iter().all(|name| is_dns_suffix(name)), DNS_SUFFIXES_RULE),
            ("azure_imds_url", is_local_service_url(&azure.imds_url), LOCAL_URL_RULE),
            ("google_endpoint", is_base(&google.endpoint), BASE_URL_RULE),
            ("google_token_url", is_base(&google.token_url), BASE_URL_RULE),
            ("google_metadata_url", is_local_service_url(&google.metadata_url), LOCAL_URL_RULE),
            (
                "google_credentials_dir",
                google.credentials_dir.as_ref().is_none_or(|path| path.is_absolute()),
                FOLDER_RULE,
            ),
        ];
        checks.into_iter().filter(|(_, holds, _)| !holds).map(|(name, _, rule)| (name, rule)).collect()
    }
}

fn is_api_version(text: &str) -> bool {
    (1..=32).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-'))
}

/// `true` for a name of at least two labels. Tokens are sent to hosts below it, so it must not be a top-level domain.
fn is_dns_suffix(name: &str) -> bool {
    let is_label = |label: &str| {
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        !label.is_empty() && label.bytes().all(inner)
    };
    name.len() <= 253 && name.contains('.') && name.split('.').all(is_label)
}

/// `true` if the URL can be that of the machine's identity service. The service speaks plain HTTP and issues tokens
/// without authentication, so only addresses of this machine are accepted.
fn is_local_service_url(text: &str) -> bool {
    let Ok(url) = Url::parse(text) else { return false };
    let is_near = match url.host() {
        Some(Host::Domain(name)) => matches!(name, "localhost" | "metadata.google.internal"),
        Some(Host::Ipv4(address)) => IpAddr::V4(address).is_loopback() || address.is_link_local(),
        Some(Host::Ipv6(address)) => address.is_loopback() || address.is_unicast_link_local(),
        None => false,
    };
    let is_bare =
        url.username().is_empty() && url.password().is_none() && url.query().is_none() && url.fragment().is_none();
    is_near && is_bare && matches!(url.scheme(), "http" | "https")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invalid_settings(change: impl FnOnce(&mut CloudSettings)) -> Vec<&'static str> {
        let mut settings = CloudSettings::default();
        change(&mut settings);
        settings.problems().into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn urls_that_receive_credentials_are_https_or_loopback() {
        assert_eq!(invalid_settings(|_| {}), [""; 0]);
        for good in ["https://kms.example/base", "http://127.0.0.1:4566", "http://localhost:1"] {
            let none = invalid_settings(|settings| {
                (settings.google.endpoint, settings.google.token_url) = (good.to_owned(), good.to_owned());
                settings.azure.authority_url = Some(good.to_owned());
                settings.azure.vault_url_template = format!("{good}/{{vault_name}}.{{resource}}");
            });
            assert_eq!(none, [""; 0], "{good}");
        }
        for bad in ["http://kms.example", "kms.example", "https://user@kms.example", "https://kms.example/?a", ""] {
            assert_eq!(invalid_settings(|settings| settings.google.endpoint = bad.to_owned()), ["google_endpoint"]);
            assert_eq!(invalid_settings(|settings| settings.google.token_url = bad.to_owned()), ["google_token_url"]);
            let authority = invalid_settings(|settings| settings.azure.authority_url = Some(bad.to_owned()));
            assert_eq!(authority, ["azure_authority_url"]);
        }
        for bad in ["https://store.example", "http://{vault_name}.example", "{vault_name}", ""] {
            let template = invalid_settings(|settings| settings.azure.vault_url_template = bad.to_owned());
            assert_eq!(template, ["azure_vault_url_template"], "{bad}");
        }
    }

    #[test]
    fn tokens_of_the_machine_come_from_the_machine() {
        for good in ["http://169.254.169.254", "http://metadata.google.internal", "http://[::1]:80", "http://127.0.0.1"]
        {
            let set = |settings: &mut CloudSettings| settings.azure.imds_url = good.to_owned();
            assert_eq!(invalid_settings(set), [""; 0], "{good}");
        }
        for bad in
            ["http://10.0.0.1", "http://169.254.169.254.example", "ftp://127.0.0.1", "http://127.0.0.1/?a=b", "x"]
        {
            assert_eq!(
                invalid_settings(|settings| settings.azure.imds_url = bad.to_owned()),
                ["azure_imds_url"],
                "{bad}"
            );
            assert_eq!(
                invalid_settings(|settings| settings.google.metadata_url = bad.to_owned()),
                ["google_metadata_url"]
            );
        }
    }

    #[test]
    fn suffixes_versions_and_folders_have_their_forms() {
        let suffixes = |names: &[&str]| {
            invalid_settings(|settings| {
                settings.azure.extra_suffixes = names.iter().map(|name| (*name).to_owned()).collect()
            })
        };
        assert_eq!(suffixes(&["stack.example", "a-1.b.c"]), [""; 0]);
        for bad in ["example", ".example", "a..b", "Stack.example", "a.b/", "a.b:1", ""] {
            assert_eq!(suffixes(&["stack.example", bad]), ["azure_extra_suffixes"], "{bad}");
        }
        for bad in ["", "7.4&x=y", &"7".repeat(33)] {
            assert_eq!(invalid_settings(|settings| settings.azure.api_version = bad.to_owned()), ["azure_api_version"]);
        }
        let folder = invalid_settings(|settings| settings.google.credentials_dir = Some("keys".into()));
        assert_eq!(folder, ["google_credentials_dir"]);
    }
}
