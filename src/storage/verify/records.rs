//! Checks that the rows of a store are consistent. Compares certificates with the columns of their rows, revocations
//! with the assigned sequence numbers, counters with a full scan, and CRLs with the number of revocations that they
//! cover.

use std::collections::{BTreeMap, BTreeSet};

use crate::documents::MountId;
use crate::error::Result;
use crate::projects::store::ProjectStore;
use crate::sql::{SqlError, SqlRow, SqlValue};
use crate::storage::scan;
use crate::storage::verify::findings::Findings;
use crate::storage::verify::seals::format_key;
use crate::x509::certificate::Certificate;
use crate::x509::serial::Serial;

const ROWS_PER_PAGE: usize = 500;

const SELECT_MOUNTS: &str = "SELECT m.id, m.rev_seq, CAST(COALESCE(SUM(c.certificates), 0) AS BIGINT),
        CAST(COALESCE(SUM(c.revocations), 0) AS BIGINT)
    FROM mount m LEFT JOIN counter c ON c.mount = m.id GROUP BY m.id, m.rev_seq ORDER BY m.id";
const SELECT_CERTIFICATES: &str = "SELECT mount, serial, issuer, not_before, not_after, der FROM certificate
    WHERE (mount, serial) > ($1, $2) ORDER BY mount, serial LIMIT $3";
const SELECT_CERTIFICATES_OF_MOUNT: &str = "SELECT serial, issuer, der FROM certificate
    WHERE mount = $1 AND serial > $2 ORDER BY serial LIMIT $3";
const SELECT_REVOCATIONS: &str = "SELECT mount, seq, serial FROM revocation
    WHERE (mount, seq) > ($1, $2) ORDER BY mount, seq LIMIT $3";
const SELECT_CRLS: &str = "SELECT mount, grp, number, covers, this_update, next_update FROM crl ORDER BY mount, grp";

/// Totals of a mount: the stored sequence number and counters, and the numbers and issuers that the scan has found.
#[derive(Default)]
struct MountTotals {
    sequence: i64,
    counted: [i64; 2],
    found: [i64; 2],
    issuers: BTreeSet<String>,
}

/// A mount, and the issuers that the rows of its certificates name.
pub type MountIssuers = (MountId, BTreeSet<String>);

/// A certificate as stored in its row.
pub struct CertificateRecord {
    /// The bytes of the certificate's serial number.
    pub serial: Vec<u8>,
    /// The issuer that the row of the certificate names.
    pub issuer: String,
    /// The certificate in DER.
    pub der: Vec<u8>,
}

/// Reads at most `limit` certificates of a mount with serials above `after`, in ascending order.
pub(super) async fn read_certificates_of_mount(
    store: &dyn ProjectStore,
    mount: MountId,
    after: &[u8],
    limit: usize,
) -> Result<Vec<CertificateRecord>> {
    let values = vec![mount.0.into(), after.to_vec().into(), (limit as i64).into()];
    let rows = scan::query_rows(store, SELECT_CERTIFICATES_OF_MOUNT, values).await?;
    let recorded = |mut row: SqlRow| Ok(CertificateRecord { serial: row.get()?, issuer: row.get()?, der: row.get()? });
    rows.into_iter().map(recorded).collect::<Result<_, SqlError>>().map_err(scan::query_error)
}

/// Checks all rows. Returns the mounts, and for each the issuers that the rows of its certificates name.
pub(super) async fn check_consistency(store: &dyn ProjectStore, findings: &mut Findings) -> Result<Vec<MountIssuers>> {
    let mut totals = BTreeMap::new();
    for mut row in scan::query_rows(store, SELECT_MOUNTS, Vec::new()).await? {
        let (id, totals_of_mount) = read_mount_row(&mut row).map_err(scan::query_error)?;
        totals.insert(id, totals_of_mount);
    }
    check_certificates(store, &mut totals, findings).await?;
    check_revocations(store, &mut totals, findings).await?;
    check_crls(store, &totals, findings).await?;
    for (mount, MountTotals { counted, found, .. }) in &totals {
        for (what, at) in [("certificates", 0), ("revocations", 1)] {
            if counted[at] != found[at] {
                findings
                    .add(format!("counter: mount {mount} counts {} {what}, a scan finds {}", counted[at], found[at]));
            }
        }
    }
    Ok(totals.into_iter().map(|(mount, totals)| (MountId(mount), totals.issuers)).collect())
}

fn read_mount_row(row: &mut SqlRow) -> Result<(i64, MountTotals), SqlError> {
    let id = row.get()?;
    Ok((id, MountTotals { sequence: row.get()?, counted: [row.get()?, row.get()?], ..MountTotals::default() }))
}

