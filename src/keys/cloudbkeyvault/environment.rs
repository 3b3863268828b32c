//! The clouds of the provider: their directories, and the DNS suffixes of their key stores.

/// One cloud.
pub(super) struct Environment {
    /// Its name, upper case.
    pub(super) name: &'static str,
    /// Base URL of the directory that gives access tokens.
    pub(super) authority: &'static str,
    /// DNS suffixes of its key stores, the one that is meant where none is named first.
    suffixes: &'static [&'static str],
}

const ENVIRONMENTS: [Environment; 3] = [
    Environment {
        name: "AZUREPUBLICCLOUD",
        authority: "https://login.microsoftonline.com",
        suffixes: &["vault.azure.net", "managedhsm.azure.net"],
    },
    Environment {
        name: "AZUREUSGOVERNMENTCLOUD",
        authority: "https://login.microsoftonline.us",
        suffixes: &["vault.usgovcloudapi.net", "managedhsm.usgovcloudapi.net"],
    },
    Environment { name: "AZURECHINACLOUD", authority: "https://login.chinacloudapi.cn", suffixes: &["vault.azure.cn"] },
];

impl Environment {
    /// The one with a name, in any letter case; the public one without.
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        let name = if name.is_empty() { ENVIRONMENTS[0].name } else { name };
        ENVIRONMENTS.iter().find(|environment| environment.name.eq_ignore_ascii_case(name))
    }

    /// The suffix that is meant where none is named.
    pub(super) fn suffix(&self) -> &'static str {
        self.suffixes[0]
    }
}

/// Whether tokens may be sent to key stores under a suffix: it is one of the provider's or of the server's
/// configuration, or below one.
pub(super) fn is_trusted(resource: &str, extra: &[String]) -> bool {
    let own = ENVIRONMENTS.iter().flat_map(|environment| environment.suffixes.iter().copied());
    own.chain(extra.iter().map(String::as_str))
        .any(|suffix| resource.strip_suffix(suffix).is_some_and(|before| before.is_empty() || before.ends_with('.')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_below_a_suffix_at_a_dot() {
        for good in ["vault.azure.net", "managedhsm.azure.net", "eu.vault.azure.net", "vault.azure.cn", "stack.example"]
        {
            assert!(is_trusted(good, &["stack.example".to_owned()]), "{good}");
        }
        for bad in
            ["evil.example", "evilvault.azure.net", "azure.net", "vault.azure.net.evil.example", "", "stack.example"]
        {
            assert!(!is_trusted(bad, &[]), "{bad}");
        }
    }

    #[test]
    fn clouds_are_named_in_any_letter_case() {
        assert_eq!(Environment::named("").unwrap().suffix(), "vault.azure.net");
        assert_eq!(Environment::named("AzureChinaCloud").unwrap().suffix(), "vault.azure.cn");
        assert!(Environment::named("AZUREGERMANCLOUD").is_none());
    }
}
