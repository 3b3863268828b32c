//! Every route of the projects API, called without a token, with a token that lacks the right, and with only the right.
//!
//! [`ROWS`] has the needs of each route; a new route without a row fails.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};
use signet::http::jsonapi::route::ProjectsRoute;
use signet::http::jsonapi::table::all_routes;
use signet::projects::rights::{OrganizationFlag as Flag, OrganizationRights, ProjectRights};

use super::fixture::{
    Api, NONE, PEOPLE as PEOPLE_LIST, POOLS as POOL_LIST, Person, TEAMS as TEAM_LIST, World, no_attributes,
    on_both_stores, resource, team_access, these, workspace_access,
};
use crate::support::{Answer, send};

on_both_stores!(every_route_accepts_exactly_its_single_right);

#[derive(Clone, Copy)]
enum Needs {
    Nothing,
    Token,
    Member,
    /// An organization flag; flags in the list imply it.
    Of(Flag, &'static [Flag]),
    On(ProjectRights),
    Owner,
    Own,
}

use Needs::{Member, Nothing, Of, On, Own, Owner, Token};

const READS_ALL: Needs = Of(Flag::ReadWorkspaces, &[Flag::ReadProjects, Flag::ManageWorkspaces, Flag::ManageProjects]);
const WORKSPACES: Needs = Of(Flag::ManageWorkspaces, &[Flag::ManageProjects]);
const TEAMS: Needs = Of(Flag::ManageTeams, &[]);
const PEOPLE: Needs = Of(Flag::ManageMembership, &[]);
const POOLS: Needs = Of(Flag::ManageAgentPools, &[]);

const ROWS: &[(&str, Needs)] = &[
    ("ping", Nothing),
    ("account_show", Token),
    ("account_update", Token),
    ("user_show", Member),
    ("membership_own_list", Token),
    ("team_memberships_list", Member),
    ("team_tokens_of_organization", TEAMS),
    ("team_tokens_delete", TEAMS),
    ("project_tags_related", On(ProjectRights::READ)),
    ("project_tags_related_add", On(ProjectRights::UPDATE)),
    ("project_tags_related_replace", On(ProjectRights::UPDATE)),
    ("workspace_tags_related", READS_ALL),
    ("workspace_tags_related_add", WORKSPACES),
    ("workspace_tags_related_replace", WORKSPACES),
    ("workspace_tags_flat", READS_ALL),
    ("organization_tags", Member),
    ("organization_create", Token),
    ("organization_list", Token),
    ("organization_show", Member),
    ("organization_entitlements", Member),
    ("organization_update", Owner),
    ("membership_create", PEOPLE),
    ("membership_list", Member),
    ("membership_show", Member),
    ("membership_delete", PEOPLE),
    ("team_create", TEAMS),
    ("team_list", Member),
    ("team_show", Member),
    ("team_update", TEAMS),
    ("team_delete", TEAMS),
    ("team_users_add", PEOPLE),
    ("team_users_remove", PEOPLE),
    ("team_memberships_add", PEOPLE),
    ("team_memberships_remove", PEOPLE),
    ("team_token_replace", TEAMS),
    ("team_token_show", TEAMS),
    ("team_token_delete", TEAMS),
    ("team_token_create", TEAMS),
    ("team_token_list", TEAMS),
    ("user_token_create", Own),
    // The list of another user is empty.
    ("user_token_list", Token),
    ("token_show", Own),
    ("token_delete", Own),
    ("organization_token_create", Owner),
    ("organization_token_show", Owner),
    ("organization_token_delete", Owner),
    ("agent_pool_create", POOLS),
    ("agent_pool_list", Member),
    ("agent_pool_show", Member),
    ("agent_pool_update", POOLS),
    ("agent_pool_delete", POOLS),
    ("project_create", Of(Flag::ManageProjects, &[])),
    ("project_list", Member),
    ("project_show", On(ProjectRights::READ)),
    ("project_update", On(ProjectRights::UPDATE)),
    ("project_delete", On(ProjectRights::DESTROY)),
    ("project_move", On(ProjectRights::MOVE_WORKSPACE)),
    ("project_tags", On(ProjectRights::READ)),
    ("project_tags_merge", On(ProjectRights::UPDATE)),
    ("project_tags_effective", On(ProjectRights::READ)),
    // The body names the project.
    ("workspace_create", Member),
    ("workspace_list", Member),
    ("workspace_show", READS_ALL),
    ("workspace_show_named", READS_ALL),
    ("workspace_update", WORKSPACES),
    ("workspace_update_named", WORKSPACES),
    ("workspace_delete", WORKSPACES),
    ("workspace_delete_named", WORKSPACES),
    ("workspace_safe_delete", WORKSPACES),
    ("workspace_safe_delete_named", WORKSPACES),
    ("workspace_lock", WORKSPACES),
    ("workspace_unlock", WORKSPACES),
    ("workspace_force_unlock", WORKSPACES),
    ("workspace_tags", READS_ALL),
    ("workspace_tags_merge", WORKSPACES),
    ("workspace_tags_effective", READS_ALL),
    ("workspace_tags_add", WORKSPACES),
    ("workspace_tags_remove", WORKSPACES),
    ("workspace_state", READS_ALL),
    ("workspace_run_refuse", READS_ALL),
    ("team_project_create", On(ProjectRights::MANAGE_TEAMS)),
    ("team_project_list", On(ProjectRights::READ)),
    ("team_project_show", On(ProjectRights::MANAGE_TEAMS)),
    ("team_project_update", On(ProjectRights::MANAGE_TEAMS)),
    ("team_project_delete", On(ProjectRights::MANAGE_TEAMS)),
    ("team_workspace_create", WORKSPACES),
    ("team_workspace_list", READS_ALL),
    ("team_workspace_show", WORKSPACES),
    ("team_workspace_update", WORKSPACES),
    ("team_workspace_delete", WORKSPACES),
    // Last, because it deletes everything.
    ("organization_delete", Owner),
];

const NOTHING_THERE: [&str; 2] = ["workspace_state", "workspace_run_refuse"];

#[test]
fn every_route_of_the_projects_api_has_a_row() {
    let rows: BTreeSet<&str> = ROWS.iter().map(|(name, _)| *name).collect();
    let routes: BTreeSet<&str> = all_routes().map(|route| route.name).collect();
    assert_eq!(rows, routes);
    assert_eq!(rows.len(), ROWS.len());
    for (route, (_, needs)) in all_routes().filter_map(|route| Some((route, row(route.name)?))) {
        assert_eq!(route.needs_no_token, matches!(needs, Nothing), "{}", route.name);
    }
}

fn row(name: &str) -> Option<&'static (&'static str, Needs)> {
    ROWS.iter().find(|(known, _)| *known == name)
}

