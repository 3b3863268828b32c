//! Rows stored in the same commit as a certificate: the lease required by its role, and the caller's metadata
//! (`cert_metadata`).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::issued::CertificateLease;
use super::request::{IssueContext, IssueRequester};
use crate::error::{Error, Result};
use crate::pki::mount::role::Role;
use crate::pki::store::{CertificateRow, LeaseRow, MetadataRow, PkiWrite};

/// Length of the random part of a lease id, characters.
const LEASE_ID_RANDOM_CHARS: usize = 24;
/// Maximum length of `cert_metadata` in characters of base64.
const MAX_METADATA_CHARS: usize = 64 << 10;

/// The lease and the metadata to store with a certificate.
#[derive(Default)]
pub(crate) struct IssueSideEffects {
    lease: Option<LeaseRequest>,
    metadata: Option<String>,
}

struct LeaseRequest {
    path: String,
    token: [u8; 32],
}

/// The stored metadata of a certificate.
#[derive(Serialize, Deserialize)]
pub struct CertificateMetadata {
    /// Id of the issuer.
    pub issuer: String,
    /// Name of the role, if the request used one.
    pub role: Option<String>,
    /// The metadata in base64, as the caller sent it.
    pub metadata: String,
}

impl CertificateMetadata {
    /// Parses a stored metadata row.
    ///
    /// # Errors
    /// `Internal` when the row is damaged.
    pub fn of(row: &MetadataRow) -> Result<Self> {
        serde_json::from_slice(&row.body).map_err(Error::internal)
    }
}

impl IssueSideEffects {
    /// Determines the lease and the metadata of a request under its role; without a role there are none.
    ///
    /// # Errors
    /// `Invalid` naming `cert_metadata` and the rule; `Invalid` for a lease on the last use of a token, because the
    /// lease would be revoked immediately.
    pub(crate) fn of(origin: &IssueContext, metadata: Option<&str>, role: Option<&Role>) -> Result<Self> {
        let metadata = check_metadata(metadata, role)?;
        let lease = role
            .is_some_and(|role| role.generate_lease && !role.no_store)
            .then(|| lease_request(&origin.path, &origin.requester));
        Ok(Self { lease: lease.transpose()?, metadata })
    }

    /// Creates side effects with a lease and without metadata, for a request at `path`.
    ///
    /// # Errors
    /// `Invalid` on the last use of a token, and for a batch token without a parent.
    pub(crate) fn lease_only(path: &str, requester: &IssueRequester) -> Result<Self> {
        Ok(Self { lease: Some(lease_request(path, requester)?), metadata: None })
    }

    /// Returns `true` if there is neither lease nor metadata to store.
    pub(crate) fn is_empty(&self) -> bool {
        self.lease.is_none() && self.metadata.is_none()
    }

    /// Returns the rows to store with `certificate` (which itself may not be stored), and the lease to return once they
    /// are durable.
    ///
    /// # Errors
    /// `Internal` when metadata cannot be encoded.
    pub(crate) fn writes(&self, certificate: &CertificateRow) -> Result<(Vec<PkiWrite>, Option<CertificateLease>)> {
        let CertificateRow { mount, serial, not_after, issued_at, .. } = *certificate;
        let mut writes = Vec::new();
        if let Some(metadata) = &self.metadata {
            let issuer = certificate.issuer.clone();
            let role = certificate.role.clone();
            let body = serde_json::to_vec(&CertificateMetadata { issuer, role, metadata: metadata.clone() });
            let body = body.map_err(Error::internal)?;
            writes.push(PkiWrite::Metadata(MetadataRow { mount, serial, not_after, body }));
        }
        let lease = self.lease.as_ref().map(|LeaseRequest { path, token }| {
            let id = new_lease_id(path);
            let row = LeaseRow { id: id.clone(), mount, serial, token: *token, issued_at, expires_at: not_after };
            writes.push(PkiWrite::Lease(row));
            CertificateLease { id, seconds: u64::try_from(not_after - issued_at).unwrap_or(0) }
        });
        Ok((writes, lease))
    }
}

/// Generates a lease id for a request at `path`.
pub(crate) fn new_lease_id(path: &str) -> String {
    format!("{path}/{}", crate::random::base62(LEASE_ID_RANDOM_CHARS))
}

fn lease_request(path: &str, requester: &IssueRequester) -> Result<LeaseRequest> {
    if requester.last_use {
        return Err(Error::invalid(
            "lease: this is the last use of the token, so the lease would be revoked immediately; use another token",
        ));
    }
    let token = requester.token.ok_or_else(|| {
        Error::invalid(
            "lease: batch tokens without a parent cannot have leases, and the role sets generate_lease; use another \
             token",
        )
    })?;
    Ok(LeaseRequest { path: path.to_owned(), token })
}

/// Validates `cert_metadata` under the role; an empty text means no metadata.
fn check_metadata(metadata: Option<&str>, role: Option<&Role>) -> Result<Option<String>> {
    let refuse = |why: &str| Err(Error::invalid(format!("cert_metadata: {why}")));
    let Some(text) = metadata.filter(|text| !text.is_empty()) else { return Ok(None) };
    match role {
        None => return refuse("needs a role"),
        Some(role) if role.no_store_metadata => return refuse("the role forbids it (no_store_metadata)"),
        Some(_) => {}
    }
    if text.len() > MAX_METADATA_CHARS {
        return refuse("longer than 65536 characters");
    }
    if STANDARD.decode(text).is_err() {
        return refuse("must be standard base64");
    }
    Ok(Some(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_text(text: &str, role: Option<&Role>) -> Result<Option<String>> {
        check_metadata(Some(text), role)
    }

    #[test]
    fn cert_metadata_is_base64_within_the_limit_and_permitted_by_the_role() {
        let role = Role::default();
        let forbids = Role { no_store_metadata: true, ..Role::default() };
        assert_eq!(check_text("aGk=", Some(&role)).unwrap().as_deref(), Some("aGk="), "kept as given");
        for role in [None, Some(&role), Some(&forbids)] {
            assert_eq!(check_text("", role).unwrap(), None, "an empty text means no metadata");
        }
        let refused = |text: &str, role| check_text(text, role).unwrap_err().text().to_owned();
        assert_eq!(refused("aGk=", None), "cert_metadata: needs a role");
        assert!(refused("aGk=", Some(&forbids)).contains("no_store_metadata"));
        for text in ["aGk", "a-_k", "aGk=\n", " aGk=", "!!!!"] {
            assert_eq!(refused(text, Some(&role)), "cert_metadata: must be standard base64", "{text:?}");
        }
        assert!(check_text(&"A".repeat(MAX_METADATA_CHARS), Some(&role)).is_ok());
        assert!(refused(&"A".repeat(MAX_METADATA_CHARS + 4), Some(&role)).contains("longer than"));
    }
}
