//! Test data: an installation with the owner `olga` of the organization `acme`, and helpers to add more.
//!
//! People, teams and grants that a test only needs are inserted directly as rows; the subject of a test uses the API.

use futures_util::FutureExt as _;
use reqwest::Method;
use serde_json::{Value, json};
use signet::projects::rejection::WorkResult;
use signet::projects::rights::{OrganizationFlag as Flag, OrganizationRights, ProjectRights};
use signet::projects::store::SERVER_CALLER;
use signet::projects::{SessionAccess, Tx, id, organization, token, user};
use signet::sql::FromColumn;

use crate::support::{Answer, App, Builder, send};

pub const NONE: OrganizationRights = OrganizationRights::NONE;

pub const ACME: &str = "organizations/acme";
pub const PROJECTS: &str = "organizations/acme/projects";
pub const WORKSPACES: &str = "organizations/acme/workspaces";
pub const TEAMS: &str = "organizations/acme/teams";
pub const PEOPLE: &str = "organizations/acme/organization-memberships";
pub const POOLS: &str = "organizations/acme/agent-pools";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    Embedded,
    Postgres,
}

impl Store {
    pub fn builder(self) -> Builder {
        match self {
            Self::Embedded => App::builder(),
            Self::Postgres => App::builder().postgres(),
        }
    }
}

/// Defines a test on each store for each function `async fn name(world: &World)`.
macro_rules! on_both_stores {
    ($($name:ident),+ $(,)?) => {
        $crate::support::tests_on!(embedded: World::start($crate::v2::fixture::Store::Embedded) => $($name),+);
        $crate::support::tests_on!(postgres: World::start($crate::v2::fixture::Store::Postgres) => $($name),+);
    };
}
pub(crate) use on_both_stores;

/// Defines a test on each store for each function `async fn name(builder: Builder)`.
macro_rules! with_both_builders {
    ($($name:ident),+ $(,)?) => {
        mod built_on_embedded {
            $(#[actix_web::test] async fn $name() {
                super::$name($crate::v2::fixture::Store::Embedded.builder()).await;
            })+
        }
        mod built_on_postgres {
            $(#[actix_web::test] async fn $name() {
                super::$name($crate::v2::fixture::Store::Postgres.builder()).await;
            })+
        }
    };
}
pub(crate) use with_both_builders;

pub struct World {
    pub app: App,
    pub owner: Api,
}

impl World {
    pub async fn start(store: Store) -> Self {
        Self::of(store.builder()).await
    }

