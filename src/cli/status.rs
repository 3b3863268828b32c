//! `signet status`: shows what is set up, which certificates and tokens expire next, and what is wrong, as far as the
//! token may read it.
//!
//! It uses only routes that every client can call. Paths that the token may not read are listed as not readable, and
//! their contents do not count as missing.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::clock::{Clock, Time, parse_rfc3339};
use crate::error::Result;
use crate::x509::certificate::Certificate;
use crate::x509::crl::Crl;
use serde_json::{Value, json};

use super::certify::PemCertificate;
use super::client::{AuthenticatedClient, ClientRequest, texts_in};
use super::failure::{CommandFailure, fail_on_findings};
use super::health::describe_not_ready;
use super::issue::format_time;
use super::output;
use super::who::list_authorities;

/// Maximum number of issuers whose certificates are read per mount.
const MAX_ISSUERS_PER_MOUNT: usize = 64;
/// Maximum number of lines in the section "ends next" of the text output.
const MAX_EXPIRIES_SHOWN: usize = 10;
/// Number of leaf certificates that are requested per mount. It is the server's maximum, because revoked ones are
/// dropped afterwards. [`MAX_LEAVES`] limits the JSON output, and [`MAX_LEAVES_SHOWN`] the text output.
const LEAVES_REQUESTED: usize = 100;
const MAX_LEAVES: usize = 20;
const MAX_LEAVES_SHOWN: usize = 5;
/// A default issuer whose certificate expires within this number of seconds is reported as wrong.
const AUTHORITY_EXPIRY_WARNING_SECONDS: i64 = 30 * 86_400;
/// The status notes a restore of the store for this number of seconds after the restore.
const RESTORE_NOTE_SECONDS: i64 = 30 * 86_400;
/// Maximum difference, in seconds, between the clocks of the server and of this machine that is not reported as wrong.
const MAX_CLOCK_SKEW_SECONDS: i64 = 30;

#[derive(clap::Args)]
pub(crate) struct StatusArguments {
    /// Renew the token first (auth/token/renew-self), so that a token of daily runs does not expire.
    #[arg(long)]
    renew_token: bool,
    #[command(flatten)]
    caller: AuthenticatedClient,
}

/// Prints the status. Fails with a finding (exit status 3) if something is wrong.
pub(crate) async fn run(arguments: StatusArguments) -> Result<(), CommandFailure> {
    let mut status = StatusReport { now: Clock::system().now().unix_timestamp(), ..StatusReport::default() };
    status.check_server(&arguments.caller).await?;
    if arguments.renew_token {
        status.renew_token(&arguments.caller).await?;
    }
    status.check_token(&arguments.caller).await?;
    status.check_store(&arguments.caller).await?;
    for mount in list_authorities(&arguments.caller).await? {
        status.check_authority(&arguments.caller, &mount).await?;
    }
    status.check_remaining(&arguments.caller).await?;
    status.ends.sort();
    status.sort_leaves();
    status.note_mounts_without_role();
    output::print_result(&status.json(), status.text())?;
    fail_on_findings(status.wrong.len())
}

#[derive(Default)]
struct StatusReport {
    now: i64,
    /// `true` if the caller's token is a root token that never expires.
    is_never_expiring_root: bool,
    /// Name and description of each object that is set up, such as the store, the token and each PKI mount.
    facts: Vec<(String, String)>,
    /// Certificates, CRLs and tokens that expire: the time of expiry in Unix seconds, and a description.
    ends: Vec<(i64, String)>,
    leaves: Vec<ExpiringLeaf>,
    /// Serial numbers of all issuers. The mount that signed an issuer lists it as a certificate; it is not a leaf and
    /// is dropped there.
    issuers: BTreeSet<String>,
    /// Subject names of the authorities that signed the certificate of another issuer.
    parents: BTreeSet<String>,
    /// Mounts without a role, each with the subject name of its default issuer.
    mounts_without_role: Vec<(String, String)>,
    notes: Vec<String>,
    wrong: Vec<String>,
    /// Paths that the token may not read.
    unreadable_paths: BTreeSet<String>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct ExpiringLeaf {
    /// The time at which the certificate expires, in Unix seconds.
    ends: i64,
    mount: String,
    serial: String,
    name: String,
}

impl StatusReport {
    fn add_fact(&mut self, name: &str, text: String) {
        self.facts.push((name.to_owned(), text));
    }

