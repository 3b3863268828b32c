//! Names of a certificate: collects them from request and CSR, and checks them against the role. [`ValidatedNames`] can
//! only be created here and is immutable, so no unchecked name reaches a certificate.
//!
//! Entry points: [`collect_for_leaf`], and [`collect_for_ca`] for CA certificates, whose names the operator decides.
//! Both check the syntax. [`CollectedNames::validate`] checks the names against the role, which can take
//! [long](CollectedNames::is_slow_to_validate). Submodules: `policy` (rules of the role), `hostname` (syntax and IDNA),
//! `sans` (other kinds of names).

mod hostname;
mod policy;
pub(crate) mod sans;
mod uri;

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Deref;

use self::hostname::ends_in_number;
use self::policy::NamePolicy;
use super::request::RequestedNames;
use crate::error::{Error, Result, Warnings};
use crate::pki::mount::role::{CompiledRole, Role, SerialNumberSource};
use crate::pki::values::escape_for_message;
use crate::pki::values::glob::PatternList;
use crate::x509::csr::{Csr, OtherNameValue, ParsedSans};
use crate::x509::extension::{self, SubjectAltNames};
use crate::x509::general_name;
use crate::x509::name::Attribute;
use crate::x509::profile;
use crate::x509::reader::{DerError, DerResult};

/// Maximum number of names of all kinds in a request, including the common name.
const MAX_NAMES_PER_REQUEST: usize = general_name::MAX_ALT_NAMES;
const MAX_NAME_BYTES: usize = general_name::MAX_ALT_NAME_BYTES;
/// Maximum total length of all names of a request, in bytes.
pub(crate) const MAX_ALL_NAMES_BYTES: usize = 40 * 1024;
/// Maximum number of steps of a name check on an HTTP worker: patterns of the role times the bytes that each pattern
/// scans. A check within this limit takes at most a millisecond.
const MAX_POLICY_STEPS: usize = 50_000;

/// Names in a CSR, as parsed by `x509`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CsrNames {
    /// Common name of the subject, or empty.
    pub common_name: String,
    /// serialNumber attribute of the subject, or empty.
    pub serial_number: String,
    /// UID attributes of the subject.
    pub user_ids: Vec<String>,
    /// dNSName entries.
    pub dns: Vec<String>,
    /// rfc822Name entries.
    pub emails: Vec<String>,
    /// iPAddress entries.
    pub ips: Vec<IpAddr>,
    /// URI entries.
    pub uris: Vec<String>,
    /// otherName entries: dotted OID and value; `None` if the value's type is not the text type of its OID.
    pub other: Vec<(String, Option<String>)>,
    /// First kind of name in the CSR that no role permits; `None` if the CSR has no such name.
    pub unsupported_san_kind: Option<&'static str>,
}

impl CsrNames {
    /// Reads the names of a CSR.
    ///
    /// # Errors
    /// `Invalid` for an attribute that cannot be read.
    pub(crate) fn of(csr: &Csr) -> Result<Self> {
        let ParsedSans { dns, emails, ips, uris, other, unsupported_name_kind } = csr.sans()?;
        // If an attribute has several values, use the last one, as certificate parsers do.
        let last = |attribute| csr.subject_values(attribute).map(|mut values| values.pop().unwrap_or_default());
        let other_name = |(oid, value): (Vec<u8>, OtherNameValue)| {
            let text = if let OtherNameValue::Text(text) = value { Some(text) } else { None };
            (extension::oid_text(&oid), text)
        };
        Ok(Self {
            common_name: last(Attribute::CommonName)?,
            serial_number: last(Attribute::SerialNumber)?,
            user_ids: csr.subject_values(Attribute::UserId)?,
            dns,
            emails,
            ips,
            uris,
            other: other.into_iter().map(other_name).collect(),
            unsupported_san_kind: unsupported_name_kind,
        })
    }
}

/// Names of a certificate, in encoding order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NameSet {
    /// Common name of the subject, or empty.
    pub common_name: String,
    /// dNSName entries: ASCII, without duplicates.
    pub dns: Vec<String>,
    /// rfc822Name entries: ASCII, sorted, without duplicates.
    pub emails: Vec<String>,
    /// iPAddress entries in the order of the request; IPv4-mapped ones as IPv4.
    pub ips: Vec<IpAddr>,
    /// URI entries: ASCII, in the order of the request.
    pub uris: Vec<String>,
    /// otherName entries: dotted OID and text, grouped by OID.
    pub other: Vec<(String, String)>,
    /// UID attributes of the subject, without duplicates.
    pub user_ids: Vec<String>,
    /// serialNumber attribute of the subject (2.5.4.5), or empty.
    pub serial_number: String,
}

