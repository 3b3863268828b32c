//! Fills a mount before a run, so that the store has a realistic size.
//!
//! The server issues and revokes the missing certificates over HTTP, so that rows, indexes and counters are those of
//! normal operation. Existing certificates are counted exactly, by listing them in pages; a store that was filled once
//! serves all later runs.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use crate::client::Client;
use crate::drive::{RequestClass, RunLimits, ServerAccess, drive};
use crate::pace::Pace;
use crate::plan::{self, CERTIFICATE_TTL, MountContents, issuing};
use crate::proc::WatchedProcesses;
use crate::run_context;

/// Connections for filling: more than in a run, so that commits are larger.
const PRELOAD_CONNECTIONS: usize = 256;
/// Serial numbers per page of a list.
const SERIALS_PER_PAGE: usize = 10_000;
/// Time limit for filling: half an hour, or the time that this many requests per second take.
const MIN_FILL_TIMEOUT: Duration = Duration::from_secs(1800);
const MIN_FILL_REQUESTS_PER_SECOND: u64 = 2000;
const CRL_CONFIG: &str = "config/crl";
const ROLE_SUFFIX: &str = "-preload";

/// Issues and revokes certificates until the mount holds `wanted`. Returns what the mount then holds. Without `role`,
/// creates a role for these certificates.
pub(crate) async fn fill(
    admin: &ServerAccess<'_>,
    wanted: MountContents,
    role: Option<&str>,
    quiet: bool,
) -> Result<MountContents, String> {
    wanted.check()?;
    let mut client = admin.connect().await?;
    let existing = leaves(&mut client, admin.mount).await?;
    if existing < wanted.certificates {
        issue(admin, wanted.certificates - existing, role, quiet).await?;
    }
    let revoked = count(&mut client, admin.mount, "certs/revoked").await?;
    if revoked < wanted.revoked {
        revoke(admin, &mut client, wanted.revoked - revoked, role.is_none(), quiet).await?;
    }
    let certificates = leaves(&mut client, admin.mount).await?;
    let stock = MountContents { certificates, revoked: count(&mut client, admin.mount, "certs/revoked").await? };
    // All requests succeeded, but a server or role that stores no certificates is detected only by this check.
    if stock.certificates < wanted.certificates || stock.revoked < wanted.revoked {
        let MountContents { certificates, revoked } = wanted;
        return Err(format!(
            "preload: the mount has {} certificates ({} revoked) instead of {certificates} ({revoked})",
            stock.certificates, stock.revoked
        ));
    }
    Ok(stock)
}

async fn issue(admin: &ServerAccess<'_>, missing: u64, role: Option<&str>, quiet: bool) -> Result<(), String> {
    let own = format!("{}{ROLE_SUFFIX}", admin.provisioner.name());
    if role.is_none() {
        admin.provisioner.role(admin.mount, &own, &plan::role("ec", 256, false)).await?;
    }
    run_context::print_progress(quiet, &format!("issuing {missing} certificates"));
    let class = issuing("preload".to_owned(), PRELOAD_CONNECTIONS, admin.mount, role.unwrap_or(&own), CERTIFICATE_TTL);
    all(admin, class, missing, quiet).await
}

/// Returns request bodies for `wanted` certificates that are not revoked yet, and how many of them were missing and
/// have been issued.
pub(crate) async fn revocation_bodies(
    admin: &ServerAccess<'_>,
    wanted: u64,
    role: Option<&str>,
    quiet: bool,
) -> Result<(Vec<Bytes>, u64), String> {
    let mut client = admin.connect().await?;
    let mut bodies = found(&mut client, admin.mount, wanted).await?;
    let missing = wanted.saturating_sub(bodies.len() as u64);
    if missing > 0 {
        issue(admin, missing, role, quiet).await?;
        bodies = revocable(&mut client, admin.mount, wanted).await?;
    }
    Ok((bodies, missing))
}

/// Revokes `missing` certificates. If `may_configure` is set, the timer builds the CRLs meanwhile and not each request,
/// because no request needs a CRL.
async fn revoke(
    admin: &ServerAccess<'_>,
    client: &mut Client,
    missing: u64,
    may_configure: bool,
    quiet: bool,
) -> Result<(), String> {
    let bodies = revocable(client, admin.mount, missing).await?;
    run_context::print_progress(quiet, &format!("revoking {missing} certificates"));
    let class = revoking("revoke".to_owned(), PRELOAD_CONNECTIONS, admin.mount, bodies);
    if !may_configure {
        return all(admin, class, missing, quiet).await;
    }
    let before = rebuilds(client, admin.mount).await?;
    auto_rebuild(admin, true).await?;
    let revoked = all(admin, class, missing, quiet).await;
    auto_rebuild(admin, before).await?;
    revoked
}

/// Returns `true` if the mount builds its CRLs by the timer.
pub(crate) async fn rebuilds(client: &mut Client, mount: &str) -> Result<bool, String> {
    let path = format!("/v1/{mount}/{CRL_CONFIG}");
    let config = client.get_json(&path).await?;
    Ok(config["data"]["auto_rebuild"].as_bool().unwrap_or(false))
}

