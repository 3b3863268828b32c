//! Requests a certificate, for `issue` and `renew`.
//!
//! The private key is generated here and never sent. The server gets a certification request with an `Idempotency-Key`,
//! so the command can repeat the request after a lost response. The command rejects a certificate that is for another
//! key or not signed by the returned authority.

use std::time::Duration;

use crate::clock::{Clock, Time, format_rfc3339};
use crate::error::{Error, Kind, Result};
use crate::keys::{KeySpec, PrivateKey};
use crate::random;
use crate::secret::{Secret, sealed};
use crate::x509::algorithm::{Hash, KeyKind, SignatureAlgorithm};
use crate::x509::certificate::Certificate;
use crate::x509::csr::{Csr, encode_request_info};
use crate::x509::pieces::{Extensions, Name};
use crate::x509::public_key::PublicKey;
use crate::x509::{pem, tbs};
use serde::Deserialize;
use serde_json::{Value, json};

use super::client::{self, AuthenticatedClient, ClientRequest, ClientResponse};
use super::names::TypedNames;
use super::path;

/// Maximum number of CA certificates that are looked up to complete an incomplete chain.
const MAX_CHAIN_LENGTH: usize = 8;
/// Maximum number of mounts, and of issuers per mount, that are searched for a missing CA certificate.
const MAX_SEARCHED_ENTRIES: usize = 64;
/// Default role. `signet dev` creates this role, in the mount [`DEFAULT_MOUNT`].
const DEFAULT_ROLE: &str = "dev";
const DEFAULT_MOUNT: &str = "pki";
/// Suffixes of the server's warnings that the role takes the names from the certification request and ignores the names
/// in the request body.
const REQUEST_NAME_WARNING_ENDINGS: [&str; 2] = ["(use_csr_sans)", "(use_csr_common_name)"];
const CERTIFICATE_LABEL: &str = "CERTIFICATE";

/// The authority, role and lifetime.
#[derive(clap::Args)]
#[command(next_help_heading = "Authority")]
pub(super) struct AuthorityArguments {
    /// Role that decides what may be issued; default: dev. `renew` without it takes role and mount from the server's
    /// record of the certificate, if the token may read that.
    #[arg(long, env = "SIGNET_ROLE", value_parser = path::parse_role)]
    pub(super) role: Option<String>,
    /// Mount of the certificate authority; default: pki.
    #[arg(long, env = "SIGNET_MOUNT", value_parser = path::parse_mount)]
    pub(super) mount: Option<String>,
    /// Time to live, such as 24h.
    #[arg(long)]
    pub(super) ttl: Option<String>,
    #[command(flatten)]
    pub(super) caller: AuthenticatedClient,
}

/// The role that issues a certificate, and its mount.
pub(super) struct IssuingRole {
    pub(super) mount: String,
    pub(super) role: String,
}

pub(super) enum ClientKeySource<'s> {
    /// The client's own key, for which it has this certification request.
    Request(&'s ClientCsr),
    /// A key pair that the server generates and returns.
    ServerKey,
}

/// A certification request: the PEM text, with the key and the names parsed from it.
pub(super) struct ClientCsr {
    text: String,
    key: PublicKey,
    pub(super) names: TypedNames,
}

impl ClientCsr {
    /// Parses a certification request in PEM.
    ///
    /// # Errors
    /// `Invalid` when the request cannot be parsed, or was not signed with its own key.
    pub(super) fn read(text: &str) -> Result<Self> {
        let csr = Csr::from_pem(text)?;
        csr.verify()?;
        Ok(Self {
            text: pem::encode("CERTIFICATE REQUEST", csr.der()),
            names: TypedNames::of_request(&csr)?,
            key: csr.key,
        })
    }

