//! The role and mount for a renewal: from the arguments, or without `--role` from the server's record of the
//! certificate.
//!
//! Many tokens may not read records. The default role and mount are used then, and messages about the renewal say so.

use crate::error::{Error, Result};
use crate::x509::certificate::Certificate;

use super::super::certify::{AuthorityArguments, CertifyError, IssuingRole};
use super::super::client::ClientRequest;
use super::super::path;
use super::super::who::{MOUNTS_PATH, authorities_in};

/// The role that renews a certificate.
pub(super) struct RenewalRole {
    pub(super) issuing: IssuingRole,
    /// A sentence for messages: the role is only the default. `None` if `--role` or a record names the role.
    pub(super) default_note: Option<String>,
}

impl RenewalRole {
    /// Finds the role that issues the successor of a certificate. With `--mount`, only the records of that mount are
    /// searched.
    ///
    /// # Errors
    /// When the server does not respond, or responds with an error other than a missing permission.
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

    /// Adds the sentence `default_note` to the error of a request with this role.
    pub(super) fn explain(&self, refusal: CertifyError) -> CertifyError {
        let Some(note) = &self.default_note else { return refusal };
        let error = Error::new(refusal.error.kind(), format!("{}; {note}", refusal.error.text()));
        CertifyError { error, ..refusal }
    }
}