    pub async fn of(builder: Builder) -> Self {
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

    pub async fn stop(self) {
        self.app.stop().await;
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

    /// Adds members `person-<number>` of `acme`, who are in no team.
    pub async fn people(&self, numbers: std::ops::Range<i64>) {
        self.run(move |mut tx| {
            let numbers = numbers.clone();
            async move {
                for n in numbers {
                    let name = format!("person-{n}");
                    let user = user::create(&mut tx, &name, &format!("{name}@acme.test")).await?;
                    let member = "INSERT INTO organization_memberships (ext_id, org_id, user_id, status, created_at)
                        SELECT $1, id, $2, 'active', $3 FROM organizations WHERE name_lc = 'acme'";
                    tx.execute(member, &[id::new("ou").into(), user.into(), tx.now.into()]).await?;
                }
                Ok(())
            }
            .boxed_local()
        })
        .await;
    }

    /// Adds the users whose names match a pattern of SQL to a team.
    pub async fn join(&self, team: &str, users: &str) {
        let added = self
            .execute(format!(
                "INSERT INTO team_memberships (team_id, user_id) SELECT t.id, u.id FROM teams t, users u
                 WHERE t.ext_id = '{team}' AND u.username_lc LIKE '{users}' AND NOT EXISTS
                 (SELECT 1 FROM team_memberships m WHERE m.team_id = t.id AND m.user_id = u.id)"
            ))
            .await;
        self.execute(format!("UPDATE teams SET user_count = user_count + {added} WHERE ext_id = '{team}'")).await;
    }

    /// Grants a team rights on a project, both by external id, like custom access.
    pub async fn grant(&self, team: &str, project: &str, rights: ProjectRights) {
        let access = if rights == ProjectRights::ALL { "admin" } else { "read" };
        let id = id::new("tprj");
        let bits = rights.bits();
        self.execute(format!(
            "INSERT INTO team_project_access (ext_id, team_id, project_id, access, perm_bits)
             SELECT '{id}', t.id, p.id, '{access}', {bits} FROM teams t, projects p
             WHERE t.ext_id = '{team}' AND p.ext_id = '{project}'"
        ))
        .await;
        self.execute(format!("UPDATE projects SET team_count = team_count + 1 WHERE ext_id = '{project}'")).await;
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
        self.owner.create(PROJECTS, resource("projects", json!({ "name": name }))).await
    }

    pub async fn default_project(&self) -> String {
        let shown = self.owner.get("organizations/acme?include=default-project").await;
        link(&shown, "default-project").as_str().unwrap().to_owned()
    }

    /// Inserts projects `prj-many-<number>`, `Many <text>`, whose order by name differs from their order of creation.
    pub async fn many_projects(&self, numbers: std::ops::Range<i64>) {
        let std::ops::Range { start, end } = numbers;
        self.execute(format!(
            "INSERT INTO projects (ext_id, org_id, name, name_lc, created_at)
             WITH RECURSIVE n (i, k) AS (SELECT {start}, 100000 + {start} * 7919 % 100003 UNION ALL
                 SELECT i + 1, 100000 + (i + 1) * 7919 % 100003 FROM n WHERE i + 1 < {end})
             SELECT 'prj-many-' || i, o.id, 'Many ' || k, 'many ' || k, o.created_at + 1
             FROM n, organizations o WHERE o.name_lc = 'acme'"
        ))
        .await;
        let count = end - start;
        let counted = "UPDATE organizations SET project_count = project_count";
        self.execute(format!("{counted} + {count} WHERE name_lc = 'acme'")).await;
    }

    /// Grants a team rights on those of [`World::many_projects`] that match a condition on `p`.
    pub async fn grant_many(&self, team: &str, rights: ProjectRights, condition: &str) {
        let condition = format!("p.ext_id LIKE 'prj-many-%' AND {condition}");
        let bits = rights.bits();
        self.execute(format!(
            "INSERT INTO team_project_access (ext_id, team_id, project_id, access, perm_bits)
             SELECT t.ext_id || p.ext_id, t.id, p.id, 'custom', {bits} FROM projects p, teams t
             WHERE t.ext_id = '{team}' AND {condition}"
        ))
        .await;
        self.execute(format!("UPDATE projects AS p SET team_count = team_count + 1 WHERE {condition}")).await;
    }

    /// Inserts workspaces `ws-<number>`, named `many-<number>`, into a project.
    pub async fn many_workspaces(&self, project: &str, count: i64) {
        self.execute(format!(
            "INSERT INTO workspaces (ext_id, org_id, project_id, name, name_lc, created_at, updated_at)
             WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {count})
             SELECT 'ws-' || i, p.org_id, p.id, 'many-' || i, 'many-' || i, p.created_at, p.created_at
             FROM n, projects p WHERE p.ext_id = '{project}'"
        ))
        .await;
        let counted = format!("workspace_count = workspace_count + {count}");
        self.execute(format!("UPDATE projects SET {counted} WHERE ext_id = '{project}'")).await;
    }

    /// Creates a workspace in a project, or in the default project for an empty id.
    pub async fn workspace(&self, project: &str, name: &str) -> String {
        self.owner.create(WORKSPACES, in_project(project, json!({ "name": name }))).await
    }

    pub async fn team(&self, name: &str) -> String {
        self.owner.create(TEAMS, resource("teams", json!({ "name": name }))).await
    }

    /// Executes a statement, and returns the number of changed rows.
    pub async fn execute(&self, sql: impl Into<String>) -> u64 {
        let sql = sql.into();
        self.run(move |mut tx| {
            let sql = sql.clone();
            async move { tx.execute(&sql, &[]).await }.boxed_local()
        })
        .await
    }

    /// The value that a query yields.
    pub async fn value<T: FromColumn + Send + 'static>(&self, sql: impl Into<String>) -> T {
        let sql = sql.into();
        self.run(move |mut tx| {
            let sql = sql.clone();
            async move { Ok(tx.one(&sql, &[]).await?.get()?) }.boxed_local()
        })
        .await
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

    /// Sends attributes to the path of a list, such as `organizations/acme/teams`.
    pub async fn add(&self, list: &str, attributes: Value) -> Answer {
        self.post(list, resource(list.rsplit('/').next().unwrap(), attributes)).await
    }

    /// Sends attributes to the path of a resource, such as `teams/team-1`.
    pub async fn change(&self, path: &str, attributes: Value) -> Answer {
        self.patch(path, resource(path.split('/').next().unwrap(), attributes)).await
    }

    /// Creates a resource, and returns its id.
    pub async fn create(&self, path: &str, body: Value) -> String {
        id_of(&self.post(path, body).await.assert_status(201))
    }

    /// Creates the token of an owner, such as `teams/team-1`, and returns a client with it.
    pub async fn token_for(&self, owner: &str) -> Self {
        self.with_token_at(&format!("{owner}/authentication-token")).await
    }

    /// Creates a token at a path, and returns a client with it.
    pub async fn with_token_at(&self, path: &str) -> Self {
        let made = self.post(path, no_attributes()).await.assert_status(201);
        self.with_token(attribute(&made, "token").as_str().unwrap())
    }

    /// Sends an action on a workspace like known clients: with a content type and without a body.
    pub async fn act(&self, workspace: &str, action: &str) -> Answer {
        self.send_text(Method::POST, &format!("workspaces/{workspace}/actions/{action}"), String::new()).await
    }

    pub async fn delete_with(&self, path: &str, body: Value) -> Answer {
        self.send_text(Method::DELETE, path, body.to_string()).await
    }

    /// Sends a request with `If-Match`; without a body if it is null.
    pub async fn send_if(&self, condition: &str, method: Method, path: &str, body: Value) -> Answer {
        let request = self.request(method, path).header("If-Match", condition);
        let typed = |request: reqwest::RequestBuilder| request.header("Content-Type", "application/vnd.api+json");
        send(if body.is_null() { request } else { typed(request).body(body.to_string()) }).await
    }

    pub async fn send_text(&self, method: Method, path: &str, body: String) -> Answer {
        send(self.request(method, path).header("Content-Type", "application/vnd.api+json").body(body)).await
    }
}

pub fn resource(kind: &str, attributes: Value) -> Value {
    json!({ "data": { "type": kind, "attributes": attributes } })
}

/// The body of a request without attributes, as known clients send it.
pub fn no_attributes() -> Value {
    json!({ "data": { "type": "" } })
}

/// A resource with to-one relationships: pairs of a name, whose plural is the type, and an id.
pub fn linked(kind: &str, attributes: Value, links: &[(&str, &str)]) -> Value {
    let mut body = resource(kind, attributes);
    for (name, id) in links {
        body["data"]["relationships"][*name] = json!({ "data": { "type": format!("{name}s"), "id": id } });
    }
    body
}

/// A workspace in a project; in none for an empty id.
pub fn in_project(project: &str, attributes: Value) -> Value {
    if project.is_empty() {
        resource("workspaces", attributes)
    } else {
        linked("workspaces", attributes, &[("project", project)])
    }
}

pub fn team_access(team: &str, project: &str, attributes: Value) -> Value {
    linked("team-projects", attributes, &[("team", team), ("project", project)])
}

pub fn workspace_access(team: &str, workspace: &str, attributes: Value) -> Value {
    linked("team-workspaces", attributes, &[("team", team), ("workspace", workspace)])
}

/// A resource with one relationship to a list.
pub fn related(kind: &str, attributes: Value, name: &str, list: Value) -> Value {
    let mut body = resource(kind, attributes);
    body["data"]["relationships"][name] = list;
    body
}

/// A list of resource identifiers.
pub fn these(kind: &str, ids: &[impl AsRef<str>]) -> Value {
    json!({ "data": ids.iter().map(|id| json!({ "type": kind, "id": id.as_ref() })).collect::<Vec<_>>() })
}

/// A list of tag bindings.
pub fn tags(pairs: &[(&str, &str)]) -> Value {
    let tag =
        |(key, value): &(&str, &str)| json!({ "type": "tag-bindings", "attributes": { "key": key, "value": value } });
    json!({ "data": pairs.iter().map(tag).collect::<Vec<_>>() })
}

/// A list of flat tags.
pub fn flat_tags(names: &[impl AsRef<str>]) -> Value {
    let tag = |name: &str| json!({ "type": "tags", "attributes": { "name": name } });
    json!({ "data": names.iter().map(|name| tag(name.as_ref())).collect::<Vec<_>>() })
}

/// The rights of these flags.
pub fn rights(flags: &[&str]) -> OrganizationRights {
    let named = Flag::ALL.into_iter().filter(|flag| flags.contains(&flag.name()));
    named.fold(NONE, |rights, flag| rights.with(flag, true))
}

pub fn id_of(answer: &Answer) -> String {
    answer.body["data"]["id"].as_str().unwrap_or_else(|| panic!("{}", answer.text)).to_owned()
}

/// The path of a resource, such as `teams/team-1`.
pub fn path_of(answer: &Answer) -> String {
    format!("{}/{}", answer.body["data"]["type"].as_str().unwrap(), id_of(answer))
}

/// The items of a list.
pub fn items(list: &Answer) -> &Vec<Value> {
    list.body["data"].as_array().unwrap_or_else(|| panic!("{}", list.text))
}

pub fn ids(list: &Answer) -> Vec<String> {
    items(list).iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
}

pub fn names(list: &Answer) -> Vec<String> {
    items(list).iter().map(|item| item["attributes"]["name"].as_str().unwrap().to_owned()).collect()
}

/// The tags of a list, such as `env=dev team=`.
pub fn pairs(list: &Answer) -> String {
    let text = |tag: &Value, name: &str| tag["attributes"][name].as_str().unwrap().to_owned();
    let pairs = items(list).iter().map(|tag| format!("{}={}", text(tag, "key"), text(tag, "value")));
    pairs.collect::<Vec<_>>().join(" ")
}

/// The number of items of all pages.
pub fn total(list: &Answer) -> &Value {
    &list.body["meta"]["pagination"]["total-count"]
}

pub fn statuses(answers: &[Answer]) -> Vec<u16> {
    let mut statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
    statuses.sort_unstable();
    statuses
}

pub fn attribute<'a>(answer: &'a Answer, name: &str) -> &'a Value {
    &answer.body["data"]["attributes"][name]
}

/// The id that a to-one relationship names, or null.
pub fn link<'a>(answer: &'a Answer, name: &str) -> &'a Value {
    &answer.body["data"]["relationships"][name]["data"]["id"]
}

/// Asserts that one attribute is rejected, and the start of the detail.
#[track_caller]
pub fn assert_invalid(answer: &Answer, attribute: &str, detail: &str) {
    assert_refused(answer, 422, &[(&format!("/data/attributes/{attribute}"), detail)]);
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
