//! Settings of the cloud key services for managed keys. [`CloudSettings::problems`] validates them.

use super::reader::SettingReader;
use crate::fields::Fields;
use crate::keys::{AzureSettings, CloudSettings, GoogleSettings};
use crate::outbound::EgressPolicy;

/// Reads the settings. Invalid ones are added to the problems. The caller must set `egress_policy`.
pub(super) fn read_settings(reader: &mut SettingReader<'_>) -> CloudSettings {
    let azure = AzureSettings::default();
    let google = GoogleSettings::default();
    let settings = CloudSettings {
        egress_policy: EgressPolicy::default(),
        azure: AzureSettings {
            authority_url: text(reader, "azure_authority_url"),
            vault_url_template: text(reader, "azure_vault_url_template").unwrap_or(azure.vault_url_template),
            api_version: text(reader, "azure_api_version").unwrap_or(azure.api_version),
            extra_suffixes: reader
                .optional("azure_extra_suffixes", Fields::list, "a list of DNS names")
                .unwrap_or(azure.extra_suffixes),
            imds_url: text(reader, "azure_imds_url").unwrap_or(azure.imds_url),
        },
        google: GoogleSettings {
            endpoint: text(reader, "google_endpoint").unwrap_or(google.endpoint.clone()),
            token_url: text(reader, "google_token_url").unwrap_or(google.token_url.clone()),
            metadata_url: text(reader, "google_metadata_url").unwrap_or(google.metadata_url.clone()),
            credentials_dir: reader.path("google_credentials_dir", "the absolute path of a folder"),
            software_keys: reader.flag("google_software_keys"),
            ..google
        },
    };
    for (name, rule) in settings.problems() {
        reader.report(name, rule);
    }
    settings
}

fn text(reader: &mut SettingReader<'_>, name: &str) -> Option<String> {
    reader.optional(name, Fields::text, "a text")
}
