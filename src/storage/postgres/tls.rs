//! TLS for connections to the database server: trusted certificates, the client certificate, and error messages.
//!
//! TLS 1.2 and 1.3 with rustls on aws-lc-rs. The files are read for every connection, so a renewed certificate needs no
//! restart. The name of a server must be among the subject alternative names of its certificate; the subject is
//! ignored. A server certificate that is itself in the file `sslrootcert` is trusted directly, because servers often
//! have self-signed certificates.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{AlertDescription, CertificateError, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

use crate::error::{Error, Result};
use crate::secret::{PRIVATE_FILE_RULE, Secret};
use crate::tls::{self, NamedFile, PresentedCertificate, ServerTrust};
use crate::x509::certificate::Certificate;

/// The ALPN protocol name of PostgreSQL, which a server may require.
const ALPN_PROTOCOL: &[u8] = b"postgresql";
/// Maximum length of a key file, in bytes.
const MAX_KEY_FILE_BYTES: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CertVerification {
    /// The server certificate is not verified, so a man in the middle is not detected.
    Nothing,
    /// A trusted authority must have issued the server certificate, directly or through intermediates.
    Chain,
    /// A trusted authority must have issued the server certificate, and the certificate must be valid for the server's
    /// name.
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
    pub(super) client: Option<ClientCertificateFiles>,
}

impl PostgresTlsFiles {
    /// Reads the certificate and key files, and creates a connector from them. Blocks.
    ///
    /// # Errors
    /// `Invalid` with the parameter, the file and the violated rule. The text never quotes the file's content.
    pub(super) fn connector(&self) -> Result<PostgresTlsConnector> {
        let provider = tls::provider();
        let trusted = match &self.roots {
            None => Vec::new(),
            Some(TrustRoots::System) => rustls_native_certs::load_native_certs().certs,
            Some(TrustRoots::File(path)) => NamedFile { setting: "sslrootcert", path }.read_certificates()?,
        };
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(trusted.iter().cloned());
        if self.roots.is_some() && roots.is_empty() {
            return Err(Error::invalid("sslrootcert: contains no certificate that can be used as an authority"));
        }
        let trust = PostgresCertVerifier { verify: self.verify, roots, trusted, provider: Arc::clone(&provider) };
        let client = self.client.as_ref().map(|files| load_client_certificate(files, &provider)).transpose()?;
        let mut config = tls::client_config(provider, trust, client)?;
        config.alpn_protocols = vec![ALPN_PROTOCOL.to_vec()];
        Ok(PostgresTlsConnector(Some(TlsConnector::from(Arc::new(config)))))
    }
}

fn load_client_certificate(files: &ClientCertificateFiles, provider: &CryptoProvider) -> Result<CertifiedKey> {
    let chain = NamedFile { setting: "sslcert", path: &files.certificate };
    let key = NamedFile { setting: "sslkey", path: &files.key };
    let read_key = || {
        let pem = Secret::read_private_file(key.path, MAX_KEY_FILE_BYTES).map_err(|e| key.unreadable(e))?;
        pem.ok_or_else(|| key.error(PRIVATE_FILE_RULE))
    };
    chain.load_certified_key(key, read_key, provider)
}

#[derive(Debug)]
struct PostgresCertVerifier {
    verify: CertVerification,
    roots: RootCertStore,
    /// The certificates of the configured authorities, in DER. A server may also use one of these certificates as its
    /// own.
    trusted: Vec<CertificateDer<'static>>,
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
        if self.trusted.iter().any(|trusted| trusted == shown) {
            return is_valid_now(shown, now).map_err(rustls::Error::from);
        }
        let algorithms = self.provider.signature_verification_algorithms.all;
        let found = verify_server_cert_signed_by_trust_anchor(certificate, &self.roots, intermediates, now, algorithms);
        found.map_err(|error| match error {
            // rustls may report that a self-signed certificate is a CA certificate, but the actual problem is that it
            // is not trusted.
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
    tls::check_validity_period(certificate.not_before(), certificate.not_after(), now)
}

impl ServerTrust for PostgresCertVerifier {
    fn verify(&self, presented: &PresentedCertificate<'_>) -> Result<(), rustls::Error> {
        if self.verify == CertVerification::Nothing {
            return Ok(());
        }
        let certificate = ParsedCertificate::try_from(presented.leaf)?;
        self.verify_chain(presented.leaf, &certificate, presented.intermediates, presented.now)?;
        match self.verify {
            CertVerification::ChainAndName => verify_server_name(&certificate, presented.name),
            _ => Ok(()),
        }
    }
}

/// A TLS connector; `None` for connections without TLS.
#[derive(Clone)]
pub(super) struct PostgresTlsConnector(Option<TlsConnector>);

impl PostgresTlsConnector {
    pub(super) fn none() -> Self {
        Self(None)
    }
}

pub(super) struct PostgresTlsHandshake {
    connector: Option<TlsConnector>,
    host: String,
}

impl MakeTlsConnect<Socket> for PostgresTlsConnector {
    type Stream = PostgresTlsStream;
    type TlsConnect = PostgresTlsHandshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<PostgresTlsHandshake> {
        Ok(PostgresTlsHandshake { connector: self.0.clone(), host: host.to_owned() })
    }
}

impl TlsConnect<Socket> for PostgresTlsHandshake {
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

/// The `tls-server-end-point` channel binding (RFC 5929, section 4.1): a hash of the server certificate, with the hash
/// function of the certificate's signature. Returns `None` if the signature has no hash function, or if the hash
/// function is not supported.
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

/// Describes a TLS failure for the operator; `None` for other errors.
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

/// Describes the TLS alert with which a server rejected the client certificate, or the connection itself.
fn describe_alert(alert: AlertDescription) -> String {
    let because = match alert {
        AlertDescription::CertificateRequired => {
            return "the server did not get the client certificate that it requires (see sslcert)".to_owned();
        }
        AlertDescription::CertificateExpired => "the certificate has expired",
        AlertDescription::CertificateRevoked => "the certificate was revoked",
        AlertDescription::UnknownCA => "the issuer is unknown to the server",
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::DecryptError
        | AlertDescription::AccessDenied => "the server does not accept this certificate",
        other => return format!("the server aborted TLS (alert {})", u8::from(other)),
    };
    format!("the server rejects the client certificate: {because}")
}
