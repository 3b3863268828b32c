//! TLS to the database server: trusted certificates, the client certificate, and error messages.
//!
//! TLS 1.2 and 1.3 with rustls on aws-lc-rs. The files are read for every connection, so a renewed certificate needs no
//! restart. A server's name must be among the subject alternative names of its certificate; its subject is ignored. A
//! server certificate in the file of authorities is trusted directly, because servers often have self-signed ones.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

use crate::error::{Error, Kind, Result};
use crate::secret::{PRIVATE_FILE_RULE, Secret, is_private};
use crate::x509::certificate::Certificate;
use crate::x509::pem;

/// The ALPN protocol name, which a server may require.
const ALPN_PROTOCOL: &[u8] = b"postgresql";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CertVerification {
    /// None: a man in the middle is not detected.
    Nothing,
    /// A trusted authority must have signed the certificate.
    Chain,
    /// The certificate must also be valid for the server's name.
    ChainAndName,
}

#[derive(Clone)]
pub(super) enum TrustRoots {
    System,
    File(PathBuf),
}

#[derive(Clone)]
pub(super) struct ClientCertificateFiles {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

#[derive(Clone)]
pub(super) struct PostgresTlsFiles {
    pub(super) verify: CertVerification,
    pub(super) roots: Option<TrustRoots>,
    pub(super) own: Option<ClientCertificateFiles>,
}

impl PostgresTlsFiles {
    /// Reads the files. Blocks.
    ///
    /// # Errors
    /// `Invalid` naming the parameter, the file and the rule, never quoting the file's content.
    pub(super) fn connector(&self) -> Result<Connector> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let given = match &self.roots {
            None => Vec::new(),
            Some(TrustRoots::System) => rustls_native_certs::load_native_certs().certs,
            Some(TrustRoots::File(path)) => read_certificates("sslrootcert", path)?,
        };
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(given.iter().cloned());
        if self.roots.is_some() && roots.is_empty() {
            return Err(Error::invalid("sslrootcert: holds no certificate that can be used as an authority"));
        }
        let trust = PostgresCertVerifier { verify: self.verify, roots, given, provider: Arc::clone(&provider) };
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(Error::internal)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(trust));
        let mut config = match &self.own {
            Some(own) => builder
                .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(load_client_certificate(own, &provider)?))),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![ALPN_PROTOCOL.to_vec()];
        Ok(Connector(Some(TlsConnector::from(Arc::new(config)))))
    }
}

fn file_error(parameter: &str, path: &Path, rule: &str) -> Error {
    Error::invalid(format!("{parameter}: {}: {rule}", path.display()))
}

fn read_certificates(parameter: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let bytes = std::fs::read(path).map_err(|e| Error::of_file(parameter, path, "read", e).with_kind(Kind::Invalid))?;
    let found = pem::parse_certificate_file(&bytes).map_err(|error| file_error(parameter, path, error.text()))?;
    Ok(found.into_iter().map(CertificateDer::from).collect())
}

fn load_client_certificate(own: &ClientCertificateFiles, provider: &CryptoProvider) -> Result<CertifiedKey> {
    let chain = read_certificates("sslcert", &own.certificate)?;
    let of_key = |rule: &str| file_error("sslkey", &own.key, rule);
    let bytes = read_key_file(&own.key)?;
    let key = pem::parse_private_key_file(bytes.expose()).map_err(|error| of_key(error.text()))?;
    let key = PrivateKeyDer::try_from(key.to_vec()).map_err(|_| of_key("the private key cannot be read"))?;
    CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => of_key("is not the key of the first certificate of sslcert"),
        rustls::Error::InvalidCertificate(_) => {
            file_error("sslcert", &own.certificate, "the first certificate cannot be read")
        }
        _ => of_key("must hold an RSA, ECDSA (P-256, P-384, P-521) or Ed25519 key"),
    })
}

fn read_key_file(path: &Path) -> Result<Secret> {
    let unreadable = |e| Error::of_file("sslkey", path, "read", e).with_kind(Kind::Invalid);
    let mut file = File::open(path).map_err(unreadable)?;
    if !is_private(&file.metadata().map_err(unreadable)?) {
        return Err(file_error("sslkey", path, PRIVATE_FILE_RULE));
    }
    let mut content = Vec::new();
    let read = file.read_to_end(&mut content);
    let content = Secret::new(content);
    read.map_err(unreadable)?;
    Ok(content)
}

