//! The role and mount that issue a renewed certificate. Without `--role`, they come from the server's record of the old
//! certificate.
//!
//! If the token may not read that record, the default role and mount are used, and messages about the renewal say so.

use crate::error::{Error, Result};
use crate::x509::certificate::Certificate;

use super::super::certify::{AuthorityArguments, CertifyError, IssuingRole};
use super::super::client::ClientRequest;
use super::super::path;
use super::super::who::{MOUNTS_PATH, authorities_in};

/// The role and mount that issue the replacement of a certificate.
pub(super) struct RenewalRole {
    pub(super) issuing: IssuingRole,
    /// Note for messages that the default role is used. `None` if the role comes from `--role` or from the server's
    /// record.
    pub(super) default_note: Option<String>,
}

impl RenewalRole {
    /// Determines the role that issues the replacement of the certificate `old`. Searches for its record in the mount
    /// of `--mount`, or else in all mounts that the token may read.
    ///
    /// # Errors
    /// The server's error response, except 403 and 404; those of
    /// [`AuthenticatedClient::request`](super::super::client::AuthenticatedClient::request).
    pub(super) async fn find(authority: &AuthorityArguments, old: &Certificate) -> Result<Self> {
        let issuing = authority.issuing_role();
        if authority.role.is_some() {
            return Ok(Self { issuing, default_note: None });
        }
        let mounts = match &authority.mount {
            Some(mount) => vec![mount.clone()],
            None => authorities_in(&authority.caller.request(ClientRequest::get(MOUNTS_PATH)).await?.visible_data()?),
        };
        for mount in mounts.iter().filter_map(|mount| path::parse_mount(mount).ok()) {
            let path = format!("{mount}/cert-record/{}", old.serial());
            let record = authority.caller.request(ClientRequest::get(&path)).await?.visible_data()?;
            if let Some(role) = record["role"].as_str().and_then(|role| path::parse_role(role).ok()) {
                return Ok(Self { issuing: IssuingRole { mount, role }, default_note: None });
            }
        }
        let IssuingRole { mount, role } = &issuing;
        let note = format!(
            "--role: not given, and the token may read no record of the certificate (MOUNT/cert-record/{}); the \
             default is used, role {role} of mount {mount}: give --role and --mount",
            old.serial()
        );
        Ok(Self { issuing, default_note: Some(note) })
    }

    /// Adds `default_note`, if any, to the error of a certificate request with this role.
    pub(super) fn explain(&self, refusal: CertifyError) -> CertifyError {
        let Some(note) = &self.default_note else { return refusal };
        let error = Error::new(refusal.error.kind(), format!("{}; {note}", refusal.error.text()));
        CertifyError { error, ..refusal }
    }
}
