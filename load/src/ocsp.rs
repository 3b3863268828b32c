//! The scenario `ocsp`: GET and POST, each without a nonce (responses can be cached) and with one (every response is
//! signed), for the certificates of the mount.
//!
//! The four parts run one after the other with the same bounds, so that each has its own CPU time. The cache hit rate
//! comes from the server's metrics.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use crate::client::Client;
use crate::der::{Der, INTEGER, OCTET_STRING, SEQUENCE, encode, next};
use crate::drive::{Class, Figures, Place, drive};
use crate::html::{Page, Run};
use crate::plan::Plan;
use crate::preload::visit;
use crate::proc::Watched;
use crate::report::{Report, Subject};
use crate::run_context::is_interrupted;

/// Maximum number of certificates: their requests are created before the run.
const MAX_CERTIFICATES: usize = 100_000;
/// Bytes of a nonce (RFC 9654).
const NONCE: usize = 32;

const MEDIA_TYPE: &str = "application/ocsp-request";
/// SHA-1 as a complete AlgorithmIdentifier; nearly every client sends it.
const SHA1: &[u8] = &[SEQUENCE, 9, 0x06, 5, 0x2b, 0x0e, 3, 2, 0x1a, 5, 0];
/// id-pkix-ocsp-nonce as a complete OBJECT IDENTIFIER.
const NONCE_ID: &[u8] = &[0x06, 9, 0x2b, 6, 1, 5, 5, 7, 0x30, 1, 2];

/// Results of one part.
pub(crate) struct Part {
    figures: Figures,
    /// Fraction of the requests without a nonce that were served from the cache; `None` without such requests or
    /// without metrics.
    used_again: Option<f64>,
}

/// Certificates for OCSP requests.
pub(crate) struct Asked {
    path: String,
    /// Hashes of the issuer's name and key, DER encoded.
    issuer: Vec<u8>,
    serials: Vec<Vec<u8>>,
}

impl Asked {
    /// Returns up to `max` certificates of the mount.
    pub(crate) async fn find(admin: &Place<'_>, max: usize) -> Result<Self, String> {
        let mut client = admin.connect().await?;
        let issuer = fetched(&mut client, &admin.path("ca")).await?;
        let issuer =
            issuer_hashes(&issuer).ok_or("the mount has no default issuer, or its certificate is unreadable")?;
        let mut serials: Vec<Vec<u8>> = Vec::new();
        visit(&mut client, admin.mount, "certs", |serial| {
            serials.extend(octets(serial));
            serials.len() < max.min(MAX_CERTIFICATES)
        })
        .await?;
        if serials.is_empty() {
            return Err("ocsp: the mount holds no certificates; preload must say how many to issue".to_owned());
        }
        Ok(Self { path: admin.path("ocsp"), issuer, serials })
    }

    /// Returns clients that request the status of one certificate after the other.
    pub(crate) fn class(&self, method: &Method, nonce: bool, clients: usize) -> Class {
        let with = if nonce { "with" } else { "without" };
        let name = format!("{method} {with} a nonce, {} certificates", self.serials.len());
        let ask = |(number, serial): (usize, &Vec<u8>)| {
            let nonce = nonce.then(|| digest(&SHA256, &number.to_le_bytes()));
            let der = request(&self.issuer, serial, nonce.as_ref().map(|n| &n.as_ref()[..NONCE]));
            if method == Method::GET { Bytes::from(in_path(&self.path, &der)) } else { Bytes::from(der) }
        };
        let bodies = self.serials.iter().enumerate().map(ask).collect();
        let media_type = (method == Method::POST).then_some(MEDIA_TYPE);
        let class = Class::post(name, clients, self.path.as_str(), bodies, successful);
        Class { method: method.clone(), media_type, ..class }
    }
}

/// Runs the four parts.
pub(crate) async fn run(plan: &Plan, admin: &Place<'_>, watched: Watched) -> Result<Vec<Part>, String> {
    let asked = Asked::find(admin, MAX_CERTIFICATES).await?;
    let mut client = admin.connect().await?;
    let place = Place { token: "", ..*admin };
    let mut parts = Vec::new();
    for nonce in [false, true] {
        for method in [Method::GET, Method::POST] {
            if is_interrupted() {
                return Ok(parts);
            }
            let class = asked.class(&method, nonce, plan.clients);
            let before = kept(&mut client).await;
            let figures = drive(&place, vec![class], &plan.bounds(), watched).await?;
            let after = kept(&mut client).await;
            let used_again = before.zip(after).and_then(|(before, after)| share(before, after));
            parts.push(Part { figures, used_again });
        }
    }
    Ok(parts)
}

