//! Validation of directory tenants.

use crate::error::{Error, Result};

/// Validates a tenant, which is a segment of the URL to which a secret is sent: a GUID, a domain name, or empty.
///
/// # Errors
/// `Invalid` with the rule.
pub(crate) fn check_tenant(tenant: &str) -> Result<()> {
    let is_label = |label: &str| !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    if tenant.is_empty() || (tenant.len() <= 253 && tenant.split('.').all(is_label)) {
        return Ok(());
    }
    Err(Error::invalid("tenant_id: must be a GUID or the name of a domain"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_is_one_segment_of_a_url() {
        for good in ["3fd2a5bb-6a2b-4f2a-8d6e-000000000001", "contoso.onmicrosoft.com", ""] {
            check_tenant(good).unwrap();
        }
        for bad in ["../evil", "a/b?x", "..", ".", "a..b", "a b", "ä", "a%2f", "a.", &"a".repeat(254)] {
            assert_eq!(check_tenant(bad).unwrap_err().text(), "tenant_id: must be a GUID or the name of a domain");
        }
    }
}
