//! The plan of a setup: the validated settings of the authorities, role and files to create, with all defaults filled
//! in. Invalid input is rejected before anything is created.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::auth::mounts;
use crate::clock::parse_duration;
use crate::config::Config;
use crate::error::{Error, Kind, Result};
use crate::fields::{MAX_NAME_LEN, is_name};
use url::Url;

use super::arguments::SetupAuthorityArguments;
use crate::cli::files::require_file;

pub(super) const LISTENER_ROLE: &str = "listener";
const MAX_DOMAINS: usize = 100;

pub(super) struct SetupPlan {
    pub(super) config: PathBuf,
    pub(super) domains: Vec<String>,
    pub(super) organization: String,
    pub(super) keys: SetupKeyTypes,
    pub(super) root_mount: String,
    pub(super) root_ttl: Duration,
    pub(super) mount: String,
    pub(super) intermediate_ttl: Duration,
    /// File for the certification request to an outside authority (`--csr`). `None` if the root is created on this
    /// server.
    pub(super) outside_csr_file: Option<PathBuf>,
    /// File with the certificates that the outside authority has issued (`--signed`).
    pub(super) signed_file: Option<PathBuf>,
    /// Base URL at which CRLs, OCSP and CA certificates are served, without a trailing slash.
    pub(super) public_url: Option<String>,
    pub(super) role: String,
    pub(super) role_ttl: Duration,
    pub(super) admin_token_file: PathBuf,
    /// File for the root certificate, which clients must trust.
    pub(super) root_file: PathBuf,
}

#[derive(Clone, Copy)]
pub(super) struct SetupKeyTypes {
    pub(super) kind: &'static str,
    pub(super) root_bits: u32,
    pub(super) intermediate_bits: u32,
}

impl SetupPlan {
    /// Creates the plan from the flags.
    ///
    /// # Errors
    /// `Invalid`, with the flag and the rule.
    pub(super) fn new(wanted: SetupAuthorityArguments, config: &Path) -> Result<Self> {
        let in_folder = |name: &str| config.with_file_name(name);
        let root_ttl = parse_ttl("--root-ttl", &wanted.root_ttl)?;
        let intermediate_ttl = parse_ttl("--intermediate-ttl", &wanted.intermediate_ttl)?;
        let role_ttl = parse_ttl("--role-ttl", &wanted.role_ttl)?;
        if root_ttl < intermediate_ttl {
            return Err(Error::invalid("--intermediate-ttl: must not be longer than --root-ttl"));
        }
        if intermediate_ttl < role_ttl * 3 {
            return Err(Error::invalid("--role-ttl: three times its value must not be longer than --intermediate-ttl"));
        }
        if wanted.domain.len() > MAX_DOMAINS {
            return Err(Error::invalid(format!("--domain: at most {MAX_DOMAINS} domains may be given")));
        }
        if let Some(domain) = wanted.domain.iter().find(|domain| !is_domain(domain)) {
            return Err(Error::invalid(format!("--domain: {domain:?} is not a domain, such as example.com")));
        }
        let [root_mount, mount] = [("--root-mount", &wanted.root_mount), ("--mount", &wanted.mount)]
            .map(|(flag, path)| parse_mount_path(flag, path));
        let root_mount = root_mount?;
        let mount = mount?;
        let lies_in = |one: &str, other: &str| format!("{one}/").starts_with(&format!("{other}/"));
        if lies_in(&root_mount, &mount) || lies_in(&mount, &root_mount) {
            return Err(Error::invalid("--root-mount: must be another mount than --mount, and not below or above it"));
        }
        if wanted.role == LISTENER_ROLE {
            let rule = "is the role of this server's own certificate: name another one";
            return Err(Error::invalid(format!("--role: {LISTENER_ROLE} {rule}")));
        }
        if !is_name(&wanted.role) || wanted.role.len() > MAX_NAME_LEN {
            let rule = "must consist of letters, digits and '_', and of '-' and '.' except at either end";
            return Err(Error::invalid(format!("--role: {rule}, and have at most {MAX_NAME_LEN} characters")));
        }
        if let Some(file) = &wanted.signed {
            require_file("--signed", file)?;
        }
        let keys = match wanted.key_type.as_str() {
            "rsa" => SetupKeyTypes { kind: "rsa", root_bits: 4096, intermediate_bits: 3072 },
            _ => SetupKeyTypes { kind: "ec", root_bits: 384, intermediate_bits: 256 },
        };
        Ok(Self {
            config: config.to_owned(),
            domains: wanted.domain,
            organization: wanted.organization.unwrap_or_default(),
            keys,
            root_mount,
            root_ttl,
            mount,
            intermediate_ttl,
            outside_csr_file: wanted.csr,
            signed_file: wanted.signed,
            public_url: wanted.public_url.map(|url| parse_public_url(&url)).transpose()?,
            role: wanted.role,
            role_ttl,
            admin_token_file: wanted.admin_token_file.unwrap_or_else(|| in_folder("admin-token")),
            root_file: in_folder("root-ca.pem"),
        })
    }

    /// Sets the public URL of the plan to that of the configuration, if it has one. `--public-url` must then be absent
    /// or equal.
    ///
    /// # Errors
    /// `Conflict` when `--public-url` differs from the configuration.
    pub(super) fn with_public_url(mut self, config: &Config) -> Result<Self> {
        let Some(configured) = &config.http.public_url else { return Ok(self) };
        match &self.public_url {
            Some(given) if given != configured => {
                let file = self.config.display();
                let text = format!("--public-url: {file} has public_url = \"{configured}\": change it there");
                Err(Error::new(Kind::Conflict, text))
            }
            _ => {
                self.public_url = Some(configured.clone());
                Ok(self)
            }
        }
    }

