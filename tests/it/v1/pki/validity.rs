//! Start and end of certificates, to the second, on a manual clock.
//!
//! `issue` and `sign` have the same rules, so both are tested ([`Dates::gives`], [`Dates::refuses`]).

use std::time::Duration;

use serde_json::{Value, json};
use signet::clock::{Clock, Time, format_rfc3339};
use signet::x509::certificate::Certificate;

use super::foreign::{Ca, csr, openssl_text};
use super::mount::{Pki, parse, with};
use crate::support::App;

/// 2030-06-01T12:00:00Z. The clock starts a fraction of a second later, which must not reach a certificate.
const NOW: i64 = 1_906_545_600;
const HOUR: i64 = 3600;
/// The default lifetime of a mount.
const MONTH: i64 = 768 * HOUR;
const ENDLESS: &str = "9999-12-31T23:59:59Z";

fn time(seconds: i64) -> Time {
    Time::from_unix_timestamp(seconds).unwrap()
}

/// Returns RFC 3339 text of the time `seconds` after [`NOW`].
fn at(seconds: i64) -> String {
    format_rfc3339(time(NOW + seconds))
}

/// A mount on a manual clock, and an external CSR.
struct Dates {
    pki: Pki,
    clock: Clock,
    csr: String,
}

impl Dates {
    /// Starts a mount whose default issuer never expires.
    async fn start() -> Self {
        let app = App::builder().manual_clock(time(NOW) + Duration::from_millis(700)).start().await;
        let clock = app.clock.clone();
        let pki = Pki { app };
        pki.root(json!({ "issuer_name": "root", "not_after": ENDLESS })).await;
        Self { pki, clock, csr: csr("ec-256", "/CN=localhost", "") }
    }