/// Selects CRL builds by the timer (`on`) or with each revocation.
pub(crate) async fn auto_rebuild(admin: &ServerAccess<'_>, on: bool) -> Result<(), String> {
    admin.provisioner.post(&admin.path(CRL_CONFIG), &json!({ "auto_rebuild": on })).await.map(drop)
}

/// Returns clients that revoke. Each body may be sent only once; every response is checked.
pub(crate) fn revoking(name: String, clients: usize, mount: &str, bodies: Vec<Bytes>) -> RequestClass {
    RequestClass {
        check_interval: 1,
        ..RequestClass::post(name, clients, format!("/v1/{mount}/revoke"), bodies, revoked)
    }
}

/// `true` if the response confirms a revocation. For an expired certificate the server returns success with a warning
/// instead.
pub(crate) fn revoked(answer: &Value) -> bool {
    answer["data"]["revocation_time"].is_u64()
}

/// Returns request bodies for `wanted` certificates that are not revoked yet. Fails if there are fewer.
pub(crate) async fn revocable(client: &mut Client, mount: &str, wanted: u64) -> Result<Vec<Bytes>, String> {
    let bodies = found(client, mount, wanted).await?;
    if (bodies.len() as u64) < wanted {
        return Err(format!("there are only {} certificates to revoke, {wanted} are needed", bodies.len()));
    }
    Ok(bodies)
}

/// Returns request bodies for at most `wanted` certificates that are not revoked yet.
async fn found(client: &mut Client, mount: &str, wanted: u64) -> Result<Vec<Bytes>, String> {
    let mut bodies = Vec::new();
    if wanted == 0 {
        return Ok(bodies);
    }
    // Neither issuers nor revoked certificates can be revoked.
    let mut skipped = issuers(client, mount).await?;
    for_each_serial(client, mount, "certs/revoked", |serial| {
        skipped.insert(serial.to_owned());
        true
    })
    .await?;
    for_each_serial(client, mount, "certs", |serial| {
        if !skipped.contains(serial) {
            bodies.push(Bytes::from(json!({ "serial_number": serial }).to_string()));
        }
        (bodies.len() as u64) < wanted
    })
    .await?;
    Ok(bodies)
}

/// Runs the class; every request must succeed.
async fn all(admin: &ServerAccess<'_>, class: RequestClass, requests: u64, quiet: bool) -> Result<(), String> {
    let name = class.name.clone();
    let time = MIN_FILL_TIMEOUT.max(Duration::from_secs(requests / MIN_FILL_REQUESTS_PER_SECOND));
    let bounds = RunLimits { requests, time, pace: Pace::default(), quiet };
    let figures = drive(admin, vec![class], &bounds, WatchedProcesses::default()).await?;
    let done = figures.count();
    match done < requests {
        false => Ok(()),
        true if figures.interrupted => {
            Err(format!("{name}: {done} of {requests} requests succeeded before the interruption"))
        }
        true => Err(format!("{name}: {done} of {requests} requests succeeded; errors: {:?}", figures.errors())),
    }
}

async fn issuers(client: &mut Client, mount: &str) -> Result<HashSet<String>, String> {
    let list = list(client, &format!("/v1/{mount}/issuers")).await?;
    let infos = list["data"]["key_info"].as_object().into_iter().flat_map(|infos| infos.values());
    Ok(infos.filter_map(|info| info["serial_number"].as_str()).map(str::to_owned).collect())
}

pub(crate) async fn count(client: &mut Client, mount: &str, path: &str) -> Result<u64, String> {
    let mut count = 0;
    let visitor = |_: &str| {
        count += 1;
        true
    };
    for_each_serial(client, mount, path, visitor).await?;
    Ok(count)
}

/// Counts the certificates without those of issuers, which cannot be revoked.
async fn leaves(client: &mut Client, mount: &str) -> Result<u64, String> {
    let issuers = issuers(client, mount).await?;
    let mut count = 0;
    let visitor = |serial: &str| {
        count += u64::from(!issuers.contains(serial));
        true
    };
    for_each_serial(client, mount, "certs", visitor).await?;
    Ok(count)
}

