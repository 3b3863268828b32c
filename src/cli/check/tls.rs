//! Checks the listener's certificate for problems that the server or every client would reject.

use std::path::Path;

use crate::clock::Clock;
use crate::config::Config;
use crate::secret::{PRIVATE_FILE_RULE, is_private};
use crate::server::tls;
use crate::x509::certificate::Certificate;
use crate::x509::pem;

use super::report::CheckReport;
use crate::cli::issue::{format_time, read_text};

const CERTIFICATE_CHECK: &str = "tls_certificate";
const KEY_CHECK: &str = "tls_key";

pub(super) fn check(report: &mut CheckReport, config: &Config) {
    let Some(files) = &config.tls else { return report.note(CERTIFICATE_CHECK, "none: plain HTTP, on the loopback") };
    let loaded = tls::ServerCertificate::load(files.clone(), Clock::system());
    let is_certificate_error = loaded.as_ref().is_err_and(|error| error.text().starts_with("tls_certificate_file"));
    match loaded {
        Ok(_) => report.ok(KEY_CHECK, format!("{}: belongs to the certificate", files.key.display())),
        Err(error) => report.wrong(if is_certificate_error { CERTIFICATE_CHECK } else { KEY_CHECK }, error.text()),
    }
    if config.tls_renewal.is_some()
        && let Err(error) = tls::require_distinct_files(files)
    {
        report.wrong(KEY_CHECK, error.text());
    }
    if std::fs::metadata(&files.key).is_ok_and(|key| !is_private(&key)) {
        report.wrong(KEY_CHECK, format!("{}: {PRIVATE_FILE_RULE}", files.key.display()));
    }
    if !is_certificate_error {
        check_certificates(report, &files.certificate);
    }
}

fn check_certificates(report: &mut CheckReport, file: &Path) {
    let wrong =
        |report: &mut CheckReport, text: &str| report.wrong(CERTIFICATE_CHECK, format!("{}: {text}", file.display()));
    let text = match read_text("tls_certificate_file", file) {
        Ok(text) => text,
        Err(error) => return report.wrong(CERTIFICATE_CHECK, error.text()),
    };
    let chain = text.expose_text().and_then(|text| pem::parse_blocks(text).ok()).unwrap_or_default();
    let chain: Vec<Certificate> = chain.iter().filter_map(|(_, der)| Certificate::parse(der).ok()).collect();
    let Some(leaf) = chain.first() else { return wrong(report, "holds no certificate that can be read") };
    let now = Clock::system().now().unix_timestamp();
    let end = leaf.not_after();
    let left = end.saturating_sub(now);
    if leaf.is_ca() {
        wrong(report, "is the certificate of an authority, which clients refuse for a server");
    } else if left < 0 {
        wrong(report, &format!("has expired on {}", format_time(end)));
    } else if now < leaf.not_before() {
        wrong(report, &format!("is not valid before {}", format_time(leaf.not_before())));
    } else {
        report.ok(CERTIFICATE_CHECK, format!("{}: valid until {}", file.display(), format_time(end)));
    }
    if (0..end.saturating_sub(leaf.not_before()) / 4).contains(&left) {
        report.note(
            CERTIFICATE_CHECK,
            format!("{}: three quarters of its lifetime have passed: renew it", file.display()),
        );
    }
    let named = leaf.sans().is_ok_and(|sans| !sans.dns.is_empty() || !sans.ips.is_empty());
    if !named {
        report.note(
            CERTIFICATE_CHECK,
            format!("{}: has no subject alternative name, and clients ignore the common name", file.display()),
        );
    }
    for pair in chain.windows(2) {
        if !pair[0].is_signed_by(pair[1].key()) {
            report.note(
                CERTIFICATE_CHECK,
                format!("{}: {} is not signed by the next one", file.display(), pair[0].subject().display()),
            );
        }
    }
}