    fn requests(&self, request: &Value) -> [(&'static str, Value); 2] {
        [
            ("issue/r", with(request, json!({ "common_name": "localhost" }))),
            ("sign/r", with(request, json!({ "csr": self.csr }))),
        ]
    }

    /// Returns start and end relative to [`NOW`], and the warnings; `issue` and `sign` must agree.
    async fn gives(&self, role: &Value, request: Value) -> (i64, i64, String) {
        self.pki.role(role).await;
        let mut results = Vec::new();
        for (path, request) in self.requests(&request) {
            let leaf = self.pki.ask(path, request).await;
            let (start, end) = relative(&leaf.certificate);
            results.push((start, end, leaf.answer.warnings()));
        }
        assert_eq!(results[0], results[1], "{role} {request}");
        results.remove(0)
    }

    /// Asserts that `issue` and `sign` reject the request with `rule`.
    async fn refuses(&self, role: &Value, request: Value, rule: &str) {
        self.pki.role(role).await;
        for (path, request) in self.requests(&request) {
            self.pki.refused(path, request, rule).await;
        }
    }

    /// Creates a root that expires `seconds` after [`NOW`].
    async fn ending(&self, name: &str, seconds: i64, behaviour: &str) {
        let root = json!({ "issuer_name": name, "common_name": name, "not_after": at(seconds) });
        self.pki.root(root).await;
        let settings = json!({ "issuer_name": name, "leaf_not_after_behavior": behaviour });
        self.pki.post(&format!("issuer/{name}"), settings).await;
    }
}

fn relative(certificate: &Certificate) -> (i64, i64) {
    (certificate.not_before() - NOW, certificate.not_after() - NOW)
}

#[actix_web::test]
async fn dates_of_role_and_request_apply_to_issue_and_sign() {
    let dates = Dates::start().await;
    let none = json!({});
    let lifetimes = json!({ "ttl": "4h", "max_ttl": "8h" });
    let fixed = json!({ "not_after": at(100 * HOUR) });
    let until = json!({ "not_after_bound": at(2 * HOUR) });
    let limited = json!({ "not_after_bound": "ttl-limited", "ttl": "1h" });
    let duration = json!({ "not_before_bound": "duration", "not_before_duration": "1h" });
    let backdated = json!({ "not_before": at(-5 * HOUR) });
    // An earlier start does not change the end.
    for (role, request, start, end, warning) in [
        (&none, json!({}), -30, MONTH, ""),
        (&lifetimes, json!({ "ttl": "" }), -30, 4 * HOUR, ""),
        (&lifetimes, json!({ "ttl": "8h" }), -30, 8 * HOUR, ""),
        (&until, json!({ "not_after": at(2 * HOUR) }), -30, 2 * HOUR, ""),
        (&limited, json!({ "not_after": at(HOUR) }), -30, HOUR, ""),
        (&fixed, json!({}), -30, 100 * HOUR, ""),
        (&fixed, json!({ "not_after": at(HOUR) }), -30, 100 * HOUR, "not_after ignored"),
        (&none, json!({ "not_before": at(-HOUR) }), -HOUR, MONTH, ""),
        (&duration, json!({ "not_before": at(-HOUR) }), -HOUR, MONTH, ""),
        (&duration, json!({ "not_before": at(10) }), 10, MONTH, ""),
        (&backdated, json!({}), -5 * HOUR, MONTH, ""),
        (&backdated, json!({ "not_before": at(-HOUR) }), -5 * HOUR, MONTH, "not_before ignored"),
        (&json!({ "not_before_duration": "2h" }), json!({}), -2 * HOUR, MONTH, ""),
        (&json!({ "not_before_duration": 0 }), json!({}), -30, MONTH, ""),
    ] {
        let (from, to, warnings) = dates.gives(role, request.clone()).await;
        assert_eq!((from, to, warnings.is_empty()), (start, end, warning.is_empty()), "{role} {request}: {warnings}");
        assert!(warnings.contains(warning), "{role} {request}: {warnings}");
    }
    for (role, request, rule) in [
        (&lifetimes, json!({ "ttl": 8 * HOUR + 1 }), "is above the role's max_ttl, 8h"),
        (&lifetimes, json!({ "not_after": ENDLESS }), "not_after: lies beyond the role's max_ttl, 8h"),
        (&none, json!({ "not_after": "2031-02-30T00:00:00Z" }), "not_after: not an RFC 3339 time with zone"),
        (&none, json!({ "not_before": "yesterday" }), "not_before: "),
        (&none, json!({ "ttl": "1h", "not_after": at(HOUR) }), "give either ttl or not_after"),
        (&fixed, json!({ "ttl": "1h" }), "give either ttl or not_after"),
        (&json!({ "not_after_bound": "forbid" }), json!({ "not_after": at(HOUR) }), "not_after: the role forbids it"),
        (&until, json!({ "not_after": at(2 * HOUR + 1) }), "not_after_bound"),
        (&limited, json!({ "not_after": at(2 * HOUR) }), "ttl-limited"),
        (&json!({ "not_before_bound": "forbid" }), json!({ "not_before": at(0) }), "not_before: the role forbids it"),
        (&duration, json!({ "not_before": at(-HOUR - 1) }), "not_before_duration"),
        (&none, json!({ "not_before": at(HOUR), "not_after": at(HOUR) }), "not_before: must be before not_after"),
    ] {
        dates.refuses(role, request, rule).await;
    }
    dates.pki.stop().await;
}

#[actix_web::test]
async fn not_after_is_encoded_by_its_year() {
    let dates = Dates::start().await;
    for (not_after, printed) in [
        (ENDLESS, "GENERALIZEDTIME :99991231235959Z"),
        ("2049-12-31T23:59:59Z", "UTCTIME :491231235959Z"),
        ("2050-01-01T00:00:00Z", "GENERALIZEDTIME :20500101000000Z"),
        ("2050-01-01T01:00:00+01:00", "GENERALIZEDTIME :20500101000000Z"),
        ("2050-01-01T00:00:00.999Z", "GENERALIZEDTIME :20500101000000Z"),
    ] {
        let leaf = dates.pki.issue(&json!({}), json!({ "common_name": "localhost", "not_after": not_after })).await;
        let text = openssl_text(&["asn1parse"], leaf.pem.as_bytes()).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(printed), "{not_after}: {text}");
    }
    dates.pki.stop().await;
}

#[actix_web::test]
async fn new_role_with_not_before_older_than_its_issuer_is_rejected() {
    let pki = Pki { app: App::builder().manual_clock(time(NOW)).start().await };
    let old = json!({ "allow_any_name": true, "not_before": at(-5 * HOUR) });
    // Without an issuer there is nothing older.
    pki.post("roles/first", old.clone()).await;
    pki.root(json!({ "common_name": "Root", "key_type": "ec", "ttl": "100h" })).await;
    let rule = "is before the issuer's not_before";
    pki.refused("roles/second", old.clone(), rule).await;
    // An existing role gets a warning and still works.
    assert!(pki.post("roles/first", old).await.warnings().contains(rule));
    pki.post("issue/first", json!({ "common_name": "a.test", "ttl": "1h" })).await;
    pki.post("roles/third", json!({ "allow_any_name": true, "not_before": at(HOUR) })).await;
    pki.stop().await;
}