    /// Adds an object that expires at `at` (Unix seconds), and reports it as wrong if it has expired or expires within
    /// `soon` seconds.
    fn add_expiry(&mut self, what: String, at: i64, soon: i64) {
        let left = at.saturating_sub(self.now);
        if left < 0 {
            self.wrong.push(format!("{what} has ended on {}", format_time(at)));
        } else if left < soon {
            self.wrong.push(format!("{what} ends in {}", format_span(left)));
        }
        self.ends.push((at, what));
    }

    /// Sends a request and returns the `data` of the response. `None` if the path does not exist or the token may not
    /// read it, which is recorded.
    async fn get_if_readable(
        &mut self,
        caller: &AuthenticatedClient,
        request: ClientRequest<'_>,
    ) -> Result<Option<Value>> {
        let reply = caller.request(request).await?;
        match reply.status {
            200 => return Ok(Some(reply.data())),
            403 => {
                let (path, _) = request.path.split_once('?').unwrap_or((request.path, ""));
                self.unreadable_paths.insert(path.to_owned());
            }
            404 => {}
            status => self.wrong.push(format!("{}: unexpected status {status}", request.path)),
        }
        Ok(None)
    }

    async fn check_server(&mut self, caller: &AuthenticatedClient) -> Result<()> {
        let reply = caller.request_once(ClientRequest::get("sys/health")).await?;
        let health: Value = reply.json();
        let text = |name: &str| health[name].as_str().unwrap_or("?").to_owned();
        let ready = if reply.status == 200 { "ready" } else { "NOT READY" };
        self.add_fact(
            "server",
            format!("{} {} {}, {ready}", caller.address(), text("product"), text("product_version")),
        );
        if reply.status != 200 {
            self.wrong.push(format!("the server is not ready: {}", describe_not_ready(reply.status)));
        } else if health["writes_fail"] == true {
            let step = "is the disk full? Writes get 503; see the log of the server";
            self.wrong.push(format!("the store accepts no writes: {step}"));
        }
        let clock = health["server_time_utc"].as_i64().unwrap_or(self.now);
        if clock.abs_diff(self.now) > MAX_CLOCK_SKEW_SECONDS.unsigned_abs() {
            self.wrong.push(format!(
                "the clocks of the server and of this machine differ by {}",
                format_span((clock - self.now).abs())
            ));
        }
        if let Some(certificate) = reply.peer_certificate.as_deref().and_then(|der| Certificate::parse(der).ok()) {
            let from = certificate.not_before();
            let until = certificate.not_after();
            self.add_expiry("the server's own certificate".to_owned(), until, until.saturating_sub(from) / 10);
        }
        let seal = caller.request_once(ClientRequest::get("sys/seal-status")).await?;
        let seal: Value = seal.json();
        let text = |name: &str| seal[name].as_str().unwrap_or("?").to_owned();
        // The API names the seal type `static`, as clients of Vault expect. The output uses `file`, the name in the
        // configuration.
        let sealed_by = Some(text("type")).filter(|kind| kind != "static").unwrap_or_else(|| "file".to_owned());
        self.add_fact("store", format!("{}, sealed by a key of type {sealed_by}", text("storage_type")));
        Ok(())
    }

    async fn renew_token(&mut self, caller: &AuthenticatedClient) -> Result<()> {
        let reply = caller.request(ClientRequest::post("auth/token/renew-self", &json!({}))).await?;
        if reply.status != 200 {
            self.wrong.push(format!("the token was not renewed: {}", reply.to_error("").text()));
        }
        Ok(())
    }

    async fn check_token(&mut self, caller: &AuthenticatedClient) -> Result<()> {
        let path = "auth/token/lookup-self";
        let reply = caller.request(ClientRequest::get(path)).await?;
        if reply.status != 200 {
            let hint = reply.denial_hint(&caller.token_source());
            let command = "signet operator new-root-token --config FILE";
            let step = format!("{hint}; with the seal key, create another token: {command}");
            return Err(reply.to_error(if reply.status == 403 { &step } else { "" }));
        }
        let own = reply.data();
        let policies: Vec<&str> = texts_in(&own["policies"]).collect();
        self.add_fact(
            "token",
            format!("{}, policies: {}", own["display_name"].as_str().unwrap_or("?"), policies.join(", ")),
        );
        if policies.contains(&"root") {
            self.notes.push("the token is a root token: use a token with fewer rights for daily work".to_owned());
        }
        let ttl = own["ttl"].as_i64().unwrap_or_default();
        self.is_never_expiring_root = ttl == 0 && policies.contains(&"root");
        if ttl > 0 {
            self.ends.push((self.now.saturating_add(ttl), "the token".to_owned()));
        }
        Ok(())
    }

