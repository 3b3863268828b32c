//! Start and end of certificates, to the second, on a manual clock.
//!
//! `issue` and `sign` have the same rules, so both are tested ([`Dates::gives`], [`Dates::refuses`]).

use std::time::Duration;

use serde_json::{Value, json};
use signet::clock::{Clock, Time, format_rfc3339};
use signet::x509::certificate::Certificate;

use super::foreign::{Ca, csr, openssl_text};
use super::mount::{Pki, with};
use crate::support::App;

/// 2030-06-01T12:00:00Z. The clock starts a fraction of a second later, which must not reach a certificate.
const NOW: i64 = 1_906_545_600;
const HOUR: i64 = 3600;
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
async fn ttl_defaults_and_limits_of_role_and_mount() {
    let dates = Dates::start().await;
    let quiet = |start, end| (start, end, String::new());
    assert_eq!(dates.gives(&json!({ "ttl": 0, "max_ttl": 0 }), json!({})).await, quiet(-30, 768 * HOUR));
    let role = json!({ "ttl": "4h", "max_ttl": "8h" });
    assert_eq!(dates.gives(&role, json!({ "ttl": "5h" })).await, quiet(-30, 5 * HOUR));
    assert_eq!(dates.gives(&role, json!({ "ttl": "8h" })).await, quiet(-30, 8 * HOUR));
    dates.refuses(&role, json!({ "ttl": "12h" }), "ttl: 12h is above the role's max_ttl, 8h").await;
    dates.refuses(&role, json!({ "ttl": 8 * HOUR + 1 }), "ttl: ").await;
    assert_eq!(dates.gives(&role, json!({})).await, quiet(-30, 4 * HOUR));
    assert_eq!(dates.gives(&role, json!({ "ttl": "" })).await, quiet(-30, 4 * HOUR));
    dates.refuses(&json!({}), json!({ "ttl": "769h" }), "ttl: 769h is above the mount's max_lease_ttl, 768h").await;
    dates.pki.refused("roles/r", json!({ "ttl": "8h", "max_ttl": "4h" }), "ttl must not exceed max_ttl").await;
    dates.pki.stop().await;
}

#[actix_web::test]
async fn not_after_sets_the_end_by_date() {
    let dates = Dates::start().await;
    let endless = json!({ "not_after": ENDLESS });
    let (start, end, _) = dates.gives(&json!({}), endless.clone()).await;
    assert_eq!((start, NOW + end), (-30, 253_402_300_799));
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
    dates.refuses(&json!({ "max_ttl": "8h" }), endless, "not_after: lies beyond the role's max_ttl, 8h").await;
    for text in ["9999-12-31T23:59:59", "2031-02-30T00:00:00Z", "tomorrow", "10000-01-01T00:00:00Z"] {
        dates.refuses(&json!({}), json!({ "not_after": text }), "not_after: not an RFC 3339 time with zone").await;
    }
    let both = json!({ "ttl": "1h", "not_after": at(HOUR) });
    dates.refuses(&json!({}), both, "give either ttl or not_after").await;
    dates.pki.stop().await;
}

#[actix_web::test]
async fn not_after_bound_limits_the_end() {
    let dates = Dates::start().await;
    let bound = |word: &str| json!({ "not_after_bound": word });
    let until = |seconds: i64| json!({ "not_after": at(seconds) });
    dates.refuses(&bound("forbid"), until(HOUR), "not_after: the role forbids it").await;
    dates.refuses(&bound(&at(2 * HOUR)), until(3 * HOUR), "not_after_bound").await;
    dates.refuses(&bound(&at(2 * HOUR)), until(2 * HOUR + 1), "not_after_bound").await;
    for seconds in [HOUR, 2 * HOUR] {
        assert_eq!(dates.gives(&bound(&at(2 * HOUR)), until(seconds)).await.1, seconds);
    }
    let limited = json!({ "not_after_bound": "ttl-limited", "ttl": "1h" });
    dates.refuses(&limited, until(2 * HOUR), "ttl-limited").await;
    assert_eq!(dates.gives(&limited, until(HOUR)).await.1, HOUR);
    let fixed = json!({ "not_after": at(100 * HOUR) });
    assert_eq!(dates.gives(&fixed, json!({})).await.1, 100 * HOUR);
    let (_, end, warnings) = dates.gives(&fixed, until(HOUR)).await;
    assert_eq!(end, 100 * HOUR);
    assert!(warnings.contains("not_after ignored"), "{warnings}");
    dates.refuses(&fixed, json!({ "ttl": "1h" }), "give either ttl or not_after").await;
    dates.pki.stop().await;
}

