//! The CRL of a mount, and the server's counter of CRL builds.

use std::collections::HashSet;

use x509_parser::parse_x509_crl;

use crate::client::Client;

/// Returns the number of CRLs that the server has built since its start.
pub(crate) async fn builds(client: &mut Client) -> Result<u64, String> {
    const DONE: &str = "signet_pki_crl_builds_total{result=\"done\"} ";
    let page = client.get("/metrics").await?;
    let text = String::from_utf8_lossy(&page);
    let count = text.lines().find_map(|line| line.strip_prefix(DONE)?.trim().parse::<f64>().ok());
    count.map(|count| count as u64).ok_or_else(|| "the server's metrics do not count builds of CRLs".to_owned())
}

/// Returns the serial numbers on a CRL in the format of the API.
pub(crate) fn serials(der: &[u8]) -> Result<HashSet<String>, String> {
    let (_, list) = parse_x509_crl(der).map_err(|_| "the CRL cannot be read".to_owned())?;
    let serial = |octets: &[u8]| {
        let octets = if octets.len() > 1 { octets.strip_prefix(&[0]).unwrap_or(octets) } else { octets };
        octets.iter().map(|octet| format!("{octet:02x}")).collect::<Vec<_>>().join(":")
    };
    Ok(list.iter_revoked_certificates().map(|entry| serial(entry.raw_serial())).collect())
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, CertificateRevocationListParams, IsCa, Issuer, KeyIdMethod, KeyPair,
        KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
    };

    use super::*;

    fn list(serials: &[&[u8]]) -> Vec<u8> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::CrlSign];
        let issuer = Issuer::new(params, KeyPair::generate().unwrap());
        let entry = |octets: &&[u8]| RevokedCertParams {
            serial_number: SerialNumber::from_slice(octets),
            revocation_time: date_time_ymd(2026, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2026, 1, 1),
            next_update: date_time_ymd(2026, 2, 1),
            crl_number: SerialNumber::from(7),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(entry).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&issuer).unwrap().der().to_vec()
    }

    #[test]
    fn crl_serials_are_read() {
        let many: Vec<[u8; 3]> = (0..300_u16).map(|n| [1, (n >> 8) as u8, n as u8]).collect();
        let many: Vec<&[u8]> = many.iter().map(|serial| &serial[..]).collect();
        let found = serials(&list(&[&[&[0x80, 1][..]], &many[..]].concat())).unwrap();
        assert_eq!(found.len(), 301);
        assert!(found.contains("80:01") && found.contains("01:01:2b"));
        let der = list(&[&[5]]);
        assert!(serials(&der[..der.len() - 1]).is_err());
    }
}
