//! DNS suffixes of the vaults to which access tokens may be sent.

use crate::outbound::cloudb::Cloud;

/// `true` if tokens may be sent to vaults with this DNS suffix. It must equal a suffix of the provider or of the
/// server's configuration, or be below one.
pub(super) fn is_trusted_suffix(resource: &str, extra: &[String]) -> bool {
    let of_provider = Cloud::all().flat_map(|cloud| cloud.key_store_suffixes.iter().copied());
    of_provider
        .chain(extra.iter().map(String::as_str))
        .any(|suffix| resource.strip_suffix(suffix).is_some_and(|before| before.is_empty() || before.ends_with('.')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_matches_suffix_only_at_a_dot() {
        for good in ["vault.azure.net", "managedhsm.azure.net", "eu.vault.azure.net", "vault.azure.cn", "stack.example"]
        {
            assert!(is_trusted_suffix(good, &["stack.example".to_owned()]), "{good}");
        }
        for bad in
            ["evil.example", "evilvault.azure.net", "azure.net", "vault.azure.net.evil.example", "", "stack.example"]
        {
            assert!(!is_trusted_suffix(bad, &[]), "{bad}");
        }
    }
}
