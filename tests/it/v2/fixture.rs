//! Test data: an installation with the owner `olga` of the organization `acme`, and helpers to add more.
//!
//! People, teams and grants that a test only needs are inserted directly as rows; the subject of a test uses the API.

use futures_util::FutureExt as _;
use reqwest::Method;
use serde_json::{Value, json};
use signet::projects::rejection::WorkResult;
use signet::projects::rights::{OrganizationRights, ProjectRights};
use signet::projects::store::SERVER_CALLER;
use signet::projects::{SessionAccess, Tx, id, organization, token, user};

use crate::support::{Answer, App, send};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    Embedded,
    Postgres,
}

/// Defines a test on each store for each function `async fn name(world: World)`.
macro_rules! on_both_stores {
    ($($name:ident),* $(,)?) => {
        mod embedded {
            $(#[actix_web::test] async fn $name() {
                super::$name($crate::v2::fixture::World::start($crate::v2::fixture::Store::Embedded).await).await;
            })*
        }
        mod postgres {
            $(#[actix_web::test] async fn $name() {
                super::$name($crate::v2::fixture::World::start($crate::v2::fixture::Store::Postgres).await).await;
            })*
        }
    };
}
pub(crate) use on_both_stores;

pub struct World {
    pub app: App,
    pub owner: Api,
}

impl World {
    pub async fn start(store: Store) -> Self {
        Self::of(match store {
            Store::Embedded => App::builder(),
            Store::Postgres => App::builder().postgres(),
        })
        .await
    }

    pub async fn of(builder: crate::support::Builder) -> Self {
        let app = builder.start().await;
        let token = run(&app, |mut tx| {
            async move {
                let token = token::generate();
                user::bootstrap(&mut tx, "olga", "olga@acme.test", &token).await?;
                let mut row = tx.one("SELECT id FROM users", &[]).await?;
                organization::create(&mut tx, row.get()?, "acme", "olga@acme.test", "{}").await?;
                Ok(text(&token.text))
            }
            .boxed_local()
        })
        .await;
        let owner = Api::new(&app, &token);
        Self { app, owner }
    }

    /// Adds a member of `acme` in a team of their own with these organization rights.
    pub async fn member(&self, name: &'static str, rights: OrganizationRights) -> Person {
        self.person(name, Some(rights)).await
    }

    pub async fn outsider(&self, name: &'static str) -> Person {
        self.person(name, None).await
    }

    async fn person(&self, name: &'static str, rights: Option<OrganizationRights>) -> Person {
        let (token, team) = run(&self.app, move |mut tx| {
            async move {
                let user = user::create(&mut tx, name, &format!("{name}@acme.test")).await?;
                let drawn = token::generate();
                user::store_token(&mut tx, user, None, &drawn, None).await?;
                let token = text(&drawn.text);
                let Some(rights) = rights else { return Ok((token, String::new())) };
                let org: i64 = tx.one("SELECT id FROM organizations WHERE name_lc = 'acme'", &[]).await?.get()?;
                let member = "INSERT INTO organization_memberships (ext_id, org_id, user_id, status, created_at)
                    VALUES ($1, $2, $3, 'active', $4)";
                tx.execute(member, &[id::new("ou").into(), org.into(), user.into(), tx.now.into()]).await?;
                let team = "INSERT INTO teams (ext_id, org_id, name, name_lc, org_access, user_count)
                    VALUES ($1, $2, $3, $4, $5, 1) RETURNING id, ext_id";
                let name = format!("team-{name}");
                let values =
                    [id::new("team").into(), org.into(), name[..].into(), name[..].into(), rights.bits().into()];
                let mut made = tx.one(team, &values).await?;
                let (team, ext_id): (i64, String) = (made.get()?, made.get()?);
                let joins = "INSERT INTO team_memberships (team_id, user_id) VALUES ($1, $2)";
                tx.execute(joins, &[team.into(), user.into()]).await?;
                Ok((token, ext_id))
            }
            .boxed_local()
        })
        .await;
        Person { api: Api::new(&self.app, &token), team }
    }