    /// Notes a recent restore of the store, because changes were lost, and the number of root tokens that never expire,
    /// without the caller's own token.
    async fn check_store(&mut self, caller: &AuthenticatedClient) -> Result<()> {
        let Some(store) = self.get_if_readable(caller, ClientRequest::get("sys/internal/status")).await? else {
            return Ok(());
        };
        self.note_restore(&store["restore"]);
        let others = store["endless_root_tokens"].as_i64().unwrap_or_default() - i64::from(self.is_never_expiring_root);
        if others > 0 {
            let kind = if self.is_never_expiring_root { "other root tokens" } else { "root tokens" };
            let step = "revoke those that are not needed (docs/production.md, step 10, lists them)";
            self.notes.push(format!("{kind} that never expire: {others}; {step}"));
        }
        Ok(())
    }

    fn note_restore(&mut self, restore: &Value) {
        let time = |name: &str| parse_rfc3339(name, restore[name].as_str()?).ok().map(Time::unix_timestamp);
        let Some(restored_at) = time("restored_at") else { return };
        if self.now.saturating_sub(restored_at) > RESTORE_NOTE_SECONDS {
            return;
        }
        let copy = time("copied_at").map_or_else(|| "an unknown time".to_owned(), format_time);
        let lost = "later changes, such as revocations, are lost: see What is lost in docs/backup-embedded.md";
        self.notes
            .push(format!("the store was restored on {} from a copy of {copy}; {lost}", format_time(restored_at)));
    }

    async fn check_authority(&mut self, caller: &AuthenticatedClient, mount: &str) -> Result<()> {
        let issuers =
            self.get_if_readable(caller, ClientRequest::list(&format!("{mount}issuers"))).await?.unwrap_or_default();
        let ids: Vec<&str> = texts_in(&issuers["keys"]).collect();
        let mut default = None;
        for id in ids.iter().take(MAX_ISSUERS_PER_MOUNT) {
            let path = format!("{mount}issuer/{id}/json");
            let Some(issuer) = self.get_if_readable(caller, ClientRequest::get(&path)).await? else { continue };
            let Some(link) = issuer["certificate"].as_str().and_then(|text| PemCertificate::read(text).ok()) else {
                continue;
            };
            let name = link.certificate.subject().display();
            self.issuers.insert(link.certificate.serial().to_string());
            let parent = link.certificate.issuer().display();
            if parent != name {
                self.parents.insert(parent);
            }
            let is_default = issuers["key_info"][*id]["is_default"] == true;
            if is_default {
                default = Some(name.clone());
            }
            let soon = if is_default { AUTHORITY_EXPIRY_WARNING_SECONDS } else { 0 };
            self.add_expiry(format!("{mount}: issuer {name}"), link.certificate.not_after(), soon);
        }
        let roles = self.get_if_readable(caller, ClientRequest::list(&format!("{mount}roles"))).await?;
        let closed = self.unreadable_paths.contains(&format!("{mount}roles"));
        let roles = roles.map_or(0, |roles| roles["keys"].as_array().map_or(0, Vec::len));
        let count = if closed { "roles not visible".to_owned() } else { format!("{roles} roles") };
        let issuer = default.clone().map_or_else(|| "no default issuer".to_owned(), |name| format!("issues by {name}"));
        self.add_fact(mount, format!("{issuer}; {} issuers, {count}", ids.len()));
        match default {
            None if ids.is_empty() => {
                self.wrong.push(format!("{mount}: has no issuer (POST {mount}root/generate/internal makes one)"))
            }
            None => self.wrong.push(format!("{mount}: has no default issuer (POST {mount}config/issuers sets it)")),
            Some(name) if roles == 0 && !closed => self.mounts_without_role.push((mount.to_owned(), name)),
            Some(_) => {}
        }
        self.check_leaves(caller, mount).await?;
        self.check_revocation_data(caller, mount).await
    }

    async fn check_leaves(&mut self, caller: &AuthenticatedClient, mount: &str) -> Result<()> {
        let path = format!("{mount}certs/detailed?order=not_after&limit={LEAVES_REQUESTED}");
        if let Some(found) = self.get_if_readable(caller, ClientRequest::list(&path)).await? {
            self.note_leaves(mount, &found);
        }
        Ok(())
    }

