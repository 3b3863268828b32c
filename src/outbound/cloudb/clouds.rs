//! The clouds of Microsoft Azure, with the addresses of their services.

pub(crate) struct Cloud {
    /// The name of the cloud; compared case-insensitively.
    pub(crate) name: &'static str,
    /// Base URL of the directory, which signs identity tokens and issues access tokens.
    pub(crate) authority: &'static str,
    /// Base URL of the resource API.
    pub(crate) arm: &'static str,
    /// Base URL of the API for the directory's applications.
    pub(crate) graph: &'static str,
    /// DNS suffixes of the cloud's key stores; the first is the default.
    pub(crate) key_store_suffixes: &'static [&'static str],
}

const CLOUDS: [Cloud; 3] = [
    Cloud {
        name: "AzurePublicCloud",
        authority: "https://login.microsoftonline.com",
        arm: "https://management.azure.com",
        graph: "https://graph.microsoft.com",
        key_store_suffixes: &["vault.azure.net", "managedhsm.azure.net"],
    },
    Cloud {
        name: "AzureUSGovernmentCloud",
        authority: "https://login.microsoftonline.us",
        arm: "https://management.usgovcloudapi.net",
        graph: "https://graph.microsoft.us",
        key_store_suffixes: &["vault.usgovcloudapi.net", "managedhsm.usgovcloudapi.net"],
    },
    Cloud {
        name: "AzureChinaCloud",
        authority: "https://login.chinacloudapi.cn",
        arm: "https://management.chinacloudapi.cn",
        graph: "https://microsoftgraph.chinacloudapi.cn",
        key_store_suffixes: &["vault.azure.cn"],
    },
];

impl Cloud {
    /// Returns the cloud with a name, case-insensitively; the public cloud for an empty name.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        let name = if name.is_empty() { CLOUDS[0].name } else { name };
        CLOUDS.iter().find(|cloud| cloud.name.eq_ignore_ascii_case(name))
    }

    pub(crate) fn all() -> impl Iterator<Item = &'static Self> {
        CLOUDS.iter()
    }

    /// Returns the default DNS suffix of the cloud's key stores.
    pub(crate) fn default_key_store_suffix(&self) -> &'static str {
        self.key_store_suffixes[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clouds_are_named_in_any_letter_case() {
        assert_eq!(Cloud::named("").unwrap().default_key_store_suffix(), "vault.azure.net");
        assert_eq!(Cloud::named("AZURECHINACLOUD").unwrap().arm, "https://management.chinacloudapi.cn");
        assert_eq!(Cloud::named("azureusgovernmentcloud").unwrap().graph, "https://graph.microsoft.us");
        assert!(Cloud::named("AzureGermanCloud").is_none());
    }

    #[test]
    fn cloud_urls_are_valid_bases_without_a_trailing_slash() {
        for cloud in Cloud::all() {
            for url in [cloud.authority, cloud.arm, cloud.graph] {
                super::super::super::validate_base_url("url", url).unwrap();
                assert!(!url.ends_with('/'), "{url}");
            }
        }
    }
}
