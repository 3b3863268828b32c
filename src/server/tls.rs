//! The TLS certificate and key of the main listener, which are read from two PEM files, and again on a reload.
//!
//! Each handshake uses the current certificate of [`ServerCertificate`], so a reload affects new connections only. If a
//! file is missing or the key does not match, the reload fails and the current certificate stays in use. TLS 1.2 and
//! 1.3 are implemented by rustls with aws-lc-rs. ALPN prefers HTTP/2 to HTTP/1.1; clients without ALPN use HTTP/1.1.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::key_pair_files;
use crate::clock::{Clock, Time, format_rfc3339};
use crate::config::{TlsFiles, TlsRenewal};
use crate::error::{Error, Result};
use crate::secret::Secret;
use crate::tls::{self, NamedFile};
use crate::x509;

/// The ALPN name of HTTP/2 (RFC 9113, 3.1).
pub(super) const ALPN_HTTP2: &[u8] = b"h2";
const ALPN_HTTP1: &[u8] = b"http/1.1";

/// Fails if key and certificate are in the same file, because the server can renew them only in different files.
///
/// # Errors
/// `Invalid`, with the setting and the file.
pub fn require_distinct_files(files: &TlsFiles) -> Result<()> {
    key_pair_files::require_distinct_files(files)
}

/// The TLS certificate and key for new connections. Clones share them, so that a reload affects all clones.
#[derive(Clone)]
pub struct ServerCertificate(Arc<ServerCertificateResolver>);

struct ServerCertificateResolver {
    files: TlsFiles,
    renewal: Option<TlsRenewal>,
    provider: Arc<CryptoProvider>,
    current: ArcSwap<CertifiedKey>,
    clock: Clock,
}

impl fmt::Debug for ServerCertificateResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // rustls requires `Debug`. The output must not contain the key.
        f.write_str("Certificate")
    }
}

impl ServerCertificate {
    /// Reads the certificate file and the key file.
    ///
    /// # Errors
    /// `Invalid`, with the setting and the file, when one of the files cannot be read or used.
    pub fn load(files: TlsFiles, clock: Clock) -> Result<Self> {
        Self::load_renewed(files, None, clock)
    }

    /// As [`ServerCertificate::load`]. If `renewal` is set, the server will renew the certificate, and an interrupted
    /// renewal of the files is completed first.
    ///
    /// # Errors
    /// As [`ServerCertificate::load`]; with `renewal`, also as [`require_distinct_files`].
    pub fn load_renewed(files: TlsFiles, renewal: Option<TlsRenewal>, clock: Clock) -> Result<Self> {
        if renewal.is_some() {
            require_distinct_files(&files)?;
        }
        let provider = tls::provider();
        let first = match read_key_pair(&files, &provider, &clock) {
            Err(error) if renewal.is_some() && key_pair_files::finish_interrupted(&files)? => {
                tracing::warn!(
                    "TLS certificate and key could not be used ({error}), because a renewal was interrupted; it is completed now"
                );
                read_key_pair(&files, &provider, &clock)?
            }
            first => first?,
        };
        Ok(Self(Arc::new(ServerCertificateResolver { files, renewal, provider, current: ArcSwap::new(first), clock })))
    }

    pub(super) fn renewal(&self) -> Option<&TlsRenewal> {
        self.0.renewal.as_ref()
    }

    pub(super) fn files(&self) -> &TlsFiles {
        &self.0.files
    }

    /// Returns the current certificate (without its chain), DER.
    pub(super) fn leaf(&self) -> Vec<u8> {
        self.0.current.load().cert.first().map(|der| der.to_vec()).unwrap_or_default()
    }

    /// Reads the certificate file and the key file again. Blocks on files.
    ///
    /// # Errors
    /// As [`ServerCertificate::load`]; the certificate in use stays.
    pub fn reload(&self) -> Result<()> {
        let inner = &self.0;
        inner.current.store(read_key_pair(&inner.files, &inner.provider, &inner.clock)?);
        Ok(())
    }

    /// Returns the start and end of the current certificate's validity, in Unix seconds; zeros if it cannot be parsed.
    pub(super) fn validity(&self) -> (i64, i64) {
        let current = self.0.current.load();
        let leaf = current.cert.first().and_then(|leaf| x509::certificate::Certificate::parse(leaf).ok());
        leaf.map_or((0, 0), |leaf| (leaf.not_before(), leaf.not_after()))
    }

    /// Returns the rustls configuration for a listener with this certificate.
    ///
    /// # Errors
    /// `Internal` when the crypto provider lacks a required algorithm.
    pub(super) fn server_config(&self) -> Result<ServerConfig> {
        let builder = ServerConfig::builder_with_provider(self.0.provider.clone());
        let builder = builder.with_safe_default_protocol_versions().map_err(Error::internal)?;
        let mut config = builder.with_no_client_auth().with_cert_resolver(self.0.clone());
        config.alpn_protocols = [ALPN_HTTP2, ALPN_HTTP1].map(<[u8]>::to_vec).to_vec();
        Ok(config)
    }
}