    /// Grants a team rights on a project, both by external id, like custom access.
    pub async fn grant(&self, team: &str, project: &str, rights: ProjectRights) {
        let team = team.to_owned();
        let project = project.to_owned();
        run(&self.app, move |mut tx| {
            let team = team.clone();
            let project = project.clone();
            async move {
                let grant = "INSERT INTO team_project_access (ext_id, team_id, project_id, access, perm_bits)
                    SELECT $1, t.id, p.id, $2, $3 FROM teams t, projects p WHERE t.ext_id = $4 AND p.ext_id = $5";
                let access = if rights == ProjectRights::ALL { "admin" } else { "read" };
                let values =
                    [id::new("tprj").into(), access.into(), rights.bits().into(), team.into(), project[..].into()];
                tx.execute(grant, &values).await?;
                let count = "UPDATE projects SET team_count = team_count + 1 WHERE ext_id = $1";
                tx.execute(count, &[project.into()]).await?;
                Ok(())
            }
            .boxed_local()
        })
        .await;
    }

    pub async fn token_of(&self, username: &'static str) -> String {
        self.run(move |mut tx| {
            async move {
                let user = tx.one("SELECT id FROM users WHERE username_lc = $1", &[username.into()]).await?.get()?;
                let drawn = token::generate();
                user::store_token(&mut tx, user, None, &drawn, None).await?;
                Ok(text(&drawn.text))
            }
            .boxed_local()
        })
        .await
    }

    pub async fn project(&self, name: &str) -> String {
        let made = self.owner.post("organizations/acme/projects", resource("projects", json!({ "name": name }))).await;
        assert_eq!(made.status, 201, "{}", made.text);
        made.body["data"]["id"].as_str().unwrap().to_owned()
    }

    pub async fn run<T: Send + 'static>(
        &self,
        work: impl for<'t> Fn(Tx<'t>) -> futures_util::future::LocalBoxFuture<'t, WorkResult<T>> + Send + Sync + 'static,
    ) -> T {
        run(&self.app, work).await
    }
}

async fn run<T: Send + 'static>(
    app: &App,
    work: impl for<'t> Fn(Tx<'t>) -> futures_util::future::LocalBoxFuture<'t, WorkResult<T>> + Send + Sync + 'static,
) -> T {
    app.shared().projects.run("test", SessionAccess::Write(SERVER_CALLER), work).await.unwrap()
}

fn text(token: &signet::secret::Secret) -> String {
    String::from_utf8(token.expose().to_vec()).unwrap()
}

/// A client with the user's token, and the external id of the user's own team.
pub struct Person {
    pub api: Api,
    pub team: String,
}

#[derive(Clone)]
pub struct Api {
    http: reqwest::Client,
    base: String,
    pub token: String,
}

impl Api {
    pub fn new(app: &App, token: &str) -> Self {
        let base = app.client.url("").replace("/v1/", "/api/v2/");
        Self { http: crate::support::http_client(), base, token: token.to_owned() }
    }

    pub fn with_token(&self, token: &str) -> Self {
        Self { token: token.to_owned(), ..self.clone() }
    }

    pub fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.base));
        if self.token.is_empty() { request } else { request.bearer_auth(&self.token) }
    }

    pub async fn get(&self, path: &str) -> Answer {
        send(self.request(Method::GET, path)).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        send(self.request(Method::DELETE, path)).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.send_text(Method::POST, path, body.to_string()).await
    }

    pub async fn patch(&self, path: &str, body: Value) -> Answer {
        self.send_text(Method::PATCH, path, body.to_string()).await
    }

    pub async fn send_text(&self, method: Method, path: &str, body: String) -> Answer {
        send(self.request(method, path).header("Content-Type", "application/vnd.api+json").body(body)).await
    }
}

pub fn resource(kind: &str, attributes: Value) -> Value {
    json!({ "data": { "type": kind, "attributes": attributes } })
}

pub fn attribute<'a>(answer: &'a Answer, name: &str) -> &'a Value {
    &answer.body["data"]["attributes"][name]
}

/// Asserts a status and, for each error, its source and the start of its detail.
#[track_caller]
pub fn assert_refused(answer: &Answer, status: u16, faults: &[(&str, &str)]) {
    assert_eq!(answer.status, status, "{}", answer.text);
    let errors = answer.body["errors"].as_array().unwrap();
    assert_eq!(errors.len(), faults.len(), "{}", answer.text);
    for (error, (place, detail)) in errors.iter().zip(faults) {
        assert_eq!(error["status"], status.to_string());
        let source = &error["source"];
        let given = source["pointer"].as_str().or_else(|| source["parameter"].as_str()).unwrap_or_default();
        assert_eq!(given, *place, "{}", answer.text);
        assert!(error["detail"].as_str().unwrap().starts_with(detail), "{}", answer.text);
    }
}