#[actix_web::test]
async fn not_before_and_its_bound_set_the_start() {
    let dates = Dates::start().await;
    let from = |seconds: i64| json!({ "not_before": at(seconds) });
    dates.refuses(&json!({ "not_before_bound": "forbid" }), from(0), "not_before: the role forbids it").await;
    let bound = json!({ "not_before_bound": "duration", "not_before_duration": "1h" });
    dates.refuses(&bound, from(-3 * HOUR), "not_before_duration").await;
    dates.refuses(&bound, from(-HOUR - 1), "not_before_duration").await;
    // An earlier start does not change the end.
    for seconds in [-HOUR / 2, -HOUR, 10] {
        assert_eq!(dates.gives(&bound, from(seconds)).await, (seconds, 768 * HOUR, String::new()));
    }
    assert_eq!(dates.gives(&json!({ "not_before_duration": "2h" }), json!({})).await.0, -2 * HOUR);
    assert_eq!(dates.gives(&json!({ "not_before_duration": 0 }), json!({})).await.0, -30);
    // A start without a bound: in the request for `issue` and `sign`, and in the role.
    assert_eq!(dates.gives(&json!({}), from(-HOUR)).await.0, -HOUR);
    let fixed = json!({ "not_before": at(-5 * HOUR) });
    assert_eq!(dates.gives(&fixed, json!({})).await.0, -5 * HOUR);
    assert_eq!(dates.gives(&fixed, from(-HOUR)).await.0, -5 * HOUR);
    let reversed = json!({ "not_before": at(2 * HOUR), "not_after": at(HOUR) });
    dates.refuses(&json!({}), reversed, "not_before: must be before not_after").await;
    let empty = json!({ "not_before": at(HOUR), "not_after": at(HOUR) });
    dates.refuses(&json!({}), empty, "not_before: must be before not_after").await;
    dates.refuses(&json!({}), json!({ "not_before": "yesterday" }), "not_before: ").await;
    dates.pki.stop().await;
}

#[actix_web::test]
async fn new_role_with_not_before_older_than_its_issuer_is_rejected() {
    let pki = Pki { app: App::builder().manual_clock(time(NOW)).start().await };
    let client = &pki.app.client;
    let old = json!({ "allow_any_name": true, "not_before": at(-5 * HOUR) });
    assert_eq!(
        client.post("pki/roles/first", old.clone()).await.status,
        200,
        "without an issuer there is nothing older"
    );
    pki.root(json!({ "common_name": "Root", "key_type": "ec", "ttl": "100h" })).await;
    let refused = client.post("pki/roles/second", old.clone()).await;
    assert_eq!(refused.status, 400, "{}", refused.text);
    assert!(refused.error().contains("is before the issuer's not_before"), "{}", refused.text);
    assert_eq!(client.get("pki/roles/second").await.status, 404);
    // An existing role gets a warning and still works.
    let warned = client.post("pki/roles/first", old).await;
    assert_eq!(warned.status, 200, "{}", warned.text);
    assert!(warned.body["warnings"].to_string().contains("is before the issuer's not_before"), "{}", warned.text);
    assert_eq!(client.post("pki/issue/first", json!({ "common_name": "a.test", "ttl": "1h" })).await.status, 200);
    let young = json!({ "allow_any_name": true, "not_before": at(HOUR) });
    assert_eq!(client.post("pki/roles/third", young).await.status, 200);
    pki.stop().await;
}