/// Advice that is appended to errors about `alt_names` of a request with a role: put the name into a CSR instead.
const ALT_NAMES_REMEDY: &str = "; alt_names accepts nothing else, even with \
                           enforce_hostnames=false. A role with enforce_hostnames=false accepts the name in the CSR";

/// A validated [`NameSet`]. Only this module creates it; it dereferences to `NameSet`.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidatedNames(NameSet);

impl Deref for ValidatedNames {
    type Target = NameSet;

    fn deref(&self) -> &NameSet {
        &self.0
    }
}

/// Collects the names of a leaf certificate from the request, or from the CSR where the role says so (such as
/// `use_csr_sans`).
///
/// # Errors
/// `Invalid`, naming field, value and rule, for the first name that cannot be encoded.
pub fn collect_for_leaf(role: &Role, request: &RequestedNames, csr: Option<&CsrNames>) -> Result<CollectedNames> {
    let csr_common_name = csr.map_or("", |csr| csr.common_name.trim());
    let from_csr = role.use_csr_common_name && !csr_common_name.is_empty();
    let mut collected = CollectedNames::new(if from_csr { csr_common_name } else { &request.common_name });
    if from_csr && !request.common_name.is_empty() {
        collected.warn("common_name ignored: the role takes the common name of the CSR (use_csr_common_name)");
    }
    match csr.filter(|_| role.use_csr_sans) {
        Some(csr) => collected.collect_csr_sans(request, csr)?,
        None => collected.collect_request_sans(request, ALT_NAMES_REMEDY)?,
    }
    let from_csr = csr.filter(|_| role.serial_number_source == SerialNumberSource::JsonCsr);
    collected.set.serial_number = match from_csr {
        Some(csr) if request.serial_number.is_empty() => csr.serial_number.trim().to_owned(),
        _ => request.serial_number.clone(),
    };
    let user_ids = match csr {
        Some(csr) if request.user_ids.is_empty() => &csr.user_ids,
        _ => &request.user_ids,
    };
    collected.set.user_ids = user_ids.iter().filter(|id| !id.is_empty()).cloned().collect();
    collected.require_bounded()
}

/// Collects the names of a CA certificate and checks only their syntax. The common name may be empty; user ids are
/// ignored.
///
/// # Errors
/// `Invalid`, naming field and value, for a name that cannot be encoded.
pub fn collect_for_ca(request: &RequestedNames) -> Result<(ValidatedNames, Warnings)> {
    let mut collected = CollectedNames::new(&request.common_name);
    collected.collect_request_sans(request, "")?;
    collected.set.serial_number.clone_from(&request.serial_number);
    collected.finish()
}

/// Converts validated names into the subject alternative names to encode.
pub(crate) fn subject_alt_names(names: &ValidatedNames) -> Result<SubjectAltNames> {
    let other = names
        .other
        .iter()
        .map(|(oid, value)| {
            let oid = extension::parse_oid(oid)
                .ok_or_else(|| Error::invalid("other_sans: every entry must start with a dotted OID"))?;
            Ok((oid, value.clone()))
        })
        .collect::<Result<_>>()?;
    Ok(SubjectAltNames {
        dns: names.dns.clone(),
        emails: names.emails.clone(),
        ips: names.ips.clone(),
        uris: names.uris.clone(),
        other,
    })
}

/// The kind of SAN that a name of the request becomes.
enum SanKind {
    Email,
    Dns(String),
    Ipv4,
    /// Neither a host name, an e-mail address nor an IPv4 address.
    Unclassified,
}

fn is_ipv4(name: &str) -> bool {
    name.parse::<Ipv4Addr>().is_ok()
}

/// Returns the error for an IPv4 address given as a DNS name; `instead` is the field to use.
fn ip_address_error(field: &str, name: &str, instead: &str) -> Error {
    Error::invalid(format!("{field}: {} is an IP address: use {instead}", escape_for_message(name)))
}

