//! Creates CSRs of intermediate CAs, to be signed by another mount or an external CA. The issuer is created when the
//! signed certificate is imported.

use super::key::{CaKeyInfo, CaKeySource, KeyRequest};
use crate::error::{Result, Warnings};
use crate::keys::pool::CallerWatch;
use crate::pki::check::ca_request;
use crate::pki::check::linted_tbs::LintedTbs;
use crate::pki::check::names::{self, subject_alt_names};
use crate::pki::check::request::{RequestedNames, RequestedSignature, RequestedSubject};
use crate::pki::engine::Authority;
use crate::pki::values::subject_bounds;
use crate::x509::csr::{Csr, encode_request_info};
use crate::x509::extension;
use crate::x509::usage::KeyUsage;

/// A request to generate the CSR of an intermediate CA.
#[derive(Clone, Debug, Default)]
pub struct CsrRequest {
    /// The CA's key: a new or an existing one.
    pub key: KeyRequest,
    /// Names in the subject and subjectAltName.
    pub names: RequestedNames,
    /// Other subject attributes.
    pub subject: RequestedSubject,
    /// keyUsage to request in the CSR, if any.
    pub key_usage: Option<KeyUsage>,
    /// `true` to request basicConstraints with cA TRUE.
    pub add_basic_constraints: bool,
    /// Requested signature algorithm of the CSR.
    pub signature: RequestedSignature,
}

/// A generated CSR.
pub struct GeneratedCsr {
    /// DER encoding of the CSR.
    pub der: Vec<u8>,
    /// The key of the CSR.
    pub key: CaKeyInfo,
    /// Warnings for the caller.
    pub warnings: Warnings,
}

/// Generates the CSR of an intermediate CA; stores its key if it is new.
///
/// # Errors
/// `Invalid` naming field and rule; nothing is stored then.
pub async fn generate(authority: &Authority, request: CsrRequest) -> Result<GeneratedCsr> {
    let CsrRequest { key, names, subject, key_usage, add_basic_constraints, signature } = request;
    let mut warnings = Warnings::default();
    let key_source = CaKeySource::new(key, &authority.view(), &mut warnings)?;
    let (names, more) = names::collect_for_ca(&names)?;
    warnings.extend(more);
    let subject = ca_request::encode_ca_subject(&subject, &names.common_name, &names.serial_number)?;
    // A CSR without a usable subject could not be signed by any CA.
    ca_request::check_subject("common_name", &subject)?;
    warnings.extend(subject_bounds::subject_violations(None, &subject));
    // The signing CA decides which extensions it adopts, so the CSR contains keyUsage only if the caller requests it.
    let mut extensions = extension::key_usage(key_usage.unwrap_or_default());
    if add_basic_constraints {
        extensions.extend(&extension::basic_constraints(true, None));
    }
    extensions.extend(&extension::subject_alt_name(&subject_alt_names(&names)?, false));
    let key = key_source.obtain(authority).await?;
    authority.deps().compromised.refuse("key", key.key.public())?;
    let algorithm = signature.algorithm(&key.key.signing, &*authority.deps().signers)?;
    let info = encode_request_info(&subject, key.key.public().spki(), &extensions);
    let prepared = LintedTbs::for_request(info, algorithm, &key.key.signing);
    let der = prepared.sign(&*authority.deps().signers, &CallerWatch::ALWAYS).await?.der();
    // The CSR is validated like one that a client sends, because other CAs will read it.
    Csr::from_der(&der)?.verify()?;
    let (key, more) = key.store(authority).await?;
    warnings.extend(more);
    Ok(GeneratedCsr { der, key, warnings })
}