/// Resources of each kind for one route.
pub struct Scene {
    pub number: usize,
    pub project: String,
    pub workspace: String,
    /// A workspace of the default project.
    pub stray: String,
    pub team: String,
    pub pool: String,
    pub access: String,
    pub workspace_access: String,
    pub membership: String,
    pub team_token: String,
}

impl Scene {
    pub async fn new(world: &World, number: usize) -> Self {
        let owner = &world.owner;
        let project = world.project(&format!("project-{number}")).await;
        let workspace = world.workspace(&project, &format!("w{number}")).await;
        let stray = world.workspace("", &format!("s{number}")).await;
        let named = |name: String| resource("teams", json!({ "name": name, "visibility": "organization" }));
        let team = owner.create(TEAM_LIST, named(format!("t{number}"))).await;
        // Another team: adding people to a team also gives them its rights.
        let granted = owner.create(TEAM_LIST, named(format!("g{number}"))).await;
        let pool = owner.create(POOL_LIST, resource("agent-pools", json!({ "name": format!("p{number}") }))).await;
        let access = owner.create("team-projects", access_of(&granted, &project)).await;
        let workspace_access = owner.create("team-workspaces", access_to(&granted, &workspace)).await;
        let invited = resource("organization-memberships", json!({ "email": format!("u{number}@acme.test") }));
        let membership = owner.create(PEOPLE_LIST, invited).await;
        let team_token = owner.create(&format!("teams/{team}/authentication-token"), no_attributes()).await;
        owner.create("organizations/acme/authentication-token", no_attributes()).await;
        Self { number, project, workspace, stray, team, pool, access, workspace_access, membership, team_token }
    }

    /// The path of a route for a caller with this user id and token id.
    pub fn path(&self, route: &ProjectsRoute, user: &str, token: &str) -> String {
        let path = self.fill(route.pattern).replace(":user_id", user).replace(":token_id", token);
        assert!(!path.contains(':'), "{path}: unknown parameter");
        match route.name {
            "team_project_list" => format!("{path}?filter[project][id]={}", self.project),
            "team_workspace_list" => format!("{path}?filter[workspace][id]={}", self.workspace),
            _ => path,
        }
    }

    /// A pattern with the ids of these resources.
    pub fn fill(&self, pattern: &str) -> String {
        let segment = |segment: &str| match segment {
            ":organization_name" => "acme".to_owned(),
            ":project_id" => self.project.clone(),
            ":workspace_id" => self.workspace.clone(),
            ":workspace_name" => format!("w{}", self.number),
            ":team_id" => self.team.clone(),
            ":agent_pool_id" => self.pool.clone(),
            ":access_id" => self.access.clone(),
            ":workspace_access_id" => self.workspace_access.clone(),
            ":membership_id" => self.membership.clone(),
            other => other.to_owned(),
        };
        pattern.split('/').map(segment).collect::<Vec<_>>().join("/")
    }