    /// Creates a certification request with the given subject and alternative names, signed by `key`.
    ///
    /// # Errors
    /// `Internal` when the crypto library fails.
    pub(super) fn new(key: &PrivateKey, subject: &Name, sans: &Extensions) -> Result<Self> {
        let algorithm = match key.kind() {
            KeyKind::Rsa { .. } => SignatureAlgorithm::RsaPkcs1(Hash::Sha256),
            KeyKind::Ec(curve) => SignatureAlgorithm::Ecdsa(curve.hash()),
            KeyKind::Ed25519 => SignatureAlgorithm::Ed25519,
        };
        let info = encode_request_info(subject, key.public().spki(), sans);
        let der = tbs::encode_signed(&info, algorithm, &key.sign(algorithm, &info)?);
        Self::read(&pem::encode("CERTIFICATE REQUEST", &der))
    }
}

/// Generates a private key. Returns the key and its PEM encoding.
///
/// # Errors
/// `Invalid`, with the field, for an unknown type or size.
pub(super) fn generate_key(key_type: &str, bits: i64) -> Result<(PrivateKey, Secret)> {
    let key = PrivateKey::generate(KeySpec::new(key_type, bits)?)?;
    let text = Secret::new(pem::encode("PRIVATE KEY", key.to_pkcs8()?.expose()));
    Ok((key, text))
}

/// Parses the server's error for a rejected key of type `kind`. Returns the key type and size (in bits, 0 for the
/// default) that the role requires; `None` for other errors.
pub(super) fn required_key_type(refusal: &Error, kind: KeyKind) -> Option<(&'static str, i64)> {
    let after = |before: &str| refusal.text().split_once(before).map(|(_, rest)| rest);
    if let Some(rest) = after("role requires keys of type ") {
        return ["rsa", "ec", "ed25519"].into_iter().find(|word| rest.starts_with(word)).map(|word| (word, 0));
    }
    let bits = after("role requires a minimum of an ")?.split_once("-bit key")?.0.parse().ok()?;
    Some((kind.name(), bits))
}

pub(super) struct CertifyError {
    pub(super) error: Error,
    pub(super) retry_after: Option<Duration>,
    /// `true` if the server issued a certificate that the client cannot use. A retry would probably have the same
    /// result.
    pub(super) is_unusable_certificate: bool,
}

impl CertifyError {
    pub(super) fn unusable_certificate(error: Error) -> Self {
        Self { error, retry_after: None, is_unusable_certificate: true }
    }
}

impl From<Error> for CertifyError {
    fn from(error: Error) -> Self {
        Self { retry_after: error.retry_after(), error, is_unusable_certificate: false }
    }
}

impl From<CertifyError> for Error {
    fn from(refusal: CertifyError) -> Self {
        refusal.error
    }
}

type CertifyResponse = client::ClientResponseBody<CertifyData>;

#[derive(Default, Deserialize)]
#[serde(default)]
struct CertifyData {
    certificate: String,
    #[serde(with = "sealed")]
    private_key: Secret,
    issuing_ca: String,
    ca_chain: Vec<String>,
    renew_after: Value,
}

#[derive(Clone, Debug)]
pub(super) struct PemCertificate {
    pub(super) certificate: Certificate,
    pub(super) text: String,
}

impl PemCertificate {
    /// Parses a certificate in PEM.
    ///
    /// # Errors
    /// `Invalid` when the text is not a certificate.
    pub(super) fn read(text: &str) -> Result<Self> {
        match pem::parse_first_block(text)? {
            Some((label, der)) if label == CERTIFICATE_LABEL => {
                let certificate = Certificate::parse(&der)?;
                Ok(Self { text: pem::encode(CERTIFICATE_LABEL, &der) + "\n", certificate })
            }
            _ => Err(Error::invalid("has no PEM block CERTIFICATE")),
        }
    }

    pub(super) fn is_root(&self) -> bool {
        self.certificate.is_self_signed()
    }
}

/// The certificates that follow the leaf in its file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum ChainSelection {
    /// The authorities above it except the root, as servers send them.
    #[default]
    Intermediates,
    /// All authorities, including the root.
    Full,
    /// None.
    None,
}

