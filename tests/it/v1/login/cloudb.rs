//! The login method `cloudb`, with a provider on the loopback.

mod clients;
mod config;
mod faults;
mod life;
mod resources;
mod roles;
mod rotation;
mod scale_sets;
mod tokens;

use std::time::Duration;

use serde_json::{Value, json};
use signet::clock::Clock;

use crate::provider::{CLIENT, Provider, RESOURCE, S1, SECRET, TENANT};
use crate::support::{Answer, App, Builder, with};

pub struct World {
    pub app: App,
    pub provider: Provider,
}

pub fn config() -> Value {
    json!({"tenant_id": TENANT, "resource": RESOURCE, "client_id": CLIENT, "client_secret": SECRET,
        "retry_delay": "10ms", "max_retry_delay": "200ms"})
}

impl World {
    pub async fn start() -> Self {
        Self::built(|builder| builder).await
    }

    /// Like [`World::start`], with a changed server.
    pub async fn built(change: impl FnOnce(Builder) -> Builder) -> Self {
        let provider = Provider::start();
        let app = change(App::builder().cloudb(provider.settings())).start().await;
        let world = Self { app, provider };
        world.enable("cloudb").await;
        world
    }

    /// Like [`World::built`], with a manual clock a minute ahead: tokens start at real time, so they are valid whenever
    /// they are created.
    pub async fn still(change: impl FnOnce(Builder) -> Builder) -> Self {
        let clock = Clock::system().now() + Duration::from_secs(60);
        Self::built(|builder| change(builder.manual_clock(clock))).await
    }

    pub async fn enable(&self, path: &str) {
        self.app.client.enable(&format!("sys/auth/{path}"), "cloudb").await;
        self.app.client.post(&format!("auth/{path}/config"), config()).await.assert_status(204);
    }

    pub async fn configure(&self, config: Value) {
        self.app.client.post("auth/cloudb/config", config).await.assert_status(204);
    }

    pub async fn role(&self, role: Value) {
        let answer = self.app.client.post("auth/cloudb/role/r", role).await;
        assert!(matches!(answer.status, 200 | 204), "{}", answer.text);
    }

    pub async fn machine(&self) -> String {
        self.role(json!({"bound_subscription_ids": S1, "bound_resource_groups": "rg1", "policies": "p"})).await;
        self.provider.machine("rg1", "web", "o1", "westus")
    }

    pub async fn login(&self, body: Value) -> Answer {
        self.app.client.with_token("").post("auth/cloudb/login", body).await
    }

    pub async fn with(&self, claims: Value) -> Answer {
        self.login(json!({"role": "r", "jwt": self.provider.mint(claims)})).await
    }

    /// Logs in with role `r` from the first subscription and group `rg1`; `place` overrides members.
    pub async fn at(&self, claims: Value, place: Value) -> Answer {
        let body = json!({"role": "r", "jwt": self.provider.mint(claims), "subscription_id": S1,
            "resource_group_name": "rg1"});
        self.login(with(body, place)).await
    }

    /// Logs in as the machine `web` with this identifier.
    pub async fn as_machine(&self, id: &str) -> Answer {
        self.at(json!({ "xms_mirid": id }), json!({"vm_name": "web"})).await
    }

    pub async fn stop(self) {
        self.app.stop().await;
    }
}
