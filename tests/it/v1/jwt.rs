//! The login method `jwt`, with an issuer on the loopback.

mod cache;
mod config;
mod keys;
mod machines;
mod roles;
mod tokens;

use serde_json::{Value, json};

use crate::directory::Issuer;
use crate::support::{Answer, App, Builder, with};

pub struct Bed {
    pub app: App,
    pub issuer: Issuer,
}

impl Bed {
    /// Configured for the issuer, with a role `ci` for the audience `signet`; the user claim is `sub`.
    pub async fn start() -> Self {
        Self::of(App::builder()).await
    }

    pub async fn of(builder: Builder) -> Self {
        let bed = Self::bare(builder).await;
        bed.configure(json!({"oidc_discovery_url": bed.issuer.url})).await;
        bed.role("ci", json!({"bound_audiences": "signet", "token_policies": "web"})).await;
        bed
    }

    pub async fn bare(builder: Builder) -> Self {
        let app = builder.start().await;
        app.client.enable("sys/auth/jwt", "jwt").await;
        Self { app, issuer: Issuer::start() }
    }

    pub async fn configure(&self, config: Value) {
        self.app.client.post("auth/jwt/config", config).await.assert_status(204);
    }

    /// Writes a role with the user claim `sub`.
    pub async fn role(&self, name: &str, mut fields: Value) {
        fields["user_claim"] = json!("sub");
        fields["role_type"] = json!("jwt");
        self.app.client.post(&format!("auth/jwt/role/{name}"), fields).await.assert_status(204);
    }

    pub async fn log_in(&self, role: &str, jwt: &str) -> Answer {
        self.app.client.with_token("").post("auth/jwt/login", json!({"role": role, "jwt": jwt})).await
    }

    /// An issuer's token for `signet`.
    pub fn token(&self) -> String {
        self.issuer.token(json!({"aud": "signet"}))
    }

    /// Logs in with the role `ci` and an issuer's token for `signet`; `more` overrides claims.
    pub async fn with_claims(&self, more: Value) -> Answer {
        self.log_in("ci", &self.issuer.token(with(json!({"aud": "signet"}), more))).await
    }

    /// Asserts that a token is rejected for this reason.
    pub async fn refuses(&self, role: &str, jwt: &str, reason: &str) {
        self.log_in(role, jwt).await.assert_error(403, reason);
    }

    pub async fn stop(self) {
        self.app.stop().await;
    }
}

/// Asserts that a login succeeded, and returns its `auth`.
pub fn auth(answer: &Answer) -> &Value {
    assert_eq!(answer.status, 200, "{}", answer.text);
    &answer.body["auth"]
}

#[actix_web::test]
async fn alias_names_may_contain_joiners_but_no_control_characters() {
    let bed = Bed::start().await;
    for name in ["Ali\u{200c}Reza", "soft\u{ad}hyphen", "a\u{a0}b", "\u{1f468}\u{200d}\u{1f469}"] {
        auth(&bed.with_claims(json!({ "sub": name })).await);
    }
    for name in ["a\u{202e}b", "a\u{2066}b", "a\u{7}b", "a\nb"] {
        bed.with_claims(json!({ "sub": name })).await.assert_error_has(400, "no control or bidirectional characters");
    }
    // An operator may create such an alias in advance.
    let entity = bed.app.client.post("identity/entity", json!({ "name": "ali" })).await;
    let accessor = bed.app.client.get("sys/auth").await.body["data"]["jwt/"]["accessor"].clone();
    let alias = json!({ "name": "Ali\u{200c}", "canonical_id": entity.body["data"]["id"], "mount_accessor": accessor });
    bed.app.client.post("identity/entity-alias", alias).await.assert_status(200);
    bed.app.stop().await;
}
