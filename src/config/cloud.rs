//! Settings of the cloud services of managed keys. Their rules are in [`CloudSettings::problems`].

use super::reader::SettingReader;
use crate::fields::Fields;
use crate::keys::{AzureSettings, CloudSettings, GoogleSettings};
use crate::outbound::EgressPolicy;

/// Parses the settings; missing ones get their defaults. The caller sets `egress_policy`.
pub(super) fn read_settings(read: &mut SettingReader<'_>) -> CloudSettings {
    let azure = AzureSettings::default();
    let google = GoogleSettings::default();
    let settings = CloudSettings {
        egress_policy: EgressPolicy::default(),
        azure: AzureSettings {
            authority_url: text(read, "azure_authority_url"),
            vault_url_template: text(read, "azure_vault_url_template").unwrap_or(azure.vault_url_template),
            api_version: text(read, "azure_api_version").unwrap_or(azure.api_version),
            extra_suffixes: read
                .optional("azure_extra_suffixes", Fields::list, "a list of DNS names")
                .unwrap_or(azure.extra_suffixes),
            imds_url: text(read, "azure_imds_url").unwrap_or(azure.imds_url),
        },
        google: GoogleSettings {
            endpoint: text(read, "google_endpoint").unwrap_or(google.endpoint.clone()),
            token_url: text(read, "google_token_url").unwrap_or(google.token_url.clone()),
            metadata_url: text(read, "google_metadata_url").unwrap_or(google.metadata_url.clone()),
            credentials_dir: read.path("google_credentials_dir", "the absolute path of a folder"),
            software_keys: read.flag("google_software_keys"),
            ..google
        },
    };
    for (name, rule) in settings.problems() {
        read.report(name, rule);
    }
    settings
}

fn text(read: &mut SettingReader<'_>, name: &str) -> Option<String> {
    read.optional(name, Fields::text, "a text")
}
