//! Pre-encoded parts of certificates. Data common to all certificates of a role or issuer is encoded when the role or
//! issuer changes, so that issuing only concatenates.

use std::sync::Arc;

use super::issuer::Issuer;
use super::role::{CompiledRole, Role};
use super::urls::Urls;
use crate::error::{Error, Result};
use crate::pki::constraints::ChainConstraints;
use crate::x509::algorithm::{Curve, KeyKind};
use crate::x509::extension::{self, CertificatePolicy};
use crate::x509::name::{Attribute, rdns};
use crate::x509::pem;
use crate::x509::pieces::{Extensions, Rdns};

/// A role with the pre-encoded parts of its certificates.
pub struct EncodedRole {
    /// The role with its parsed lists.
    pub role: Arc<CompiledRole>,
    /// Version of the stored role document.
    pub version: u64,
    /// The role's RDNs in subject order: C, ST, L, STREET, POSTALCODE, O, OU.
    pub subject: Rdns,
    /// The extensions for RSA, for EC and for Ed25519 keys. Each element has keyUsage, extKeyUsage and basicConstraints
    /// in that order, each only if the role sets it.
    leading_extensions: [Extensions; 3],
    /// The certificatePolicies extension; empty when the role has no policies.
    pub policies: Extensions,
}

impl EncodedRole {
    /// Encodes the parts that all certificates of a role share.
    ///
    /// # Errors
    /// `Invalid` when an OID of the role does not parse.
    pub fn new(role: Role, version: u64) -> Result<Self> {
        let subject = [
            (Attribute::Country, &role.country),
            (Attribute::Province, &role.province),
            (Attribute::Locality, &role.locality),
            (Attribute::StreetAddress, &role.street_address),
            (Attribute::PostalCode, &role.postal_code),
            (Attribute::Organization, &role.organization),
            (Attribute::OrganizationalUnit, &role.ou),
        ]
        .into_iter()
        .map(|(attribute, values)| rdns(attribute, values, role.separate_rdns))
        .collect();
        let policies = encode_policies(&role)?;
        // The default key usage depends on the key family only, not on the key size.
        let rsa = KeyKind::Rsa { bits: 2048 };
        let ec = KeyKind::Ec(Curve::P256);
        let leading_extensions = [
            encode_leading_extensions(&role, rsa)?,
            encode_leading_extensions(&role, ec)?,
            encode_leading_extensions(&role, KeyKind::Ed25519)?,
        ];
        Ok(Self { subject, leading_extensions, policies, role: Arc::new(role.into()), version })
    }

    /// Returns keyUsage, extKeyUsage and basicConstraints for a certificate with a key of this kind.
    pub fn leading_extensions(&self, kind: KeyKind) -> &Extensions {
        let [rsa, ec, ed25519] = &self.leading_extensions;
        match kind {
            KeyKind::Rsa { .. } => rsa,
            KeyKind::Ec(_) => ec,
            KeyKind::Ed25519 => ed25519,
        }
    }
}

fn encode_leading_extensions(role: &Role, kind: KeyKind) -> Result<Extensions> {
    let purposes = role.purposes()?;
    let mut extensions = extension::key_usage(role.key_usage_for(kind));
    extensions.extend(&extension::ext_key_usage(&purposes));
    if role.basic_constraints_valid_for_non_ca {
        extensions.extend(&extension::basic_constraints(false, None));
    }
    Ok(extensions)
}

fn encode_policies(role: &Role) -> Result<Extensions> {
    let owned = |text: Option<&str>| text.map(str::to_owned);
    let policies = role
        .policy_identifiers
        .iter()
        .map(|p| {
            let oid = extension::parse_oid(p.oid())
                .ok_or_else(|| Error::invalid("policy_identifiers: every entry must be a dotted OID"))?;
            Ok(CertificatePolicy { oid, cps: owned(p.cps()), notice: owned(p.notice()) })
        })
        .collect::<Result<Vec<_>>>()?;
    Ok(extension::certificate_policies(&policies))
}

/// Pre-encoded data common to all certificates of an issuer.
pub struct EncodedIssuerParts {
    /// Key identifier of the issuer, of any length; see [`issuer_key_id`].
    pub key_id: Vec<u8>,
    /// authorityKeyIdentifier with [`EncodedIssuerParts::key_id`].
    pub authority_key_id: Extensions,
    /// Name constraints of the chains above the issuer; empty when no chain has any.
    pub constraints: Vec<ChainConstraints>,
    /// The extensions with the issuer's URLs.
    pub locations: UrlExtensions,
}

/// The extensions that contain an issuer's URLs; each is empty when it has no URL.
pub struct UrlExtensions {
    /// The extension authorityInfoAccess.
    pub authority_info: Extensions,
    /// The extension cRLDistributionPoints.
    pub distribution_points: Extensions,
    /// The extension freshestCRL.
    pub freshest_crl: Extensions,
}

impl UrlExtensions {
    /// Encodes the extensions with these URLs. Placeholders in the URLs must already be replaced.
    pub fn new(urls: &Urls) -> Self {
        Self {
            authority_info: extension::authority_info_access(&urls.ocsp_servers, &urls.issuing_certificates),
            distribution_points: extension::crl_distribution_points(&urls.crl_distribution_points),
            freshest_crl: extension::freshest_crl(&urls.delta_crl_distribution_points),
        }
    }
}

impl EncodedIssuerParts {
    /// Encodes the parts that all certificates of an issuer share. The placeholders in `urls` must already be replaced.
    pub fn new(issuer: &Issuer, constraints: Vec<ChainConstraints>, urls: &Urls) -> Self {
        let key_id = issuer_key_id(issuer);
        Self {
            authority_key_id: extension::authority_key_id(&key_id),
            key_id,
            constraints,
            locations: UrlExtensions::new(urls),
        }
    }

    /// Returns the extensions that follow subjectKeyIdentifier: those of the issuer, with the certificate's `own`
    /// extensions before the CRL URLs, and `last` at the end.
    pub(crate) fn trailing_extensions(&self, own: [&Extensions; 2], last: &Extensions) -> Extensions {
        let UrlExtensions { authority_info, distribution_points, freshest_crl } = &self.locations;
        let [first, second] = own;
        let authority_key_id = &self.authority_key_id;
        Extensions::joined(&[authority_key_id, authority_info, first, second, distribution_points, freshest_crl, last])
    }
}

/// Returns the issuer's key identifier: the SKI of its certificate, else method 1 (RFC 5280 4.2.1.2) over its key.
pub fn issuer_key_id(issuer: &Issuer) -> Vec<u8> {
    let certificate = &issuer.certificate;
    certificate.subject_key_id().map_or_else(|| certificate.key().key_id().to_vec(), <[u8]>::to_vec)
}

/// Returns the issuer's certificate as PEM without a trailing newline.
pub fn certificate_pem(issuer: &Issuer) -> String {
    pem::encode("CERTIFICATE", issuer.certificate.der())
}
