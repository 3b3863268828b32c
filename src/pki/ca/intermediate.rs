//! Requests of intermediate CAs: a key, and a CSR for it that a CA elsewhere, or another mount, signs.
//! No issuer comes of it before the signed certificate is imported.

use super::key::{CaKeyInfo, KeyOrder, KeyRequest};
use crate::error::{Result, Warnings};
use crate::keys::pool::Watch;
use crate::pki::check::ca_request;
use crate::pki::check::names::{self, subject_alt_names};
use crate::pki::check::prepared::Prepared;
use crate::pki::check::request::{RequestedNames, RequestedSignature, RequestedSubject};
use crate::pki::engine::Authority;
use crate::pki::values::subject_bounds;
use crate::x509::csr::{Csr, request_info};
use crate::x509::extension;
use crate::x509::usage::KeyUsage;

/// What a CSR is to say.
#[derive(Clone, Debug, Default)]
pub struct CsrRequest {
    /// Its key.
    pub key: KeyRequest,
    /// Its names.
    pub names: RequestedNames,
    /// The other attributes of its subject.
    pub subject: RequestedSubject,
    /// keyUsage, when it asks for one.
    pub key_usage: Option<KeyUsage>,
    /// Whether it asks for basicConstraints with cA TRUE.
    pub add_basic_constraints: bool,
    /// How it is signed.
    pub signature: RequestedSignature,
}

/// A CSR that was made.
pub struct GeneratedCsr {
    /// The CSR, DER.
    pub der: Vec<u8>,
    /// Its key.
    pub key: CaKeyInfo,
    /// Warnings for the caller.
    pub warnings: Warnings,
}

/// Makes a CSR for a key; one that the mount does not have yet is stored.
///
/// # Errors
/// `Invalid` naming field and rule; nothing is stored then.
pub async fn generate(authority: &Authority, request: CsrRequest) -> Result<GeneratedCsr> {
    let CsrRequest { key, names, subject, key_usage, add_basic_constraints, signature } = request;
    let mut warnings = Warnings::default();
    let order = KeyOrder::new(key, &authority.view(), &mut warnings)?;
    let (names, more) = names::unchecked(&names)?;
    warnings.extend(more);
    let subject = ca_request::subject(&subject, &names.common_name, &names.serial_number)?;
    // Nobody may sign it otherwise.
    ca_request::check_subject("common_name", &subject)?;
    warnings.extend(subject_bounds::of_subject(None, &subject));
    // What the CA that signs takes over is its own rule: a usage stands here only when it was asked for.
    let mut extensions = extension::key_usage(key_usage.unwrap_or_default());
    if add_basic_constraints {
        extensions.extend(&extension::basic_constraints(true, None));
    }
    extensions.extend(&extension::subject_alt_name(&subject_alt_names(&names)?, false));
    let key = order.obtain(authority).await?;
    authority.tools().compromised.refuse("key", key.key.public())?;
    let algorithm = signature.algorithm(&key.key.signing, &*authority.tools().signers)?;
    let info = request_info(&subject, key.key.public().spki(), &extensions);
    let prepared = Prepared::request(info, algorithm, &key.key.signing);
    let der = prepared.sign(&*authority.tools().signers, &Watch::ALWAYS).await?.der();
    // What leaves is what other authorities read: held against the rules for requests that come in.
    Csr::from_der(&der)?.verify()?;
    let (key, more) = key.store(authority).await?;
    warnings.extend(more);
    Ok(GeneratedCsr { der, key, warnings })
}