/// `true` if a response, passed as the list of its bytes, is an OCSPResponse with the status `successful`.
fn successful(answer: &Value) -> bool {
    let start: Vec<u64> = answer.as_array().into_iter().flatten().take(7).filter_map(Value::as_u64).collect();
    start.first() == Some(&u64::from(SEQUENCE)) && start.windows(3).any(|three| three == [0x0a, 1, 0])
}

async fn fetched(client: &mut Client, path: &str) -> Result<Bytes, String> {
    let answer = client.send(Method::GET, path, Bytes::new()).await?;
    if answer.status != StatusCode::OK {
        return Err(format!("{path}: {}", answer.status));
    }
    Ok(answer.body)
}

/// Returns the cache hits and misses so far; `None` if the metrics are not accessible at this address.
async fn kept(client: &mut Client) -> Option<(f64, f64)> {
    let page = fetched(client, "/metrics").await.ok()?;
    hits_and_misses(std::str::from_utf8(&page).ok()?)
}

fn hits_and_misses(page: &str) -> Option<(f64, f64)> {
    let of = |result: &str| {
        let series = format!("signet_pki_ocsp_kept_total{{result=\"{result}\"}} ");
        page.lines().find_map(|line| line.strip_prefix(&series)?.parse::<f64>().ok())
    };
    Some((of("hit")?, of("miss")?))
}

fn share((hits, misses): (f64, f64), (hits_after, misses_after): (f64, f64)) -> Option<f64> {
    let (hits, all) = (hits_after - hits, hits_after - hits + misses_after - misses);
    (all > 0.0).then(|| hits / all)
}

// --- Requests (RFC 6960 4.1.1) ---

/// Encodes a request for one certificate; `issuer` holds the DER encoded hashes of the issuer's name and key.
fn request(issuer: &[u8], serial: &[u8], nonce: Option<&[u8]>) -> Vec<u8> {
    let id = encode(SEQUENCE, &[SHA1, issuer, &encode(INTEGER, &[serial])]);
    let list = encode(SEQUENCE, &[&encode(SEQUENCE, &[&id])]);
    let extensions = nonce.map_or_else(Vec::new, |nonce| {
        let octets = encode(OCTET_STRING, &[&encode(OCTET_STRING, &[nonce])]);
        encode(0xa2, &[&encode(SEQUENCE, &[&encode(SEQUENCE, &[NONCE_ID, &octets])])])
    });
    encode(SEQUENCE, &[&encode(SEQUENCE, &[&list, &extensions])])
}

/// Returns the path of a GET: base64 with the reserved characters percent-encoded.
fn in_path(path: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der).replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    format!("{path}/{text}")
}

/// Returns the content of a serial number's INTEGER from its text: hexadecimal, with colons or hyphens.
fn octets(serial: &str) -> Option<Vec<u8>> {
    let octets: Vec<u8> =
        serial.split([':', '-']).map(|two| u8::from_str_radix(two, 16).ok()).collect::<Option<_>>()?;
    let sign = octets.first().is_some_and(|first| first & 0x80 != 0).then_some(0);
    Some(sign.into_iter().chain(octets).collect())
}

/// Returns SHA-1 hashes of an issuer's name and key from its certificate, DER encoded.
fn issuer_hashes(certificate: &[u8]) -> Option<Vec<u8>> {
    let fields = next(next(certificate)?.content)?;
    let all: Vec<Der<'_>> = std::iter::successors(next(fields.content), |field| next(field.after)).collect();
    // version, serialNumber, signature, issuer, validity, subject, subjectPublicKeyInfo
    let [_, _, _, _, _, subject, key, ..] = all[..] else { return None };
    let bits = next(next(key.content)?.after)?.content;
    let hash = |octets: &[u8]| encode(OCTET_STRING, &[digest(&SHA1_FOR_LEGACY_USE_ONLY, octets).as_ref()]);
    Some([hash(subject.whole), hash(bits.get(1..)?)].concat())
}

/// The report of all parts.
pub(crate) struct OcspReport<'a> {
    pub(crate) of: &'a Subject<'a>,
    pub(crate) parts: &'a [Part],
}

impl OcspReport<'_> {
    /// Prints the figures of all parts.
    pub(crate) fn print(&self) {
        for part in self.parts {
            Report { of: self.of, figures: &part.figures }.print();
            if let Some(share) = part.used_again {
                println!("  used again      {:.2} % of the answers", share * 100.0);
            }
        }
    }

    /// Returns the figures of all parts as JSON.
    pub(crate) fn json(&self) -> Value {
        let one = |part: &Part| {
            let mut figures = Report { of: self.of, figures: &part.figures }.json();
            figures["answers_used_again"] = json!(part.used_again);
            figures
        };
        json!({ "scenario": "ocsp", "parts": self.parts.iter().map(one).collect::<Vec<_>>() })
    }

    /// Returns the report as a page with charts.
    pub(crate) fn page(&self) -> Page<'_> {
        let title = |part: &Part| part.figures.classes.first().map_or_else(String::new, |class| class.name.clone());
        let runs = self.parts.iter().map(|part| Run { title: title(part), figures: &part.figures }).collect();
        self.of.page("ocsp", runs, 2)
    }

    /// Returns the error of the first part that failed.
    pub(crate) fn outcome(&self) -> Result<(), String> {
        outcome(self.parts)
    }
}