/// Returns the error for a DNS name that ends in a number.
fn numeric_name_error(field: &str, name: &str) -> Error {
    let rule = "ends in a number, as IPv4 addresses do: it is not a host name (RFC 1123 2.1)";
    Error::invalid(format!("{field}: {} {rule}", escape_for_message(name)))
}

/// Determines the kind of SAN that a name becomes; `field` is the source of the name, for errors.
fn classify_name(field: &str, name: &str) -> Result<SanKind> {
    if name.contains('@') {
        return Ok(SanKind::Email);
    }
    if is_ipv4(name) {
        return Ok(SanKind::Ipv4);
    }
    match hostname::dns_form(name) {
        Ok(form) => Ok(form.map_or(SanKind::Unclassified, SanKind::Dns)),
        Err(problem) => Err(Error::invalid(format!("{field}: {} {}", escape_for_message(name), problem.text()))),
    }
}

/// Names of a request that are not yet checked against the role.
pub struct CollectedNames {
    set: NameSet,
    warnings: Warnings,
    from_csr: bool,
    /// The SAN that was added for the common name.
    common_name_san: Option<String>,
    /// Set if the common name should become a SAN but is neither a DNS name nor an e-mail address.
    non_san_common_name: Option<NonSanCommonName>,
    excludes_common_name: bool,
}

enum NonSanCommonName {
    Address(IpAddr),
    NotAName,
}

impl CollectedNames {
    fn new(common_name: &str) -> Self {
        let set = NameSet { common_name: common_name.to_owned(), ..NameSet::default() };
        Self {
            set,
            warnings: Warnings::default(),
            from_csr: false,
            common_name_san: None,
            non_san_common_name: None,
            excludes_common_name: false,
        }
    }

    fn warn(&mut self, text: impl Into<String>) {
        self.warnings.add(text.into());
    }

    fn source(&self, field: &'static str) -> &'static str {
        if self.from_csr { "csr" } else { field }
    }

    /// Returns the field that a host name or e-mail address comes from, for errors.
    fn source_of(&self, name: &str) -> &'static str {
        let is_common_name = !self.from_csr && self.common_name_san.as_deref() == Some(name);
        if is_common_name { "common_name" } else { self.source("alt_names") }
    }

    /// Collects the SANs of the request, the common name first. `remedy` is appended to the error for invalid host
    /// names.
    fn collect_request_sans(&mut self, request: &RequestedNames, remedy: &str) -> Result<()> {
        let lists = [&request.alt_names, &request.ip_sans, &request.uri_sans, &request.other_sans];
        self.check_count(lists.iter().map(|list| list.len()).sum::<usize>() + request.user_ids.len())?;
        self.add_common_name_san(request)?;
        for name in &request.alt_names {
            check_text("alt_names", name)?;
            match classify_name("alt_names", name)? {
                SanKind::Email => self.set.emails.push(name.clone()),
                SanKind::Dns(ascii) => self.set.dns.push(ascii),
                SanKind::Ipv4 => return Err(ip_address_error("alt_names", name, "ip_sans")),
                SanKind::Unclassified if ends_in_number(name) => return Err(numeric_name_error("alt_names", name)),
                SanKind::Unclassified => {
                    let text =
                        format!("alt_names: {} is not a host name or e-mail address{remedy}", escape_for_message(name));
                    return Err(Error::invalid(text));
                }
            }
        }
        self.set.ips = sans::parse_ips(&request.ip_sans)?;
        self.set.uris.clone_from(&request.uri_sans);
        self.set.other = parse_requested_others(&request.other_sans)?;
        Ok(())
    }