/// Passes the serial numbers of a list to `more` until it returns `false`. A server without paging returns the whole
/// list at once, and again when the next page is requested.
pub(crate) async fn for_each_serial(
    client: &mut Client,
    mount: &str,
    path: &str,
    mut more: impl FnMut(&str) -> bool,
) -> Result<(), String> {
    let mut after = String::new();
    loop {
        let page = list(client, &format!("/v1/{mount}/{path}?limit={SERIALS_PER_PAGE}&after={after}")).await?;
        let serials: Vec<&str> =
            page["data"]["keys"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if serials.last().is_some_and(|last| with_hyphens(last) == after) {
            return Ok(());
        }
        for serial in &serials {
            if !more(serial) {
                return Ok(());
            }
        }
        let Some(last) = serials.last().filter(|_| serials.len() == SERIALS_PER_PAGE) else { return Ok(()) };
        after = with_hyphens(last);
    }
}

/// Returns a serial number in the form that all servers accept as `after`. Some return colons, but compare `after` byte
/// by byte with stored serial numbers, which have hyphens. A colon is greater than a hyphen and would skip the rest of
/// the list.
fn with_hyphens(serial: &str) -> String {
    serial.replace(':', "-")
}

/// Returns the response of a list; null if the list is empty.
async fn list(client: &mut Client, path: &str) -> Result<Value, String> {
    let method = Method::from_bytes(b"LIST").map_err(|e| e.to_string())?;
    let answer = client.send(method, path, Bytes::new()).await?;
    match answer.status {
        StatusCode::NOT_FOUND => Ok(Value::Null),
        StatusCode::OK => serde_json::from_slice(&answer.body).map_err(|e| format!("{path}: {e}")),
        _ => Err(answer.unexpected(path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::double::{Double, Shape};
    use crate::scenario::Scenario;
    use crate::server::Server;
    use crate::target::Target;
    use crate::workload;

    async fn open(double: &Double) -> Server {
        let target =
            Target { addr: double.addr.clone(), token: "root".to_owned(), prepared: true, ..Target::default() };
        target.open(Scenario::Issue).await.unwrap()
    }

    #[tokio::test]
    async fn paged_lists_are_counted_completely() {
        let double = Double::start(Shape { pages: true, ..Shape::default() });
        let certificates = 2 * SERIALS_PER_PAGE + 17;
        let revoked = SERIALS_PER_PAGE + 5;
        double.hold("pki", certificates, revoked);
        let open = open(&double).await;
        let mut client = open.access().connect().await.unwrap();
        assert_eq!(count(&mut client, "pki", "certs").await, Ok(certificates as u64));
        assert_eq!(count(&mut client, "pki", "certs/revoked").await, Ok(revoked as u64));
        assert_eq!(double.count_requests("LIST /v1/pki/certs?"), 3);
        let bodies = found(&mut client, "pki", u64::MAX).await.unwrap();
        assert_eq!(bodies.len(), certificates - revoked);
        // A list that ends with a full page is recognized as complete, and one without pages is not counted twice.
        double.hold("full", SERIALS_PER_PAGE, 0);
        assert_eq!(count(&mut client, "full", "certs").await, Ok(SERIALS_PER_PAGE as u64));
        let whole = Double::start(Shape::default());
        whole.hold("pki", SERIALS_PER_PAGE, 0);
        let mut client = self::open(&whole).await.access().connect().await.unwrap();
        assert_eq!(count(&mut client, "pki", "certs").await, Ok(SERIALS_PER_PAGE as u64));
    }

    #[tokio::test]
    async fn all_certificates_except_those_of_issuers_can_be_revoked() {
        let double = Double::start(Shape { issuer: true, ..Shape::default() });
        double.hold("pki", 1, 0);
        let open = open(&double).await;
        let wanted = MountContents { certificates: 30, revoked: 30 };
        assert_eq!(fill(&open.access(), wanted, None, true).await, Ok(wanted));
        assert_eq!(double.stock("pki"), (31, 30));
    }

    #[tokio::test]
    async fn certificates_that_have_expired_are_not_counted_as_revoked() {
        let double = Double::start(Shape { expired: true, ..Shape::default() });
        double.hold("pki", 30, 0);
        let open = open(&double).await;
        let refused =
            fill(&open.access(), MountContents { certificates: 30, revoked: 20 }, None, true).await.err().unwrap();
        assert!(refused.starts_with("revoke: 0 of 20 requests succeeded"), "{refused}");
        assert!(!double.auto_rebuild("pki"), "it is put back whatever happens");
        // In a run, each response that confirms no revocation counts as an error.
        let order = format!(
            "scenario = \"revoke\"\nclients = 2\nrequests = 20\nseconds = 20\n[target]\naddr = \"{}\"\n",
            double.addr
        );
        let mut plan = crate::order::read(&order, false).unwrap().plan;
        (plan.quiet, plan.scenario) = (true, Scenario::Revoke);
        let figures = workload::run(&plan, &open.access(), open.watched).await.unwrap();
        assert_eq!((figures.classes[0].count(), figures.classes[0].errors.values().sum::<u64>()), (0, 20));
    }

    #[tokio::test]
    async fn store_with_fewer_certificates_than_created_is_reported() {
        let double = Double::start(Shape { forgets: true, ..Shape::default() });
        double.hold("pki", 5, 0);
        let wanted = MountContents { certificates: 30, revoked: 0 };
        let refused = fill(&open(&double).await.access(), wanted, None, true).await.err().unwrap();
        assert!(refused.starts_with("preload: the mount has 5 certificates (0 revoked)"), "{refused}");
    }
}
