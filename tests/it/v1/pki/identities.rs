//! Templates in the lists of a role, filled in with the caller's identity.

use serde_json::{Value, json};

use super::foreign;
use super::mount::{Pki, with};
use crate::support::{Answer, Client};
use crate::v1::identity::{entity_id, login, method};
use crate::v1::rights::granted;

/// A mount, and a login method whose callers request certificates by role `r`.
struct Bed {
    pki: Pki,
    accessor: String,
}

impl Bed {
    async fn start() -> Self {
        let pki = Pki::start().await;
        pki.app.policy("issuer", &granted("pki/+/r", &["update"])).await;
        let accessor = method(&pki.app, "one").await;
        Self { pki, accessor }
    }

    /// Logs in a caller with this alias and entity, who may issue.
    async fn somebody(&self, alias: &str, entity: Value, metadata: Value) -> Client {
        let app = &self.pki.app;
        let client = login(app, "one", alias, metadata).await;
        let id = entity_id(&client).await;
        let body = with(&json!({ "policies": "issuer" }), entity);
        let changed = app.client.post(&format!("identity/entity/id/{id}"), body).await;
        assert_eq!(changed.status, 204, "{}", changed.text);
        client
    }

    async fn role(&self, role: Value) {
        self.pki.role(&with(&json!({ "allow_localhost": false }), role)).await;
    }
}

fn assert_ok(answer: &Answer) {
    assert_eq!(answer.status, 200, "{}", answer.text);
}

fn assert_not_allowed(answer: &Answer) {
    assert!(answer.status == 400 && answer.error().contains("not allowed by this role"), "{}", answer.text);
}

#[actix_web::test]
async fn domain_template_uses_the_entity_name_of_the_caller() {
    let bed = Bed::start().await;
    let bob = bed.somebody("b", json!({ "name": "bob" }), json!({})).await;
    bed.role(json!({ "allowed_domains": "{{identity.entity.name}}.x.com", "allowed_domains_template": true,
        "allow_bare_domains": true }))
        .await;
    let issue = async |name: &str| bob.post("pki/issue/r", json!({ "common_name": name })).await;
    assert_ok(&issue("bob.x.com").await);
    for name in ["al.x.com", "a.bob.x.com", "x.com", "{{identity.entity.name}}.x.com"] {
        let refused = issue(name).await;
        assert_eq!(refused.status, 400, "{name}: {}", refused.text);
    }
    assert_not_allowed(&bob.post("pki/sign/r", json!({ "csr": foreign::csr("ec-256", "/CN=al.x.com", "") })).await);
    assert_ok(&bob.post("pki/sign/r", json!({ "csr": foreign::csr("ec-256", "/CN=bob.x.com", "") })).await);
    // A rename takes effect immediately.
    let id = entity_id(&bob).await;
    bed.pki.app.client.post(&format!("identity/entity/id/{id}"), json!({ "name": "al" })).await;
    assert_ok(&issue("al.x.com").await);
    assert_not_allowed(&issue("bob.x.com").await);
    // The template matches nothing for a caller without an entity.
    bed.role(json!({ "allowed_domains": "{{identity.entity.name}}.x.com", "allowed_domains_template": true,
        "allow_bare_domains": true, "allow_subdomains": true, "allow_glob_domains": true }))
        .await;
    for name in ["bob.x.com", "x.com", ".x.com", "{{identity.entity.name}}.x.com"] {
        let refused = bed.pki.app.client.post("pki/issue/r", json!({ "common_name": name })).await;
        assert_eq!(refused.status, 400, "{name}: {}", refused.text);
    }
    bed.pki.stop().await;
}

#[actix_web::test]
async fn star_in_an_identity_value_is_not_a_pattern() {
    let bed = Bed::start().await;
    bed.role(json!({ "allowed_domains": "{{identity.entity.metadata.d}}.x.com,plain.com",
        "allowed_domains_template": true, "allow_glob_domains": true, "allow_bare_domains": true,
        "allow_subdomains": true, "enforce_hostnames": false }))
        .await;
    for (at, value) in ["*", "a*", "+", "a/b", "a,*", "{{identity.entity.name}}"].into_iter().enumerate() {
        let client = bed.somebody(&format!("b{at}"), json!({ "metadata": { "d": value } }), json!({})).await;
        let issue = async |name: &str| client.post("pki/issue/r", json!({ "common_name": name })).await;
        for name in ["anything.x.com", "a.x.com", "*.x.com", "ab.x.com", "x.com", ".x.com"] {
            let refused = issue(name).await;
            assert_eq!(refused.status, 400, "{value} {name}: {}", refused.text);
        }
        assert_ok(&issue("a.plain.com").await);
    }
    let globs = json!({ "allow_globs_in_identity_templates": true });
    bed.pki.refused("roles/s", globs, "allow_globs_in_identity_templates: must be false").await;
    bed.pki.stop().await;
}

#[actix_web::test]
async fn uri_template_uses_the_alias_name_of_the_caller() {
    let bed = Bed::start().await;
    let pattern = format!("spiffe://x.com/{{{{identity.entity.aliases.{}.name}}}}/*", bed.accessor);
    bed.role(json!({ "allowed_uri_sans": pattern, "allowed_uri_sans_template": true, "allow_any_name": true })).await;
    let bob = bed.somebody("bob", json!({}), json!({ "k": "v" })).await;
    let issue = async |client: &Client, uri: &str| {
        client.post("pki/issue/r", json!({ "common_name": "a.test", "uri_sans": uri })).await
    };
    assert_ok(&issue(&bob, "spiffe://x.com/bob/web").await);
    for foreign in ["spiffe://x.com/al/web", "spiffe://x.com/bob", "spiffe://x.com/*/web"] {
        assert_not_allowed(&issue(&bob, foreign).await);
    }
    for name in ["*", "a/b", "b*"] {
        let client = bed.somebody(name, json!({}), json!({})).await;
        for uri in ["spiffe://x.com/bob/web", "spiffe://x.com/a/b/web", "spiffe://x.com/*/web"] {
            assert_eq!(issue(&client, uri).await.status, 400, "{name} {uri}");
        }
    }
    assert_eq!(issue(&bed.pki.app.client, "spiffe://x.com/bob/web").await.status, 400, "nobody's alias");
    bed.pki.stop().await;
}

#[actix_web::test]
async fn role_with_unknown_template_variable_is_rejected() {
    let bed = Bed::start().await;
    for (field, list, entry, rule) in [
        ("allowed_domains_template", "allowed_domains", "{{identity.entity.nme}}.x.com", "unknown template"),
        ("allowed_domains_template", "allowed_domains", "{{identity.entity.name", "\"{{\" has no closing"),
        ("allowed_uri_sans_template", "allowed_uri_sans", "spiffe://{{x}}/y", "unknown template"),
    ] {
        bed.pki.refused("roles/s", json!({ field: true, list: entry }), &format!("{list}: {rule}")).await;
        // Without the template flag it is plain text.
        bed.pki.post("roles/s", json!({ field: false, list: entry })).await;
    }
    bed.pki.stop().await;
}