    /// Collects the SANs of the CSR, the `other_sans` of the request and, last, the common name.
    fn collect_csr_sans(&mut self, request: &RequestedNames, csr: &CsrNames) -> Result<()> {
        self.from_csr = true;
        let counts = [csr.dns.len(), csr.emails.len(), csr.ips.len(), csr.uris.len(), csr.other.len()];
        let user_ids = request.user_ids.len().max(csr.user_ids.len());
        self.check_count(counts.iter().sum::<usize>() + request.other_sans.len() + user_ids)?;
        if let Some(kind) = csr.unsupported_san_kind {
            let text = format!("csr: subject alternative names of the kind {kind} are not allowed by any role");
            return Err(Error::invalid(text));
        }
        for (field, ignored) in
            [("alt_names", &request.alt_names), ("ip_sans", &request.ip_sans), ("uri_sans", &request.uri_sans)]
        {
            if !ignored.is_empty() {
                self.warn(format!("{field} ignored: the role takes the SANs of the CSR (use_csr_sans)"));
            }
        }
        for (kind, names, with_at) in [("DNS name", &csr.dns, false), ("e-mail address", &csr.emails, true)] {
            for name in names {
                if name.is_empty() || name.contains('@') != with_at {
                    return Err(Error::invalid(format!("csr: {} is not a valid {kind}", escape_for_message(name))));
                }
            }
        }
        if let Some(name) = csr.dns.iter().find(|name| is_ipv4(name)) {
            return Err(ip_address_error("csr", name, "an iPAddress"));
        }
        self.set.dns.clone_from(&csr.dns);
        self.set.emails.clone_from(&csr.emails);
        self.set.ips = csr.ips.iter().copied().map(sans::unmap_ipv4).collect();
        self.set.uris.clone_from(&csr.uris);
        self.set.other = parse_requested_others(&request.other_sans)?;
        for (oid, value) in &csr.other {
            let other_type = || {
                format!(
                    "csr: the otherName of type {} must be a UTF8String, or an IA5String for SRVName",
                    escape_for_message(oid)
                )
            };
            let value = value.clone().ok_or_else(|| Error::invalid(other_type()))?;
            validate_profile("csr", &value, check_other_name_value(oid, &value))?;
            self.set.other.push((oid.clone(), value));
        }
        self.add_common_name_san(request)
    }

    /// Checks the number of names. A common name counts too, because it may become a SAN.
    fn check_count(&self, count: usize) -> Result<()> {
        if count + usize::from(!self.set.common_name.is_empty()) > MAX_NAMES_PER_REQUEST {
            return Err(Error::invalid(format!(
                "alt_names: at most {MAX_NAMES_PER_REQUEST} names of all kinds fit into one certificate"
            )));
        }
        Ok(())
    }

    fn add_common_name_san(&mut self, request: &RequestedNames) -> Result<()> {
        let name = self.set.common_name.clone();
        check_text("common_name", &name)?;
        self.excludes_common_name = request.exclude_cn_from_sans;
        if name.is_empty() || request.exclude_cn_from_sans {
            return Ok(());
        }
        if let Ok(address) = name.parse::<IpAddr>() {
            self.non_san_common_name = Some(NonSanCommonName::Address(sans::unmap_ipv4(address)));
            return Ok(());
        }
        match classify_name("common_name", &name)
            .map_err(|e| Error::invalid(format!("{e} (see exclude_cn_from_sans)")))?
        {
            SanKind::Email => {
                self.common_name_san = Some(name.clone());
                self.set.emails.push(name);
            }
            SanKind::Dns(ascii) => {
                self.common_name_san = Some(ascii.clone());
                self.set.dns.push(ascii);
            }
            SanKind::Ipv4 | SanKind::Unclassified => self.non_san_common_name = Some(NonSanCommonName::NotAName),
        }
        Ok(())
    }

    /// Handles a common name that is neither a DNS name nor an e-mail address. An IP address becomes a SAN if the role
    /// allows it. Any other text is rejected if the role enforces host names, unless `cn_validations` is `disabled`.
    fn resolve_common_name(&mut self, role: &CompiledRole) -> Result<()> {
        let name = &self.set.common_name;
        match self.non_san_common_name.take() {
            None => {}
            Some(NonSanCommonName::Address(ip)) => match sans::check_ips(role, "common_name", &[ip]) {
                Ok(()) if self.set.ips.contains(&ip) => {}
                Ok(()) => self.set.ips.insert(0, ip),
                Err(refused) => {
                    self.warn(format!("{}; the address is not added to the subject alternative names", refused.text()));
                }
            },
            Some(NonSanCommonName::NotAName) if !role.enforce_hostnames || skips_common_name_validation(role) => {}
            Some(NonSanCommonName::NotAName) if ends_in_number(name) => {
                return Err(numeric_name_error("common_name", name));
            }
            Some(NonSanCommonName::NotAName) => {
                let rule = "is not a host name or e-mail address, which the role's enforce_hostnames requires";
                return Err(Error::invalid(format!(
                    "common_name: {} {rule} (see exclude_cn_from_sans)",
                    escape_for_message(name)
                )));
            }
        }
        let set = &self.set;
        let has_no_san = set.dns.is_empty()
            && set.emails.is_empty()
            && set.ips.is_empty()
            && set.uris.is_empty()
            && set.other.is_empty();
        if has_no_san && !self.excludes_common_name && !set.common_name.is_empty() && role.is_for_tls_servers() {
            self.warn(
                "common_name: the certificate has no subject alternative name; TLS clients check only these names \
                 (RFC 9525) and reject the certificate of a server without one",
            );
        }
        Ok(())
    }