#[derive(Debug)]
struct PostgresCertVerifier {
    verify: CertVerification,
    roots: RootCertStore,
    /// The certificates in `roots`, in DER.
    given: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl PostgresCertVerifier {
    fn verify_chain(
        &self,
        shown: &CertificateDer<'_>,
        certificate: &ParsedCertificate<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        if self.given.iter().any(|given| given == shown) {
            return is_valid_now(shown, now).map_err(rustls::Error::from);
        }
        let algorithms = self.provider.signature_verification_algorithms.all;
        let found = verify_server_cert_signed_by_trust_anchor(certificate, &self.roots, intermediates, now, algorithms);
        found.map_err(|error| match error {
            // For a self-signed certificate, the unknown issuer is the actual problem, not that it is a CA certificate.
            rustls::Error::InvalidCertificate(CertificateError::Other(_)) if is_self_signed(shown) => {
                CertificateError::UnknownIssuer.into()
            }
            other => other,
        })
    }
}

fn is_self_signed(shown: &CertificateDer<'_>) -> bool {
    Certificate::parse_untrusted(shown).is_ok_and(|certificate| certificate.is_self_signed())
}

fn is_valid_now(shown: &CertificateDer<'_>, now: UnixTime) -> Result<(), CertificateError> {
    let certificate = Certificate::parse_untrusted(shown).map_err(|_| CertificateError::BadEncoding)?;
    match i64::try_from(now.as_secs()).unwrap_or(i64::MAX) {
        now if now < certificate.not_before() => Err(CertificateError::NotValidYet),
        now if now > certificate.not_after() => Err(CertificateError::Expired),
        _ => Ok(()),
    }
}

impl ServerCertVerifier for PostgresCertVerifier {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.verify != CertVerification::Nothing {
            let certificate = ParsedCertificate::try_from(shown)?;
            self.verify_chain(shown, &certificate, intermediates, now)?;
            if self.verify == CertVerification::ChainAndName {
                verify_server_name(&certificate, name)?;
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// A TLS connector, or a placeholder for connections without TLS.
#[derive(Clone)]
pub(super) struct Connector(Option<TlsConnector>);

impl Connector {
    pub(super) fn none() -> Self {
        Self(None)
    }
}

pub(super) struct Handshake {
    connector: Option<TlsConnector>,
    host: String,
}

impl MakeTlsConnect<Socket> for Connector {
    type Stream = PostgresTlsStream;
    type TlsConnect = Handshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<Handshake> {
        Ok(Handshake { connector: self.0.clone(), host: host.to_owned() })
    }
}

impl TlsConnect<Socket> for Handshake {
    type Stream = PostgresTlsStream;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<PostgresTlsStream>>;

    fn connect(self, socket: Socket) -> Self::Future {
        async move {
            let connector = self.connector.ok_or_else(|| io::Error::other("TLS is not set up"))?;
            let name = ServerName::try_from(self.host).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
            Ok(PostgresTlsStream(connector.connect(name, socket).await?))
        }
        .boxed()
    }
}

pub(super) struct PostgresTlsStream(tokio_rustls::client::TlsStream<Socket>);

impl TlsStream for PostgresTlsStream {
    fn channel_binding(&self) -> ChannelBinding {
        let shown = self.0.get_ref().1.peer_certificates().and_then(<[_]>::first);
        shown
            .and_then(|shown| channel_binding_hash(shown))
            .map_or_else(ChannelBinding::none, ChannelBinding::tls_server_end_point)
    }
}

/// The `tls-server-end-point` channel binding (RFC 5929, section 4.1): a hash of the certificate with the hash function
/// of its signature. `None` for signatures without one, or with an unsupported one.
fn channel_binding_hash(shown: &[u8]) -> Option<Vec<u8>> {
    let hash = Certificate::parse_untrusted(shown).ok()?.signature_algorithm()?.hash()?;
    Some(hash.digest(shown).as_ref().to_vec())
}

impl AsyncRead for PostgresTlsStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_read(cx, buf)
    }
}

impl AsyncWrite for PostgresTlsStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_shutdown(cx)
    }
}

/// Describes a TLS failure; `None` for other errors.
pub(super) fn tls_failure_reason(error: &io::Error) -> Option<String> {
    let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(match error {
        rustls::Error::InvalidCertificate(problem) => describe_certificate_error(problem),
        rustls::Error::AlertReceived(alert) => describe_alert(*alert),
        other => format!("TLS: {other}"),
    })
}

fn describe_certificate_error(problem: &CertificateError) -> String {
    let what = "the server's certificate";
    match problem {
        CertificateError::NotValidForName => format!("{what} is for another name"),
        CertificateError::NotValidForNameContext { expected, .. } => {
            format!("{what} is for another name than {}", expected.to_str())
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => format!("{what} has expired"),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            format!("{what} is not valid yet")
        }
        CertificateError::UnknownIssuer => {
            format!("{what} is self-signed, or its issuer is not in sslrootcert")
        }
        CertificateError::BadSignature => format!("{what} has an invalid signature"),
        other => format!("{what} cannot be accepted ({other})"),
    }
}

/// Describes an alert with which a server rejects the client certificate, or TLS itself.
fn describe_alert(alert: AlertDescription) -> String {
    let because = match alert {
        AlertDescription::CertificateRequired => "it requires one (see sslcert)",
        AlertDescription::CertificateExpired => "it has expired",
        AlertDescription::CertificateRevoked => "it was revoked",
        AlertDescription::UnknownCA => "its issuer is unknown to the server",
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::DecryptError
        | AlertDescription::AccessDenied => "it cannot accept it",
        other => return format!("the server aborted TLS (alert {})", u8::from(other)),
    };
    format!("the server refuses the client certificate: {because}")
}
