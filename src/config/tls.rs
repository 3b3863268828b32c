//! Settings of the TLS certificate: its files and its renewal.

use std::net::{IpAddr, SocketAddr};

use super::reader::SettingReader;
use super::{TlsFiles, TlsRenewal};
use crate::auth::mounts::engine_path;
use crate::fields::Fields;

const MAX_RENEWAL_NAMES: usize = 100;
/// Maximum length of a host name, in bytes (RFC 1035, 2.3.4).
const MAX_HOST_NAME_BYTES: usize = 253;

pub(super) fn read_files(reader: &mut SettingReader<'_>, listen: SocketAddr) -> Option<TlsFiles> {
    let names = ["tls_certificate_file", "tls_key_file"];
    match names.map(|name| reader.path(name, "the path of a file")) {
        [Some(certificate), Some(key)] => return Some(TlsFiles { certificate, key }),
        [Some(_), None] => reader.report(names[1], &format!("must be given with {}", names[0])),
        [None, Some(_)] => reader.report(names[0], &format!("must be given with {}", names[1])),
        // Plain HTTP would expose tokens to eavesdroppers.
        [None, None] if !listen.ip().is_loopback() => reader.report(
            "listen",
            "plain HTTP is for the loopback only; give tls_certificate_file and tls_key_file for other addresses",
        ),
        [None, None] => {}
    }
    None
}

/// Returns the settings of the table `tls_renew`; `None` if it is missing. Its members must be given all or not at all.
pub(super) fn read_renewal(reader: &mut SettingReader<'_>, files: Option<&TlsFiles>) -> Option<TlsRenewal> {
    let texts = ["tls_renew.mount", "tls_renew.role"];
    let [mount, role] = texts.map(|name| reader.optional(name, Fields::text, "a text"));
    let names = reader.optional("tls_renew.names", Fields::list, "a list of names");
    if mount.is_none() && role.is_none() && names.is_none() {
        return None;
    }
    let Some(files) = files else {
        reader.report(
            texts[0],
            "requires tls_certificate_file and tls_key_file, because the server replaces these files",
        );
        return None;
    };
    if files.certificate == files.key {
        reader.report("tls_key_file", "must differ from tls_certificate_file, because tls_renew writes both files");
    }
    let given = [("tls_renew.mount", mount.is_some()), ("tls_renew.role", role.is_some())];
    for (name, _) in given.into_iter().chain([("tls_renew.names", names.is_some())]).filter(|(_, given)| !given) {
        let other = if mount.is_some() { "tls_renew.mount" } else { "the other settings of tls_renew" };
        reader.report(name, &format!("must be given with {other}"));
    }
    let mount = mount?;
    let role = role?;
    let names = names?;
    let mount = engine_path(mount.trim_matches('/')).unwrap_or_else(|_| {
        reader.report("tls_renew.mount", "must be the path of a mount");
        String::new()
    });
    if role.is_empty() || role.contains('/') {
        reader.report("tls_renew.role", "must be the name of a role");
    }
    if names.is_empty() || names.len() > MAX_RENEWAL_NAMES || !names.iter().all(|name| is_name(name)) {
        let rule = format!("must be host names and IP addresses, from one to {MAX_RENEWAL_NAMES}");
        reader.report("tls_renew.names", &rule);
    }
    let addresses = names.iter().filter_map(|name| name.parse().ok()).collect();
    let hosts = names.into_iter().filter(|name| name.parse::<IpAddr>().is_err()).collect();
    Some(TlsRenewal { mount, role, hosts, addresses })
}

/// `true` for a text with the syntax of a host name or IP address. The role decides which of them it allows.
fn is_name(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'*' | b'_');
    name.parse::<IpAddr>().is_ok()
        || (!name.is_empty() && name.len() <= MAX_HOST_NAME_BYTES && name.bytes().all(allowed))
}