    pub fn team_tokens(&self) -> Value {
        these("authentication-tokens", &[&self.team_token])
    }

    async fn ask(&self, api: &Api, route: &ProjectsRoute, user: &str, token: &str) -> Answer {
        let method: Method = route.method.as_str().parse().unwrap();
        let path = self.path(route, user, token);
        let body = match route.name {
            "team_project_create" => access_of(&self.team, &self.project),
            "team_workspace_create" => access_to(&self.team, &self.workspace),
            "team_tokens_delete" => self.team_tokens(),
            _ => json!({}),
        };
        match method {
            Method::GET => api.get(&path).await,
            Method::DELETE if body == json!({}) && !route.pattern.contains("relationships") => api.delete(&path).await,
            method => api.send_text(method, &path, body.to_string()).await,
        }
    }
}

pub fn access_to(team: &str, workspace: &str) -> Value {
    workspace_access(team, workspace, json!({ "access": "read" }))
}

pub fn access_of(team: &str, project: &str) -> Value {
    team_access(team, project, json!({ "access": "read" }))
}

async fn member(world: &World, name: String, rights: OrganizationRights) -> Person {
    world.member(Box::leak(name.into_boxed_str()), rights).await
}

/// A caller with only the required right, and a caller with all rights except it.
async fn callers(world: &World, scene: &Scene, needs: Needs) -> (Api, Option<Api>) {
    let name = |who: &str| format!("{who}{}", scene.number);
    match needs {
        Nothing => (world.owner.with_token(""), None),
        Token => (world.outsider(Box::leak(name("any").into_boxed_str())).await.api, None),
        Member => {
            let outsider = world.outsider(Box::leak(name("out").into_boxed_str())).await;
            (member(world, name("in"), NONE).await.api, Some(outsider.api))
        }
        Of(flag, implied_by) => {
            let all = implied_by.iter().fold(OrganizationRights::ALL, |all, other| all.with(*other, false));
            let lacking = member(world, name("but"), all.with(flag, false)).await;
            (member(world, name("one"), NONE.with(flag, true)).await.api, Some(lacking.api))
        }
        On(right) => {
            let one = member(world, name("one"), NONE).await;
            let but = member(world, name("but"), NONE).await;
            world.grant(&one.team, &scene.project, ProjectRights::READ.union(right)).await;
            if right != ProjectRights::READ {
                let others = ProjectRights::from_bits(ProjectRights::ALL.bits() & !right.bits());
                world.grant(&but.team, &scene.project, others).await;
            }
            (one.api, Some(but.api))
        }
        Owner => (world.owner.clone(), Some(member(world, name("all"), OrganizationRights::ALL).await.api)),
        Own => {
            let other = member(world, name("other"), OrganizationRights::ALL).await;
            (member(world, name("own"), NONE).await.api, Some(other.api))
        }
    }
}

async fn every_route_accepts_exactly_its_single_right(world: &World) {
    let mut faults = Vec::new();
    for (number, (name, needs)) in ROWS.iter().enumerate() {
        let route = all_routes().find(|route| route.name == *name).unwrap();
        let scene = Scene::new(world, number).await;
        let (holder, lacking) = callers(world, &scene, *needs).await;
        let user = holder.get("account/details").await.body["data"]["id"].as_str().unwrap_or("none").to_owned();
        let own = resource("authentication-tokens", json!({}));
        let own = holder.post(&format!("users/{user}/authentication-tokens"), own).await;
        let token = own.body["data"]["id"].as_str().unwrap_or("none").to_owned();
        let what = format!("{} {}", route.method, route.pattern);
        if !matches!(needs, Nothing) {
            for nobody in ["", "x", "aaaaaaaaaaaaaa.pjv1.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"] {
                let answer = scene.ask(&world.owner.with_token(nobody), route, &user, &token).await;
                if answer.status != 401 {
                    faults.push(format!("{what}, without a token: {} {}", answer.status, answer.text));
                }
            }
        }
        if let Some(lacking) = lacking {
            let answer = scene.ask(&lacking, route, &user, &token).await;
            if !matches!(answer.status, 403 | 404) {
                faults.push(format!("{what}, without the right: {} {}", answer.status, answer.text));
            }
        }
        if *name == "project_delete" {
            // The right does not include deleting the project's workspaces.
            assert_eq!(world.owner.delete(&format!("workspaces/{}", scene.workspace)).await.status, 204);
        }
        let answer = scene.ask(&holder, route, &user, &token).await;
        let refused =
            matches!(answer.status, 401 | 403 | 405) || (answer.status == 404 && !NOTHING_THERE.contains(name));
        if refused || answer.status >= 500 {
            faults.push(format!("{what}, with the right: {} {}", answer.status, answer.text));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let nothing = send(world.owner.request(Method::GET, "organizations/acme")).await;
    assert_eq!(nothing.status, 404, "it was deleted at last");
}