#[actix_web::test]
async fn root_validity_follows_the_request() {
    let dates = Dates::start().await;
    for (request, expected) in [
        (json!({ "not_before": at(-HOUR), "ttl": "10h" }), (-HOUR, 10 * HOUR)),
        (json!({ "not_before_duration": "2h", "ttl": "10h" }), (-2 * HOUR, 10 * HOUR)),
        (json!({ "ttl": "" }), (-30, 87_600 * HOUR)),
        (json!({ "not_after": at(20 * HOUR) }), (-30, 20 * HOUR)),
    ] {
        let root = dates.pki.root(request.clone()).await;
        assert_eq!(relative(&parse(root["certificate"].as_str().unwrap())), expected, "{request}");
    }
    let past = json!({ "common_name": "Root", "key_type": "ec", "not_after": at(-HOUR) });
    dates.pki.refused("root/generate/internal", past, "not_after: lies in the past").await;
    dates.pki.stop().await;
}

#[actix_web::test]
async fn leaf_end_follows_the_behavior_and_expiry_of_the_issuer() {
    let dates = Dates::start().await;
    let beyond = "is beyond the expiration of the CA certificate";
    // The end of a leaf that would outlive the issuer; none if it is rejected.
    let behaviours = [("err", None), ("always_enforce_err", None), ("permit", Some(MONTH)), ("truncate", Some(10))];
    for (behaviour, end) in behaviours {
        dates.ending(behaviour, 10, behaviour).await;
        let role = json!({ "issuer_ref": behaviour });
        for seconds in [1, 10] {
            let given = dates.gives(&role, json!({ "ttl": seconds })).await;
            assert_eq!(given, (-30, seconds, String::new()), "{behaviour}");
        }
        dates.refuses(&role, json!({ "not_after": at(-HOUR) }), "not_after: lies in the past").await;
        let Some(end) = end else {
            dates.refuses(&role, json!({}), beyond).await;
            dates.refuses(&role, json!({ "ttl": "11s" }), beyond).await;
            continue;
        };
        let (_, given, warnings) = dates.gives(&role, json!({})).await;
        assert_eq!(given, end, "{behaviour}");
        assert!(warnings.contains(if end == 10 { "truncated" } else { "is beyond the expiration" }), "{warnings}");
    }
    let leaf =
        dates.pki.ask("issuer/truncate/issue/r", json!({ "common_name": "localhost", "not_after": ENDLESS })).await;
    assert_eq!(relative(&leaf.certificate).1, 10);
    dates.clock.set(time(NOW + 10));
    for (behaviour, _) in behaviours {
        dates.refuses(&json!({ "issuer_ref": behaviour }), json!({ "ttl": "1s" }), "expired").await;
    }
    // The issuer that has not expired still issues.
    assert_eq!(dates.gives(&json!({}), json!({ "ttl": "1s" })).await.1, 11);
    dates.pki.stop().await;
}

#[actix_web::test]
async fn default_lifetimes_of_ca_and_leaf_are_consistent() {
    let dates = Dates::start().await;
    let root = dates.pki.root(json!({ "common_name": "Young", "issuer_name": "young", "ttl": "" })).await;
    let years = 87_600 * HOUR;
    assert_eq!(relative(&parse(root["certificate"].as_str().unwrap())), (-30, years));
    let later = 700 * 24 * HOUR;
    dates.clock.set(time(NOW + later));
    let leaf = dates.gives(&json!({ "issuer_ref": "young" }), json!({})).await;
    assert_eq!(leaf, (later - 30, later + 768 * HOUR, String::new()));
    let [_, (path, request)] = unruled(&dates.csr, "young", &json!({}));
    let intermediate = dates.pki.certify(&path, request).await;
    assert_eq!(relative(&intermediate.certificate).1, years);
    let said = intermediate.answer.warnings();
    assert!(said.contains("the default for CAs applies (87600h)") && said.contains("truncated"), "{said}");
    dates.pki.stop().await;
}

/// Returns requests for the endpoints without role rules, by issuer path.
fn unruled(csr: &str, issuer: &str, request: &Value) -> [(String, Value); 2] {
    let verbatim = with(request, json!({ "csr": csr }));
    let intermediate = with(&verbatim, json!({ "common_name": "localhost" }));
    [(format!("issuer/{issuer}/sign-verbatim"), verbatim), (format!("issuer/{issuer}/sign-intermediate"), intermediate)]
}