/// Checks that each stored certificate can be parsed and matches the columns of its row.
async fn check_certificates(
    store: &dyn ProjectStore,
    totals: &mut BTreeMap<i64, MountTotals>,
    findings: &mut Findings,
) -> Result<()> {
    let mut after: (i64, Vec<u8>) = (-1, Vec::new());
    loop {
        let values = vec![after.0.into(), after.1.clone().into(), (ROWS_PER_PAGE as i64).into()];
        let rows = scan::query_rows(store, SELECT_CERTIFICATES, values).await?;
        let full = rows.len() == ROWS_PER_PAGE;
        for mut row in rows {
            let (mount, serial, issuer, validity, der) = read_certificate_row(&mut row).map_err(scan::query_error)?;
            if let Some(totals) = totals.get_mut(&mount) {
                totals.found[0] += 1;
                totals.issuers.insert(issuer);
            }
            let is_consistent = Certificate::parse(&der).is_ok_and(|parsed| {
                parsed.serial().octets() == serial && (parsed.not_before(), parsed.not_after()) == validity
            });
            after = (mount, serial);
            if !is_consistent {
                let key = [SqlValue::Int(after.0), SqlValue::Bytes(after.1.clone())];
                let key = format_key(&["mount", "serial"], &key);
                findings.add(format!("certificate: {key}: the certificate does not match its row"));
            }
        }
        if !full {
            return Ok(());
        }
    }
}

type CertificateColumns = (i64, Vec<u8>, String, (i64, i64), Vec<u8>);

fn read_certificate_row(row: &mut SqlRow) -> Result<CertificateColumns, SqlError> {
    Ok((row.get()?, row.get()?, row.get()?, (row.get()?, row.get()?), row.get()?))
}

/// Checks that each revocation has a sequence number that its mount has assigned, and a valid serial number.
async fn check_revocations(
    store: &dyn ProjectStore,
    totals: &mut BTreeMap<i64, MountTotals>,
    findings: &mut Findings,
) -> Result<()> {
    let mut after = (-1, -1);
    loop {
        let values = vec![after.0.into(), after.1.into(), (ROWS_PER_PAGE as i64).into()];
        let rows = scan::query_rows(store, SELECT_REVOCATIONS, values).await?;
        let full = rows.len() == ROWS_PER_PAGE;
        for mut row in rows {
            let (mount, sequence, serial) = read_revocation_row(&mut row).map_err(scan::query_error)?;
            after = (mount, sequence);
            let Some(totals) = totals.get_mut(&mount) else { continue };
            totals.found[1] += 1;
            if sequence < 1 || sequence > totals.sequence || Serial::from_octets(&serial).is_err() {
                let last_assigned = totals.sequence;
                findings.add(format!(
                    "revocation: mount {mount}, sequence number {sequence}: the number was never assigned (last: \
                     {last_assigned}), or the serial is invalid"
                ));
            }
        }
        if !full {
            return Ok(());
        }
    }
}

fn read_revocation_row(row: &mut SqlRow) -> Result<(i64, i64, Vec<u8>), SqlError> {
    Ok((row.get()?, row.get()?, row.get()?))
}

/// Checks that no CRL covers sequence numbers that its mount has not assigned, and that no delta CRL is older than its
/// complete CRL.
async fn check_crls(
    store: &dyn ProjectStore,
    totals: &BTreeMap<i64, MountTotals>,
    findings: &mut Findings,
) -> Result<()> {
    let mut complete: BTreeMap<(i64, String), i64> = BTreeMap::new();
    for mut row in scan::query_rows(store, SELECT_CRLS, Vec::new()).await? {
        let crl = read_crl_row(&mut row).map_err(scan::query_error)?;
        let name = format!("crl: mount {}, group {}, number {}", crl.mount, crl.group, crl.number);
        match totals.get(&crl.mount) {
            None => findings.add(format!("{name}: the mount does not exist")),
            Some(totals) if crl.covers > totals.sequence || crl.covers < 0 => {
                findings.add(format!(
                    "{name}: covers revocations up to sequence number {}, but the last one of the mount is {}",
                    crl.covers, totals.sequence
                ));
            }
            Some(_) => {}
        }
        if crl.number < 1 || crl.this_update >= crl.next_update {
            findings.add(format!("{name}: its number is below 1, or nextUpdate is not after thisUpdate"));
        }
        match crl.group.strip_suffix("/delta") {
            None => drop(complete.insert((crl.mount, crl.group), crl.number)),
            Some(group) => match complete.get(&(crl.mount, group.to_owned())) {
                Some(base) if crl.number >= *base => {}
                base => findings.add(format!(
                    "{name}: its complete CRL is missing or has a higher number ({})",
                    base.map_or_else(|| "none".to_owned(), ToString::to_string)
                )),
            },
        }
    }
    Ok(())
}

struct CrlColumns {
    mount: i64,
    group: String,
    number: i64,
    covers: i64,
    this_update: i64,
    next_update: i64,
}

fn read_crl_row(row: &mut SqlRow) -> Result<CrlColumns, SqlError> {
    Ok(CrlColumns {
        mount: row.get()?,
        group: row.get()?,
        number: row.get()?,
        covers: row.get()?,
        this_update: row.get()?,
        next_update: row.get()?,
    })
}