    /// Adds the leaf certificates in `found`, the server's list of certificates of a mount, except revoked ones.
    fn note_leaves(&mut self, mount: &str, found: &Value) {
        let mut total = 0;
        let mut revoked = 0;
        for (serial, info) in found["key_info"].as_object().into_iter().flatten() {
            total += 1;
            if info["revoked"] == true {
                revoked += 1;
                continue;
            }
            let text = |name: &str| info[name].as_str().unwrap_or_default().to_owned();
            // A certificate whose expiry time cannot be parsed is skipped; the others are still shown.
            let Ok(ends) = parse_rfc3339("not_after", &text("not_after")) else { continue };
            let other = || info["dns_names"][0].as_str().unwrap_or(serial).to_owned();
            let name = Some(text("common_name")).filter(|name| !name.is_empty()).unwrap_or_else(other);
            let ends = ends.unix_timestamp();
            let mount = mount.to_owned();
            self.leaves.push(ExpiringLeaf { ends, mount, serial: serial.clone(), name });
        }
        if total >= LEAVES_REQUESTED && revoked == total {
            self.notes.push(format!(
                "{mount}: the {total} certificates that end next are revoked; later ones were not requested"
            ));
        }
    }

    /// Notes mounts without a role. A mount whose issuer has signed other issuers needs no role and is not noted.
    fn note_mounts_without_role(&mut self) {
        for (mount, name) in &self.mounts_without_role {
            if !self.parents.contains(name) {
                self.notes.push(format!("{mount}: has no role (POST {mount}roles/NAME)"));
            }
        }
    }

    fn sort_leaves(&mut self) {
        let issuers = &self.issuers;
        self.leaves.retain(|leaf| !issuers.contains(&leaf.serial));
        self.leaves.sort();
        self.leaves.truncate(MAX_LEAVES);
    }

    /// Checks the revocation data of a mount, which verifiers of certificates need: that the CRL has not expired, and
    /// that certificates contain CRL or OCSP URLs.
    async fn check_revocation_data(&mut self, caller: &AuthenticatedClient, mount: &str) -> Result<()> {
        // A CRL that exceeds the client's size limit for responses is not checked.
        if let Ok(reply) = caller.request(ClientRequest::get(&format!("{mount}crl"))).await
            && let Ok(crl) = Crl::parse(reply.body.expose())
            && let Some(next) = crl.next_update()
        {
            self.add_expiry(format!("{mount}: CRL with {} entries", crl.entries().len()), next, 0);
        }
        if let Some(urls) = self.get_if_readable(caller, ClientRequest::get(&format!("{mount}config/urls"))).await? {
            let is_set = |name: &str| urls[name].as_array().is_some_and(|urls| !urls.is_empty());
            if !is_set("crl_distribution_points") && !is_set("ocsp_servers") {
                let text = "certificates have neither CRL nor OCSP URLs";
                self.notes.push(format!("{mount}: {text} (POST {mount}config/urls)"));
            }
        }
        Ok(())
    }

    async fn check_remaining(&mut self, caller: &AuthenticatedClient) -> Result<()> {
        if let Some(mounts) = self.get_if_readable(caller, ClientRequest::get("sys/internal/ui/mounts")).await? {
            let methods: Vec<String> =
                mounts["auth"].as_object().into_iter().flatten().map(|(path, _)| path.clone()).collect();
            self.add_fact("logins", methods.join(", "));
        }
        if let Some(devices) = self.get_if_readable(caller, ClientRequest::get("sys/audit")).await? {
            let names: Vec<String> = devices.as_object().into_iter().flatten().map(|(path, _)| path.clone()).collect();
            if names.is_empty() {
                self.notes
                    .push("no audit device: requests are not recorded ([[audit]] of the configuration)".to_owned());
            }
            self.add_fact("audit", if names.is_empty() { "none".to_owned() } else { names.join(", ") });
        }
        Ok(())
    }

    fn json(&self) -> Value {
        let ends = self.ends.iter().map(|(at, what)| json!({ "at": format_time(*at), "what": what }));
        let leaves = self.leaves.iter().map(
            |leaf| json!({ "at": format_time(leaf.ends), "mount": leaf.mount, "serial_number": leaf.serial, "name": leaf.name }),
        );
        json!({
            "set_up": self.facts.iter().map(|(name, text)| json!({ "what": name, "is": text })).collect::<Vec<_>>(),
            "ends_next": ends.collect::<Vec<_>>(),
            "leaves_end_next": leaves.collect::<Vec<_>>(),
            "notes": self.notes,
            "wrong": self.wrong,
            "not_visible": self.unreadable_paths,
        })
    }