    /// Rejects names that are too long in total, which bounds the cost of later checks.
    fn require_bounded(self) -> Result<Self> {
        check_size(&self.set)?;
        check_text("serial_number", &self.set.serial_number)?;
        Ok(self)
    }

    /// `true` if checking these names against the role takes too long for a worker.
    pub fn is_slow_to_validate(&self, role: &CompiledRole) -> bool {
        let bytes = |names: &[String]| names.iter().map(String::len).sum::<usize>();
        let set = &self.set;
        let allowed = &role.allowed;
        let by_globs = role.allow_glob_domains && !role.allow_any_name;
        let domain_globs = if by_globs { allowed.domains.patterns.glob_count() } else { 0 };
        let other_globs =
            allowed.other_names.iter().flat_map(|by_oid| by_oid.values()).map(PatternList::glob_count).sum::<usize>();
        let steps = [
            domain_globs * (set.common_name.len() + bytes(&set.dns) + bytes(&set.emails)),
            allowed.networks.len() * set.ips.len(),
            allowed.uris.glob_count() * bytes(&set.uris),
            other_globs * set.other.iter().map(|(_, value)| value.len()).sum::<usize>(),
            allowed.user_ids.0.glob_count() * bytes(&set.user_ids),
            allowed.serial_numbers.glob_count() * set.serial_number.len(),
            // Templates are filled in, and their lists parsed, for each request.
            if role.has_templates() { bytes(&role.allowed_domains) + bytes(&role.allowed_uri_sans) } else { 0 },
        ];
        steps.iter().sum::<usize>() > MAX_POLICY_STEPS
    }

    /// Checks the names against the role. `display_name` is the caller's, for `allow_token_displayname`. Also returns
    /// warnings for the caller.
    ///
    /// # Errors
    /// `Invalid`, naming field, value and rule, for the first name that the role does not allow or that cannot be
    /// encoded.
    pub fn validate(mut self, role: &CompiledRole, display_name: &str) -> Result<(ValidatedNames, Warnings)> {
        let policy = NamePolicy { role, display_name };
        let set = &self.set;
        let sources = |field| self.source(field);
        check_common_name(&policy, &set.common_name)?;
        if let Some(name) = set.dns.iter().find(|name| role.enforce_hostnames && ends_in_number(name)) {
            return Err(numeric_name_error(self.source_of(name), name));
        }
        let refused = |names: &[String]| {
            let name = names.iter().find(|name| !policy.allows(name))?;
            Some((self.source_of(name), escape_for_message(name), policy.refusal_detail(name)))
        };
        for (names, kind) in [(&set.dns, "subject alternate name"), (&set.emails, "email address")] {
            if let Some((source, name, rule)) = refused(names) {
                return Err(Error::invalid(format!("{source}: {kind} {name} not allowed by this role{rule}")));
            }
        }
        sans::check_others(role, &set.other)?;
        sans::check_ips(role, sources("ip_sans"), &set.ips)?;
        sans::check_uris(role, sources("uri_sans"), &set.uris)?;
        sans::check_user_ids(role, &set.user_ids)?;
        sans::check_serial_number(role, &set.serial_number)?;
        let mut seen = HashSet::new();
        self.set.user_ids.retain(|id| seen.insert(id.clone()));
        self.resolve_common_name(role)?;
        self.finish()
    }