impl ResolvesServerCert for ServerCertificateResolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load_full())
    }
}

fn read_key_pair(files: &TlsFiles, provider: &CryptoProvider, clock: &Clock) -> Result<Arc<CertifiedKey>> {
    let chain = NamedFile { setting: "tls_certificate_file", path: &files.certificate };
    let key = NamedFile { setting: "tls_key_file", path: &files.key };
    let read_key = || std::fs::read(key.path).map(Secret::new).map_err(|e| key.unreadable(e));
    let certified = chain.load_certified_key(key, read_key, provider)?;
    warn_if_key_is_world_readable(&files.key);
    log_certificate(certified.cert.first().map(|leaf| &leaf[..]).unwrap_or_default(), clock.now());
    Ok(Arc::new(certified))
}

/// Logs a warning if all users may read the key file. This is not an error, because orchestrators mount secrets with
/// such modes.
fn warn_if_key_is_world_readable(file: &Path) {
    if std::fs::metadata(file).is_ok_and(|found| found.mode() & 0o007 != 0) {
        tracing::warn!(
            file = %file.display(),
            "tls_key_file: every user of this machine can read the key; restrict the mode of the file to 0600"
        );
    }
}

/// Logs which certificate was read. Logs a warning if it is not valid at `now`, because clients will reject it.
fn log_certificate(leaf: &[u8], now: Time) {
    let Ok(certificate) = x509::certificate::Certificate::parse(leaf) else {
        return tracing::info!("TLS certificate read");
    };
    let time = |seconds| Time::from_unix_timestamp(seconds).map(format_rfc3339).unwrap_or_default();
    let serial = certificate.serial();
    let not_after = time(certificate.not_after());
    if (certificate.not_before()..=certificate.not_after()).contains(&now.unix_timestamp()) {
        tracing::info!(%serial, not_after, "TLS certificate read");
    } else {
        let not_before = time(certificate.not_before());
        tracing::warn!(%serial, not_before, not_after, "TLS certificate is not valid now, so clients reject it");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusable_tls_files_are_refused_without_quoting_them() {
        let folder = tempfile::tempdir().unwrap();
        let files = TlsFiles { certificate: folder.path().join("c.pem"), key: folder.path().join("k.pem") };
        let load_error = || ServerCertificate::load(files.clone(), Clock::system()).err().unwrap().text().to_owned();
        assert!(
            load_error().starts_with("tls_certificate_file: file does not exist: ") && load_error().ends_with("c.pem"),
            "{}",
            load_error()
        );
        let broken = "-----BEGIN CERTIFICATE-----\nhunter2\n";
        for text in ["", "hunter2", broken] {
            std::fs::write(&files.certificate, text).unwrap();
            assert!(load_error().contains("c.pem: must contain PEM certificates"), "{text}: {}", load_error());
        }
        std::fs::write(&files.certificate, x509::pem::encode("CERTIFICATE", b"hunter2")).unwrap();
        assert!(load_error().starts_with("tls_key_file: file does not exist: "), "{}", load_error());
        let encrypted = x509::pem::encode("ENCRYPTED PRIVATE KEY", b"hunter2");
        for text in ["", "hunter2", &encrypted] {
            std::fs::write(&files.key, text).unwrap();
            assert!(load_error().contains("k.pem: must contain an unencrypted private key in PEM"), "{}", load_error());
        }
        std::fs::write(&files.key, x509::pem::encode("PRIVATE KEY", b"hunter2")).unwrap();
        assert!(load_error().starts_with("tls_key_file: ") && !load_error().contains("hunter2"), "{}", load_error());
    }

    #[test]
    fn tls_files_are_read_as_editors_and_scripts_leave_them() {
        let folder = tempfile::tempdir().unwrap();
        let files = TlsFiles { certificate: folder.path().join("c.pem"), key: folder.path().join("k.pem") };
        let (key, root) = x509::testing::root("ec", 256);
        let certificate = x509::pem::encode("CERTIFICATE", root.der());
        let key = x509::pem::encode("PRIVATE KEY", &key.pkcs8());
        for (chain, key) in [
            (format!("\u{feff}{}", certificate.replace('\n', "\r\n")), format!("\u{feff}{key}")),
            (format!("{certificate}{certificate}"), format!("{certificate}{key}")),
            (format!("subject=x\n{certificate}\nafter"), format!("before\n{key}\nafter")),
        ] {
            std::fs::write(&files.certificate, chain).unwrap();
            std::fs::write(&files.key, key).unwrap();
            assert_eq!(ServerCertificate::load(files.clone(), Clock::system()).unwrap().leaf(), root.der());
        }
        std::fs::write(&files.certificate, format!("> {certificate}\n{certificate}")).unwrap();
        let refused = ServerCertificate::load(files, Clock::system()).err().unwrap();
        assert!(refused.text().contains("a line contains BEGIN"), "{refused}");
    }
}