pub(super) struct ReceivedCertificate {
    pub(super) leaf: PemCertificate,
    /// The CA certificates above the leaf, starting with its issuer.
    pub(super) chain: Vec<PemCertificate>,
    /// The private key of the leaf, if the server generated it.
    pub(super) key: Option<Secret>,
    /// Time at which the client should renew the certificate, in Unix seconds, as the server recommends.
    pub(super) renew_after: Option<i64>,
    pub(super) warnings: Vec<String>,
}

impl ReceivedCertificate {
    pub(super) fn certificates_pem(&self, chain: ChainSelection) -> String {
        let above = self.chain.iter().filter(|link| match chain {
            ChainSelection::Intermediates => !link.is_root(),
            ChainSelection::Full => true,
            ChainSelection::None => false,
        });
        std::iter::once(&self.leaf).chain(above).map(|link| link.text.as_str()).collect()
    }

    pub(super) fn authorities(&self) -> String {
        self.chain.iter().map(|link| link.text.as_str()).collect()
    }

    pub(super) fn to_json(&self) -> Value {
        let time = |seconds| Time::from_unix_timestamp(seconds).map(format_rfc3339).ok();
        json!({
            "serial_number": self.leaf.certificate.serial().to_string(),
            "common_name": self.leaf.certificate.common_name(),
            "not_before": time(self.leaf.certificate.not_before()),
            "not_after": time(self.leaf.certificate.not_after()),
            "renew_after": self.renew_after.and_then(time),
            "warnings": self.warnings,
        })
    }
}

impl AuthorityArguments {
    /// Returns the role and the mount from the arguments. Each of them has a default.
    pub(super) fn issuing_role(&self) -> IssuingRole {
        IssuingRole {
            mount: self.mount.clone().unwrap_or_else(|| DEFAULT_MOUNT.to_owned()),
            role: self.role.clone().unwrap_or_else(|| DEFAULT_ROLE.to_owned()),
        }
    }

    /// Requests a certificate, with the role and mount of the arguments.
    ///
    /// # Errors
    /// Those of [`AuthorityArguments::certify_with_role`].
    pub(super) async fn certify(
        &self,
        subject: &ClientKeySource<'_>,
        names: &TypedNames,
    ) -> std::result::Result<ReceivedCertificate, CertifyError> {
        self.certify_with_role(&self.issuing_role(), subject, names).await
    }

    /// Requests a certificate. The names are sent in the certification request and in the request body, because some
    /// roles ignore one of the two. If both contain the same names, the server's warnings about ignored names are
    /// dropped.
    ///
    /// # Errors
    /// The server's error response; an error if the issued certificate is unusable.
    pub(super) async fn certify_with_role(
        &self,
        issuing: &IssuingRole,
        subject: &ClientKeySource<'_>,
        names: &TypedNames,
    ) -> std::result::Result<ReceivedCertificate, CertifyError> {
        let operation = if matches!(subject, ClientKeySource::ServerKey) { "issue" } else { "sign" };
        let path = format!("{}/{operation}/{}", issuing.mount, issuing.role);
        let mut body = json!({});
        names.write_to_body(&mut body);
        if let Some(ttl) = &self.ttl {
            body["ttl"] = ttl.as_str().into();
        }
        let mut key = None;
        if let ClientKeySource::Request(request) = subject {
            body["csr"] = request.text.as_str().into();
            key = Some(idempotency_key());
        }
        let mut reply = self
            .caller
            .request(ClientRequest { idempotency_key: key.as_deref(), ..ClientRequest::post(&path, &body) })
            .await?;
        let mut answer: CertifyResponse = reply.json();
        if reply.status == 400 && key.is_some() && answer.errors.iter().any(|text| text.contains("Idempotency-Key")) {
            // If the role does not store certificates, the server cannot deduplicate requests and rejects the
            // `Idempotency-Key`. Send the request once without it.
            reply = self.caller.request(ClientRequest::post(&path, &body)).await?;
            answer = reply.json();
        }
        if reply.status != 200 {
            return Err(reply.to_error(&rejection_hint(&reply, &answer.errors, &self.caller)).into());
        }
        let expected = if let ClientKeySource::Request(request) = subject { Some(*request) } else { None };
        let mut issued = validate_response(answer, expected).map_err(CertifyError::unusable_certificate)?;
        if expected.is_some_and(|request| request.names.clone().sorted() == names.clone().sorted()) {
            let said_twice = |text: &String| REQUEST_NAME_WARNING_ENDINGS.iter().any(|setting| text.ends_with(setting));
            issued.warnings.retain(|text| !said_twice(text));
        }
        self.complete_chain(&mut issued, &issuing.mount).await;
        Ok(issued)
    }