#[actix_web::test]
async fn sign_verbatim_and_sign_intermediate_follow_the_same_limits() {
    let dates = Dates::start().await;
    let gives = async |issuer: &str, request: Value| {
        let mut results = Vec::new();
        for (path, request) in unruled(&dates.csr, issuer, &request) {
            let leaf = dates.pki.certify(&path, request).await;
            let (start, end) = relative(&leaf.certificate);
            results.push((start, end, leaf.answer.warnings().contains("truncated")));
        }
        assert_eq!(results[0], results[1], "{issuer} {request}");
        results[0]
    };
    let refuses = async |issuer: &str, request: Value, rule: &str| {
        for (path, request) in unruled(&dates.csr, issuer, &request) {
            dates.pki.refused(&path, request, rule).await;
        }
    };
    let behaviours = ["err", "always_enforce_err", "truncate", "permit"];
    for behaviour in behaviours {
        dates.ending(behaviour, 10, behaviour).await;
        refuses(behaviour, json!({ "not_after": at(-HOUR) }), "not_after: lies in the past").await;
        assert_eq!(gives(behaviour, json!({ "ttl": "1s" })).await, (-30, 1, false), "{behaviour}");
    }
    // Both truncate by default. With the flag the issuer's setting applies; `always_enforce_err` applies always.
    let flag = |set: bool| json!({ "enforce_leaf_not_after_behavior": set });
    let beyond = "is beyond the expiration of the CA certificate";
    for behaviour in ["err", "truncate", "permit"] {
        assert_eq!(gives(behaviour, json!({})).await, (-30, 10, true), "{behaviour}");
        assert_eq!(gives(behaviour, flag(false)).await, (-30, 10, true), "{behaviour}");
    }
    refuses("always_enforce_err", json!({}), beyond).await;
    refuses("always_enforce_err", flag(true), beyond).await;
    refuses("err", flag(true), beyond).await;
    assert_eq!(gives("truncate", flag(true)).await, (-30, 10, true));
    let beyond_it = json!({ "enforce_leaf_not_after_behavior": true, "ttl": "768h" });
    assert_eq!(gives("permit", beyond_it).await, (-30, 768 * HOUR, false));
    // The start is the requested one, and does not change the end.
    assert_eq!(gives("root", json!({ "not_before": at(-HOUR), "ttl": "768h" })).await, (-HOUR, 768 * HOUR, false));
    let both = json!({ "not_before": at(2 * HOUR), "not_after": at(HOUR) });
    refuses("root", both, "not_before: must be before not_after").await;
    refuses("root", json!({ "ttl": "1h", "not_after": at(HOUR) }), "give either ttl or not_after").await;
    assert_eq!(gives("root", json!({ "not_after": ENDLESS })).await.1, 253_402_300_799 - NOW);
    // An expired issuer signs nothing, not even another CA's certificate.
    let theirs = Ca::root("/CN=Other").pem;
    dates.clock.set(time(NOW + 10));
    for behaviour in behaviours {
        refuses(behaviour, json!({ "ttl": "1s" }), "expired").await;
        let path = format!("issuer/{behaviour}/sign-self-issued");
        dates.pki.refused(&path, json!({ "certificate": theirs }), "expired").await;
    }
    assert_eq!(gives("root", json!({ "ttl": "1s" })).await.1, 11);
    dates.pki.stop().await;
}

#[actix_web::test]
async fn clock_far_from_its_reference_signs_nothing() {
    let pki = Pki::start().await;
    pki.role(&json!({ "allow_any_name": true, "key_type": "ec" })).await;
    let csr = csr("ec-256", "/CN=a.test", "");
    let requests = [
        ("issue/r", json!({ "common_name": "a.test" })),
        ("sign/r", json!({ "csr": csr })),
        ("sign-verbatim", json!({ "csr": csr })),
        ("root/sign-intermediate", json!({ "csr": csr, "common_name": "Below" })),
        ("root/sign-self-issued", json!({ "certificate": Ca::root("/CN=Other").pem })),
        ("root/generate/internal", json!({ "common_name": "Second", "key_type": "ec" })),
    ];
    let clock = &pki.app.clock;
    let limit = Duration::from_secs(60);
    let now = clock.now();
    for (is_far, status) in [(true, 503), (false, 200)] {
        let ahead = if is_far { 2 * limit } else { Duration::ZERO };
        clock.set_reference(now, now - (now - ahead), limit);
        for (path, request) in &requests {
            let answer = pki.app.client.post(&format!("pki/{path}"), request.clone()).await;
            assert_eq!(answer.status, status, "{path}: {}", answer.text);
            if is_far {
                assert!(
                    answer.error().starts_with("clock: this node's clock differs too much"),
                    "{path}: {}",
                    answer.text
                );
            }
        }
    }
    pki.stop().await;
}