    fn text(&self) -> String {
        let mut out = String::new();
        let _ = self.write(&mut out);
        out.truncate(out.trim_end().len());
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        for (name, text) in &self.facts {
            writeln!(out, "{name:<10} {text}")?;
        }
        writeln!(out, "\nends next")?;
        for (at, what) in self.ends.iter().take(MAX_EXPIRIES_SHOWN) {
            writeln!(out, "  {}  {what} ({})", format_time(*at), format_span(at.saturating_sub(self.now)))?;
        }
        if !self.leaves.is_empty() {
            writeln!(out, "\ncertificates that expire next")?;
        }
        for leaf in self.leaves.iter().take(MAX_LEAVES_SHOWN) {
            let left = format_span(leaf.ends.saturating_sub(self.now));
            writeln!(out, "  {}  {}: {} {} ({left})", format_time(leaf.ends), leaf.mount, leaf.name, leaf.serial)?;
        }
        for (title, lines) in [("worth a look", &self.notes), ("wrong", &self.wrong)] {
            if !lines.is_empty() {
                writeln!(out, "\n{title}")?;
                lines.iter().try_for_each(|line| writeln!(out, "  {line}"))?;
            }
        }
        if self.wrong.is_empty() {
            writeln!(out, "\nnothing is wrong")?;
        }
        if !self.unreadable_paths.is_empty() {
            let paths: Vec<&str> = self.unreadable_paths.iter().map(String::as_str).collect();
            writeln!(out, "\nnot visible to this token: {}", paths.join(", "))?;
        }
        Ok(())
    }
}

/// Formats a number of seconds in a suitable unit, such as `3 d`; a negative number as `over`.
fn format_span(seconds: i64) -> String {
    match seconds {
        ..0 => "over".to_owned(),
        0..=120 => format!("{seconds} s"),
        121..=7_200 => format!("{} min", seconds / 60),
        7_201..=172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a server's list of `count` certificates, of which the last `live` are not revoked.
    fn found(count: usize, live: usize) -> Value {
        let info = |n: usize| {
            let end = format!("2026-01-01T00:{:02}:{:02}Z", n / 60, n % 60);
            (format!("{n:02x}"), json!({ "common_name": "", "not_after": end, "revoked": n + live < count }))
        };
        json!({ "key_info": (0..count).map(info).collect::<serde_json::Map<_, _>>() })
    }

    #[test]
    fn leaves_behind_many_that_are_revoked_are_found() {
        let mut status = StatusReport::default();
        status.note_leaves("pki/", &found(LEAVES_REQUESTED, 2));
        status.sort_leaves();
        let serials: Vec<&str> = status.leaves.iter().map(|leaf| leaf.serial.as_str()).collect();
        assert_eq!((serials, status.notes.len()), (vec!["62", "63"], 0));
    }

    #[test]
    fn mount_with_only_revoked_leaves_in_the_sample_gets_a_note() {
        let mut status = StatusReport::default();
        status.note_leaves("few/", &found(LEAVES_REQUESTED - 1, 0));
        status.note_leaves("none/", &found(0, 0));
        assert!(status.notes.is_empty() && status.leaves.is_empty(), "{:?}", status.notes);
        status.note_leaves("many/", &found(LEAVES_REQUESTED, 0));
        assert_eq!(
            status.notes,
            ["many/: the 100 certificates that end next are revoked; later ones were not requested"]
        );
    }

    #[test]
    fn status_notes_a_restore_for_thirty_days() {
        let noted = |now: &str, restore: Value| {
            let now = parse_rfc3339("", now).unwrap().unix_timestamp();
            let mut status = StatusReport { now, ..StatusReport::default() };
            status.note_restore(&restore);
            status.notes.join("\n")
        };
        let restore = json!({ "restored_at": "2026-02-01T10:00:00Z", "copied_at": "2026-01-31T03:00:00Z" });
        let note = noted("2026-03-03T10:00:00Z", restore.clone());
        assert!(note.contains("restored on 2026-02-01T10:00:00Z from a copy of 2026-01-31T03:00:00Z; later"), "{note}");
        assert_eq!(noted("2026-03-03T10:00:01Z", restore), "");
        let unknown = json!({ "restored_at": "2026-02-01T10:00:00Z", "copied_at": null });
        assert!(noted("2026-02-01T10:00:00Z", unknown).contains("from a copy of an unknown time"));
        assert_eq!(noted("2026-02-01T10:00:00Z", Value::Null), "");
    }

    #[test]
    fn leaf_with_unreadable_end_does_not_hide_other_leaves() {
        let mut status = StatusReport::default();
        let mut found = found(2, 2);
        found["key_info"]["00"]["not_after"] = json!("");
        status.note_leaves("pki/", &found);
        assert_eq!(status.leaves.iter().map(|leaf| leaf.serial.as_str()).collect::<Vec<_>>(), ["01"]);
    }
}