    async fn complete_chain(&self, issued: &mut ReceivedCertificate, mount: &str) {
        for _ in 0..MAX_CHAIN_LENGTH {
            match issued.chain.last() {
                Some(last) if !last.is_root() => match self.find_issuer_of(&last.certificate).await {
                    Some(link) => issued.chain.push(link),
                    None => {
                        let text = format!(
                            "the mount has no root certificate above {:?}: import it ({mount}/issuers/import/cert), \
                             or verify with openssl verify -partial_chain",
                            last.certificate.subject().display()
                        );
                        issued.warnings.push(text);
                        return;
                    }
                },
                _ => return,
            }
        }
    }

    async fn find_issuer_of(&self, certificate: &Certificate) -> Option<PemCertificate> {
        let mounts = self.caller.request_data(ClientRequest::get("sys/internal/ui/mounts")).await.ok()?;
        let engines = mounts["secret"].as_object()?;
        let authorities = engines.iter().filter(|(_, mount)| mount["type"] == "pki").map(|(path, _)| path);
        for mount in authorities.take(MAX_SEARCHED_ENTRIES) {
            let Ok(issuers) = self.caller.request_data(ClientRequest::list(&format!("{mount}issuers"))).await else {
                continue;
            };
            for id in client::texts_in(&issuers["keys"]).take(MAX_SEARCHED_ENTRIES) {
                let issuer = self.caller.request_data(ClientRequest::get(&format!("{mount}issuer/{id}/json"))).await;
                let link = issuer.ok().and_then(|issuer| PemCertificate::read(issuer["certificate"].as_str()?).ok());
                let signed = |link: &PemCertificate| {
                    link.certificate.subject().matches(certificate.issuer())
                        && certificate.is_signed_by(link.certificate.key())
                };
                if let Some(link) = link.filter(signed) {
                    return Some(link);
                }
            }
        }
        None
    }
}

fn rejection_hint(reply: &ClientResponse, errors: &[String], caller: &AuthenticatedClient) -> String {
    let says = |word: &str| errors.iter().any(|text| text.contains(word));
    match reply.status {
        403 => reply.denial_hint(&caller.token_source()),
        404 => " (check --mount and --role)".to_owned(),
        400 if says("unknown role") => " (check --mount and --role)".to_owned(),
        400 if says("role requires") || says("key_type") || says("key_bits") => {
            " (set --key-type and --key-bits to a key that the role accepts)".to_owned()
        }
        _ => String::new(),
    }
}