fn outcome(parts: &[Part]) -> Result<(), String> {
    parts.iter().try_for_each(|part| part.figures.outcome())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::Answered;
    use crate::histogram::Histogram;

    /// The expected bytes are those of `openssl ocsp -no_nonce -reqout` for these hashes and this serial number.
    #[test]
    fn a_request_is_what_others_write() {
        let issuer = [encode(OCTET_STRING, &[&[1; 20]]), encode(OCTET_STRING, &[&[2; 20]])].concat();
        let serial = octets("f0:01").unwrap();
        let der = request(&issuer, &serial, None);
        let hashes = [&[4, 20][..], &[1; 20], &[4, 20], &[2; 20]].concat();
        let id = [SHA1, &hashes, &[2, 3, 0, 0xf0, 1]].concat();
        assert_eq!(der, [&[0x30, 68, 0x30, 66, 0x30, 64, 0x30, 62, 0x30, 60][..], &id].concat());
        let with_nonce = request(&issuer, &serial, Some(&[7; NONCE]));
        assert_eq!(with_nonce.len(), der.len() + 53);
        assert!(with_nonce.ends_with(&[&[4, 34, 4, 32][..], &[7; NONCE]].concat()));
        assert_eq!(octets("7f:00:ff"), Some(vec![0x7f, 0, 0xff]));
        assert_eq!(octets("7f-00-ff"), octets("7f:00:ff"));
        assert_eq!(octets("no"), None);
    }

    #[test]
    fn an_issuer_is_known_by_its_name_and_its_key() {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, "Root");
        let certificate = params.self_signed(&key).unwrap();
        let name =
            encode(SEQUENCE, &[&encode(0x31, &[&encode(SEQUENCE, &[&[6, 3, 0x55, 4, 3], &encode(0x0c, &[b"Root"])])])]);
        let sha1 = |octets: &[u8]| encode(OCTET_STRING, &[digest(&SHA1_FOR_LEGACY_USE_ONLY, octets).as_ref()]);
        let expected = [sha1(&name), sha1(key.public_key_raw())].concat();
        assert_eq!(issuer_hashes(certificate.der()), Some(expected));
        for cut in 0..40 {
            assert_eq!(issuer_hashes(&certificate.der()[..cut]), None);
        }
    }

    #[test]
    fn part_without_responses_fails_the_run() {
        let part = |answered: u64| {
            let mut latencies = Histogram::default();
            (0..answered).for_each(|_| latencies.record(1));
            let class = Answered { latencies, ..Answered::default() };
            Part { figures: Figures { classes: vec![class], ..Figures::default() }, used_again: None }
        };
        assert_eq!(outcome(&[part(1), part(1)]), Ok(()));
        assert_eq!(outcome(&[part(1), part(0)]), Err("some requests failed".to_owned()));
    }

    #[test]
    fn only_successful_answers_pass() {
        for (octets, passes) in [
            (&[0x30, 0x81, 0xd0, 0x0a, 1, 0, 0xa0][..], true),
            (&[0x30, 0x82, 1, 0xd0, 0x0a, 1, 0, 0xa0], true),
            (&[0x30, 3, 0x0a, 1, 6], false),
            (b"{}", false),
        ] {
            assert_eq!(successful(&json!(octets)), passes, "{octets:x?}");
        }
        assert!(!successful(&json!({})));
    }

    #[test]
    fn cache_hit_ratio_is_that_of_the_run() {
        let page = "# HELP x y\nsignet_pki_ocsp_kept_total{result=\"hit\"} 40\nsignet_pki_ocsp_kept_total{result=\"miss\"} 60\n";
        assert_eq!(hits_and_misses(page), Some((40.0, 60.0)));
        assert_eq!(hits_and_misses("else"), None);
        assert_eq!(share((40.0, 60.0), (70.0, 70.0)), Some(0.75));
        assert_eq!(share((40.0, 60.0), (40.0, 60.0)), None, "requests with nonces use no cached response");
    }

    #[test]
    fn base64_in_a_path_has_nothing_that_means_something_there() {
        assert_eq!(in_path("/v1/pki/ocsp", &[0xfb, 0xff, 0xbe, 1]), "/v1/pki/ocsp/%2B%2F%2B%2BAQ%3D%3D");
    }
}