#[actix_web::test]
async fn root_validity_follows_the_request() {
    let dates = Dates::start().await;
    let root = async |request: Value| {
        let data = dates.pki.root(request).await;
        relative(&super::mount::parse(data["certificate"].as_str().unwrap()))
    };
    assert_eq!(root(json!({ "not_before": at(-HOUR), "ttl": "10h" })).await, (-HOUR, 10 * HOUR));
    assert_eq!(root(json!({ "not_before_duration": "2h", "ttl": "10h" })).await, (-2 * HOUR, 10 * HOUR));
    assert_eq!(root(json!({ "ttl": "" })).await, (-30, 87_600 * HOUR));
    assert_eq!(root(json!({ "not_after": at(20 * HOUR) })).await, (-30, 20 * HOUR));
    for (request, rule) in [
        (json!({ "ttl": "1h", "not_after": at(HOUR) }), "give either ttl or not_after"),
        (json!({ "not_after": at(-HOUR) }), "not_after: lies in the past"),
        (json!({ "not_before": at(HOUR), "not_after": at(HOUR) }), "not_before: must be before not_after"),
    ] {
        let body = with(&request, json!({ "common_name": "Root", "key_type": "ec" }));
        dates.pki.refused("root/generate/internal", body, rule).await;
    }
    dates.pki.stop().await;
}

#[actix_web::test]
async fn leaf_end_follows_the_issuer_behavior() {
    let dates = Dates::start().await;
    let role = |issuer: &str| json!({ "issuer_ref": issuer });
    for (name, behaviour) in [("e", "err"), ("a", "always_enforce_err"), ("p", "permit"), ("t", "truncate")] {
        dates.ending(name, 10, behaviour).await;
        let short = dates.gives(&role(name), json!({ "ttl": "1s" })).await;
        assert_eq!(short, (-30, 1, String::new()), "{behaviour}");
        assert_eq!(dates.gives(&role(name), json!({ "ttl": "10s" })).await.1, 10, "{behaviour}");
        let past = json!({ "not_after": at(-HOUR) });
        dates.refuses(&role(name), past, "not_after: lies in the past").await;
    }
    for name in ["e", "a"] {
        dates.refuses(&role(name), json!({}), "is beyond the expiration of the CA certificate").await;
        dates.refuses(&role(name), json!({ "ttl": "11s" }), "is beyond the expiration of the CA certificate").await;
    }
    let (_, end, warnings) = dates.gives(&role("p"), json!({})).await;
    assert_eq!(end, 768 * HOUR);
    assert!(warnings.contains("is beyond the expiration"), "{warnings}");
    let (_, end, warnings) = dates.gives(&role("t"), json!({})).await;
    assert_eq!(end, 10);
    assert!(warnings.contains("truncated"), "{warnings}");
    let leaf = dates.pki.ask("issuer/t/issue/r", json!({ "common_name": "localhost", "not_after": ENDLESS })).await;
    assert_eq!(relative(&leaf.certificate).1, 10);
    dates.pki.stop().await;
}

#[actix_web::test]
async fn expired_issuer_issues_nothing() {
    let dates = Dates::start().await;
    let behaviours = ["err", "always_enforce_err", "truncate", "permit"];
    for behaviour in behaviours {
        dates.ending(behaviour, 10, behaviour).await;
    }
    dates.clock.set(time(NOW + 10));
    for behaviour in behaviours {
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
    assert_eq!(relative(&super::mount::parse(root["certificate"].as_str().unwrap())), (-30, years));
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
    let twice = json!({ "ttl": "1h", "not_after": at(HOUR) });
    refuses("root", twice, "give either ttl or not_after").await;
    refuses("root", json!({ "not_after": "9999-12-31T23:59:59" }), "not_after: not an RFC 3339 time").await;
    assert_eq!(gives("root", json!({ "not_after": ENDLESS })).await.1, 253_402_300_799 - NOW);
    // An expired issuer signs nothing, not even another CA's certificate.
    let theirs = super::foreign::Ca::root("/CN=Other").pem;
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
    let leaf = json!({ "common_name": "a.test" });
    let csr = csr("ec-256", "/CN=a.test", "");
    let requests = [
        ("issue/r", leaf.clone()),
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
                assert!(answer.error().starts_with("clock: this node's is too far"), "{path}: {}", answer.text);
            }
        }
    }
    pki.stop().await;
}