/// Validates the server's response to a certification request.
///
/// # Errors
/// `BadGateway` when a field is missing in the response, the certificate is for another key, or the returned CA
/// certificate did not sign it.
fn validate_response(answer: CertifyResponse, expected: Option<&ClientCsr>) -> Result<ReceivedCertificate> {
    let CertifyResponse { data, warnings, .. } = answer;
    let missing = |what: &str| Error::new(Kind::BadGateway, format!("the server's response has no {what}"));
    let leaf = PemCertificate::read(&data.certificate).map_err(|_| missing("certificate"))?;
    let chain = if data.ca_chain.is_empty() { std::slice::from_ref(&data.issuing_ca) } else { &data.ca_chain };
    let chain = chain.iter().map(|text| PemCertificate::read(text)).collect::<Result<Vec<_>>>();
    let chain = chain.map_err(|_| missing("issuing_ca"))?;
    if !chain.first().is_some_and(|issuer| leaf.certificate.is_signed_by(issuer.certificate.key())) {
        let text = "the returned certificate is not signed by the returned authority";
        return Err(Error::new(Kind::BadGateway, text));
    }
    let key = match expected {
        Some(request) if request.key.spki() != leaf.certificate.key().spki() => {
            return Err(Error::new(Kind::BadGateway, "the certificate in the server's response is for another key"));
        }
        Some(_) => None,
        None => {
            let text = data.private_key.expose().trim_ascii();
            let key = std::str::from_utf8(text).ok().and_then(|text| PrivateKey::from_pem(text).ok());
            let key = key.ok_or_else(|| missing("private key"))?;
            if key.public().spki() != leaf.certificate.key().spki() {
                return Err(Error::new(
                    Kind::BadGateway,
                    "the private key in the server's response does not match its certificate",
                ));
            }
            Some(Secret::new(text))
        }
    };
    let renew_after = data.renew_after.as_i64().or_else(|| data.renew_after.as_str()?.parse().ok());
    Ok(ReceivedCertificate { leaf, chain, key, renew_after, warnings: warnings.unwrap_or_default() })
}

/// Generates an `Idempotency-Key`: a UUID of version 7 (RFC 9562). It begins with the time, so that the server appends
/// new keys at the end of its index.
fn idempotency_key() -> String {
    let millis = Clock::system().now().unix_timestamp_nanos() / 1_000_000;
    let millis = u64::try_from(millis).unwrap_or_default();
    uuid::Builder::from_unix_timestamp_millis(millis, &random::bytes()).into_uuid().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(key: &PrivateKey, names: &TypedNames) -> ClientCsr {
        ClientCsr::new(key, &names.subject(), &names.san_extension()).unwrap()
    }

    #[test]
    fn csr_contains_all_names_for_every_key_type() {
        let names = TypedNames::of(["web.test", "10.0.0.7", "ops@web.test", "spiffe://web.test/a"]).unwrap();
        for (key_type, bits) in [("ec", 0), ("ec", 384), ("rsa", 2048), ("ed25519", 0)] {
            let (key, text) = generate_key(key_type, bits).unwrap();
            assert!(request(&key, &names).names == names, "{key_type}");
            let read = PrivateKey::from_pem(text.expose_text().unwrap()).unwrap();
            assert_eq!(read.public().spki(), key.public().spki());
        }
        assert!(generate_key("ec", 7).is_err());
    }

    #[test]
    fn required_key_type_is_parsed_from_the_error() {
        let wanted = |text: &'static str| required_key_type(&Error::invalid(text), KeyKind::Ed25519);
        assert_eq!(wanted("x: csr: role requires keys of type rsa (see)"), Some(("rsa", 0)));
        assert_eq!(wanted("csr: role requires a minimum of an 384-bit key"), Some(("ed25519", 384)));
        assert_eq!(wanted("csr: something else"), None);
    }

    #[test]
    fn response_without_certificate_or_for_another_key_is_refused() {
        let (key, _) = generate_key("ec", 0).unwrap();
        let names = TypedNames::of(["web.test"]).unwrap();
        let request = request(&key, &names);
        let of =
            |body: Value| validate_response(serde_json::from_value(json!({ "data": body })).unwrap(), Some(&request));
        let text = |body: Value| of(body).err().unwrap().text().to_owned();
        assert!(text(json!({})).ends_with("no certificate"));
        assert!(text(json!({ "certificate": "LEAF" })).ends_with("no certificate"));
    }

    #[test]
    fn idempotency_keys_are_version_7_uuids() {
        let key = idempotency_key();
        assert_eq!((key.len(), key.as_bytes()[14]), (36, b'7'));
        assert_ne!(key, idempotency_key());
    }
}
