//! Requests of intermediate CAs: a key, and a CSR for it that a CA elsewhere, or another mount, signs.
//! No issuer comes of it before the signed certificate is imported.

use base64::Engine as _;

use super::actor::Planned;
use super::answer::{self, Data};
use super::ca_key::{CaKey, KeyOrder, KeyOrigin};
use super::issue::subject_alt_names;
use super::prepared::Prepared;
use super::request::{Format, IssueRequest, PrivateKeyFormat};
use super::{Authority, ca_request, names, subject_bounds};
use crate::error::Result;
use crate::fields::Fields;
use crate::secret::PartlySecret;
use crate::x509::algorithm::SignatureAlgorithm;
use crate::x509::csr::{Csr, request_info};
use crate::x509::extension;
use crate::x509::pem;

/// Fields of `intermediate/generate/:type`.
pub const FIELDS: &[&str] = &ca_request::joined::<26>(&[
    &[
        "key_name",
        "key_ref",
        "managed_key_name",
        "managed_key_id",
        "format",
        "private_key_format",
        "key_type",
        "key_bits",
        "signature_bits",
        "use_pss",
        "add_basic_constraints",
        "key_usage",
    ],
    &ca_request::NAME_FIELDS,
    &ca_request::SUBJECT_FIELDS,
]);

/// Makes a CSR for a new or an existing key; a new key is stored. Gives the answer's `data`, and warnings.
///
/// # Errors
/// `Invalid` naming field and rule; nothing is stored then.
pub async fn generate(
    authority: &Authority,
    origin: KeyOrigin,
    fields: &Fields,
) -> Result<(PartlySecret, Vec<String>)> {
    let mut warnings = Vec::new();
    let order = KeyOrder::from_fields(fields, origin, &authority.view(), &mut warnings)?;
    let request = IssueRequest::from_fields(fields)?;
    let algorithm = SignatureAlgorithm::for_issuer(
        order.kind(),
        ca_request::signature_bits(fields)?,
        fields.bool("use_pss")?.unwrap_or(false),
    )?;
    let wanted = Wanted::from_fields(fields, &request, &mut warnings)?;
    let key = order.obtain(authority).await?;
    let info = request_info(&wanted.subject, key.key.public().spki(), &[&wanted.extensions]);
    let der = Prepared::request(info, algorithm, &key.key.private).sign().await?.der();
    // What leaves is what other authorities read: held against the rules for requests that come in.
    Csr::from_der(&der)?.verify()?;
    let data = data(&key, &der, request.format, request.private_key_format)?;
    authority
        .change(move |view| {
            let mut next = view.clone();
            let writes = key.put(&mut next)?;
            Ok((Planned { view: next, writes, crls: false }, ()))
        })
        .await?;
    Ok((data, warnings))
}

/// What the CSR asks for.
struct Wanted {
    subject: Vec<u8>,
    /// Whole `Extension` SEQUENCEs, one after the other.
    extensions: Vec<u8>,
}

impl Wanted {
    fn from_fields(fields: &Fields, request: &IssueRequest, warnings: &mut Vec<String>) -> Result<Self> {
        let (names, more) = names::unchecked(request)?;
        warnings.extend(more);
        let subject = ca_request::subject(fields, &names.common_name, &names.serial_number)?;
        // Nobody may sign it otherwise.
        ca_request::check_subject("common_name", &subject)?;
        warnings.extend(subject_bounds::of_subject(None, &subject));
        // What the CA that signs takes over is its own rule: a usage stands here only when it was asked for.
        let mut extensions = extension::key_usage(ca_request::named_key_usage(fields)?.unwrap_or_default());
        if fields.bool("add_basic_constraints")?.unwrap_or(false) {
            extensions.extend(extension::basic_constraints(true, None));
        }
        extensions.extend(extension::subject_alt_name(&subject_alt_names(&names)?, false));
        Ok(Self { subject, extensions })
    }
}

fn data(key: &CaKey, der: &[u8], format: Format, key_format: PrivateKeyFormat) -> Result<PartlySecret> {
    let text = || pem::encode("CERTIFICATE REQUEST", der);
    let mut data = Data::default();
    match (format, key.exported()) {
        (Format::Der, _) => data.add("csr", &base64::engine::general_purpose::STANDARD.encode(der)),
        (Format::PemBundle, Some(private)) => data.add_secret("csr", &answer::beside(private, &text())?)?,
        (Format::Pem | Format::PemBundle, _) => data.add("csr", &text()),
    }
    key.show(&mut data, format, key_format)?;
    Ok(data.finish())
}