    /// Returns the domains for the role to create, of which there must be at least one.
    ///
    /// # Errors
    /// `Invalid` when no domain is given.
    pub(super) fn domains(&self) -> Result<&[String]> {
        if self.domains.is_empty() {
            let rule = "must be given: of which domains may certificates be issued? (--domain example.com)";
            return Err(Error::invalid(format!("--domain: {rule}")));
        }
        Ok(&self.domains)
    }

    pub(super) fn csr_file(&self) -> PathBuf {
        self.outside_csr_file.clone().unwrap_or_else(|| self.config.with_file_name("intermediate.csr"))
    }

    /// Returns the common name for a CA certificate: the organization, or else the first domain, followed by `what`,
    /// such as `Issuing CA`.
    pub(super) fn name_of(&self, what: &str) -> String {
        let owner = if self.organization.is_empty() { self.domains.first() } else { Some(&self.organization) };
        // Truncated, because a common name has at most 64 characters (RFC 5280 A.1).
        let owner: String = owner.map_or("Signet", String::as_str).chars().take(40).collect();
        format!("{owner} {what}")
    }
}

fn parse_ttl(flag: &str, text: &str) -> Result<Duration> {
    parse_duration(text)
        .filter(|duration| !duration.is_zero() && duration.as_secs() < 1 << 33)
        .ok_or_else(|| Error::invalid(format!("{flag}: must be a duration such as 720h")))
}

fn parse_mount_path(flag: &str, path: &str) -> Result<String> {
    let path = path.trim_matches('/');
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '/');
    if path.is_empty() || !path.chars().all(plain) {
        return Err(Error::invalid(format!("{flag}: must be a path of letters, digits, - and _, such as pki")));
    }
    mounts::engine_path(path).map_err(|error| error.within(flag))
}

fn is_domain(text: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(label)
}

/// Parses `--public-url` and requires plain http. To fetch a CRL over https, a client would first need a CRL to verify
/// the server's certificate (RFC 5280 section 8).
fn parse_public_url(text: &str) -> Result<String> {
    let url = Url::parse(text).ok().filter(|url| url.scheme() == "http" && url.has_host());
    let bare = url.filter(|url| url.path() == "/" && url.query().is_none() && url.fragment().is_none());
    let bare = bare.ok_or_else(|| {
        Error::invalid(
            "--public-url: must be plain http and a host, such as http://pki.example.com (RFC 5280, section 8)",
        )
    })?;
    Ok(bare.origin().ascii_serialization())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> SetupAuthorityArguments {
        SetupAuthorityArguments {
            domain: vec!["example.test".to_owned()],
            key_type: "ec".to_owned(),
            root_mount: "pki-root/".to_owned(),
            root_ttl: "87600h".to_owned(),
            mount: "pki".to_owned(),
            intermediate_ttl: "43800h".to_owned(),
            role: "server".to_owned(),
            role_ttl: "720h".to_owned(),
            ..SetupAuthorityArguments::default()
        }
    }

    fn plan_error(change: impl FnOnce(&mut SetupAuthorityArguments)) -> String {
        let mut wanted = wanted();
        change(&mut wanted);
        SetupPlan::new(wanted, Path::new("/etc/signet/signet.toml")).err().unwrap().text().to_owned()
    }

    #[test]
    fn setup_error_for_an_invalid_argument_names_its_flag() {
        for (flag, text) in [
            ("--domain: \"a b\" is not a domain", plan_error(|w| w.domain.push("a b".to_owned()))),
            ("--domain: ", plan_error(|w| w.domain.push("-a.test".to_owned()))),
            ("--root-ttl: must be a duration", plan_error(|w| w.root_ttl = "ten years".to_owned())),
            ("--intermediate-ttl: must not be longer", plan_error(|w| w.root_ttl = "100h".to_owned())),
            ("--role-ttl: three times", plan_error(|w| w.role_ttl = "43800h".to_owned())),
            ("--root-mount: must be another", plan_error(|w| w.root_mount = "/pki/".to_owned())),
            ("--role: must consist of letters", plan_error(|w| w.role = "a/b".to_owned())),
            ("--role: must consist of letters", plan_error(|w| w.role = String::new())),
            ("--mount: must be a path", plan_error(|w| w.mount = "p ki".to_owned())),
            ("--public-url: must be plain http", plan_error(|w| w.public_url = Some("https://pki.test".to_owned()))),
            ("--public-url: must be plain http", plan_error(|w| w.public_url = Some("http://pki.test/x".to_owned()))),
            ("--signed: file does not exist: /nowhere", plan_error(|w| w.signed = Some("/nowhere".into()))),
        ] {
            assert!(text.starts_with(flag), "{flag}: {text}");
        }
    }

    #[test]
    fn default_files_are_next_to_the_configuration() {
        let plan = SetupPlan::new(wanted(), Path::new("/etc/signet/signet.toml")).unwrap();
        assert_eq!(plan.admin_token_file, Path::new("/etc/signet/admin-token"));
        assert_eq!(plan.csr_file(), Path::new("/etc/signet/intermediate.csr"));
        assert_eq!(plan.domains().unwrap(), ["example.test"]);
        let none = SetupPlan::new(SetupAuthorityArguments { domain: Vec::new(), ..wanted() }, Path::new("signet.toml"))
            .unwrap();
        assert!(none.domains().unwrap_err().text().starts_with("--domain: must be given"));
        assert_eq!((plan.root_mount.as_str(), plan.name_of("Root CA").as_str()), ("pki-root", "example.test Root CA"));
    }
}