    /// Checks the syntax of all names, sorts them and removes duplicates, for certificates with and without a role.
    fn finish(mut self) -> Result<(ValidatedNames, Warnings)> {
        let uris = self.source("uri_sans");
        for (names, fits) in [
            (&self.set.dns, profile::validate_dns_name as fn(&[u8]) -> DerResult<()>),
            (&self.set.emails, profile::validate_mailbox),
        ] {
            for name in names {
                let source = self.source_of(name);
                check_text(source, name)?;
                if !name.is_ascii() {
                    return Err(Error::invalid(format!("{source}: {} must be ASCII", escape_for_message(name))));
                }
                validate_profile(source, name, fits(name.as_bytes()))?;
            }
        }
        self.set.uris.iter().try_for_each(|uri| check_text(uris, uri))?;
        self.set.other.iter().try_for_each(|(_, value)| check_text("other_sans", value))?;
        self.set.user_ids.iter().try_for_each(|id| check_text("user_ids", id))?;
        check_text("serial_number", &self.set.serial_number)?;
        self.set.uris = sans::encode_uris(uris, &self.set.uris)?;
        let mut seen = HashSet::new();
        self.set.other.retain(|other| seen.insert(other.clone()));
        self.set.other = sans::group_by_oid(self.set.other);
        let mut seen = HashSet::new();
        self.set.dns.retain(|name| seen.insert(name.clone()));
        self.set.emails.sort();
        self.set.emails.dedup();
        Ok((ValidatedNames(self.set), self.warnings))
    }
}

/// Checks the common name against `require_cn`, the policy and `cn_validations`, even if it is excluded from the SANs.
fn check_common_name(policy: &NamePolicy<'_>, name: &str) -> Result<()> {
    let role = policy.role;
    if name.is_empty() {
        return if role.require_cn {
            Err(Error::invalid("common_name: required by this role (require_cn)"))
        } else {
            Ok(())
        };
    }
    let has = |word: &str| role.cn_validations.iter().any(|w| w == word);
    if skips_common_name_validation(role) {
        return Ok(());
    }
    let refuse = |rule: &str| {
        Err(Error::invalid(format!(
            "common_name: common name {} not allowed by this role{rule}",
            escape_for_message(name)
        )))
    };
    match name.contains('@') {
        _ if !policy.allows(name) => refuse(policy.refusal_detail(name)),
        true if !has("email") => refuse(": cn_validations does not list email"),
        false if !has("hostname") => refuse(": cn_validations does not list hostname"),
        _ => Ok(()),
    }
}

/// `true` if `cn_validations` disables all rules for common names.
fn skips_common_name_validation(role: &Role) -> bool {
    role.cn_validations.iter().any(|word| word == "disabled")
}

/// Limits the total size of all names, so that clients accept the certificate and signing it stays cheap.
fn check_size(set: &NameSet) -> Result<()> {
    let texts = [&set.dns, &set.emails, &set.uris, &set.user_ids].into_iter().flatten().map(String::len);
    let others = set.other.iter().map(|(oid, value)| oid.len() + value.len());
    if texts.chain(others).sum::<usize>() > MAX_ALL_NAMES_BYTES {
        return Err(Error::invalid(format!(
            "alt_names: all names together are longer than {MAX_ALL_NAMES_BYTES} bytes"
        )));
    }
    Ok(())
}

/// Rejects control characters in a name or subject value, and a text above the length limit.
pub(crate) fn check_text(source: &str, text: &str) -> Result<()> {
    if text.chars().any(char::is_control) {
        return Err(Error::invalid(format!("{source}: {} contains a control character", escape_for_message(text))));
    }
    if text.len() > MAX_NAME_BYTES {
        return Err(Error::invalid(format!("{source}: a name is longer than {MAX_NAME_BYTES} bytes")));
    }
    Ok(())
}

fn parse_requested_others(texts: &[String]) -> Result<Vec<(String, String)>> {
    let others = sans::parse_others(texts)?;
    others
        .iter()
        .try_for_each(|(oid, value)| validate_profile("other_sans", value, check_other_name_value(oid, value)))?;
    Ok(others)
}

/// Checks that the text of an otherName is valid for its OID.
fn check_other_name_value(oid: &str, value: &str) -> DerResult<()> {
    extension::parse_oid(oid).map_or(Ok(()), |oid| profile::validate_other_name_text(&oid, value.as_bytes()))
}

/// Adds the source and the name to a violated rule of the certificate profile.
fn validate_profile(source: &str, name: &str, held: DerResult<()>) -> Result<()> {
    held.map_err(|DerError(rule)| Error::invalid(format!("{source}: {}: {rule}", escape_for_message(name))))
}

#[cfg(test)]
mod tests;
