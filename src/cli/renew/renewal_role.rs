//! The role and mount of a renewal: those of the arguments, or without `--role` those of the server's record of the
//! certificate.
//!
//! Many tokens may not read records. Then the defaults are used, and messages about the renewal say so.

use signet::error::{Error, Result};
use signet::x509::certificate::Certificate;

use super::super::certify::{AuthorityArguments, CertifyError, IssuingRole};
use super::super::client::ClientRequest;
use super::super::path;
use super::super::who::{MOUNTS_PATH, authorities_in};

/// The role that renews a certificate.
pub(super) struct RenewalRole {
    pub(super) issuing: IssuingRole,
    /// A note that the role is the default, if neither `--role` nor a record names another one.
    pub(super) default_note: Option<String>,
}

impl RenewalRole {
    /// Finds the role for the successor of a certificate. `--mount` limits the search to this mount.
    ///
    /// # Errors
    /// Without a response; the server's refusal, except for lack of permission.
    pub(super) async fn find(authority: &AuthorityArguments, old: &Certificate) -> Result<Self> {
        let issuing = authority.issuing_role();
        if authority.role.is_some() {
            return Ok(Self { issuing, default_note: None });
        }
        let mounts = match &authority.mount {
            Some(mount) => vec![mount.clone()],
            None => authorities_in(&authority.caller.ask(ClientRequest::get(MOUNTS_PATH)).await?.visible_data()?),
        };
        for mount in mounts.iter().filter_map(|mount| path::parse_mount(mount).ok()) {
            let path = format!("{mount}/cert-record/{}", old.serial());
            let record = authority.caller.ask(ClientRequest::get(&path)).await?.visible_data()?;
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

    /// Adds the note to the error of a request with this role.
    pub(super) fn explain(&self, refusal: CertifyError) -> CertifyError {
        let Some(note) = &self.default_note else { return refusal };
        let error = Error::new(refusal.error.kind(), format!("{}; {note}", refusal.error.text()));
        CertifyError { error, ..refusal }
    }
}
