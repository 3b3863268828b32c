//! Deleting resources with many dependents: effective immediately, also for the rights of the caller, while the rows
//! are removed in several transactions.

use futures_util::FutureExt as _;
use reqwest::Method;
use serde_json::json;
use signet::projects::caller::ProjectsCaller;
use signet::projects::id as ids;
use signet::projects::rights::{Flag, OrganizationRights, ProjectRights};
use signet::projects::{project, team};

use super::fixture::{Api, World, attribute, on_both_stores, resource};

on_both_stores!(
    a_team_with_many_people_and_grants,
    a_project_with_many_teams,
    abandoned_deletion_is_effective_and_completed_later,
    concurrent_delete_and_fill_of_a_project_rejects_one,
);

/// More rows than two transactions remove.
const MANY: i64 = 1_200;

/// Creates [`MANY`] people in a team, and as many projects that the team has access to.
async fn crowd(world: &World, team: &str) {
    let team = team.to_owned();
    let run = world.run(move |mut tx| {
        let team = team.clone();
        async move {
            let mut found = tx.one("SELECT id, org_id FROM teams WHERE ext_id = $1", &[team.into()]).await?;
            let (team, org): (i64, i64) = (found.get()?, found.get()?);
            for n in 0..MANY {
                let name = format!("person-{n}");
                let user = signet::projects::user::create(&mut tx, &name, &format!("{name}@acme.test")).await?;
                let member = "INSERT INTO team_memberships (team_id, user_id) VALUES ($1, $2)";
                tx.execute(member, &[team.into(), user.into()]).await?;
                let project = "INSERT INTO projects (ext_id, org_id, name, name_lc, team_count, created_at)
                    VALUES ($1, $2, $3, $3, 1, $4) RETURNING id";
                let values = [ids::new("prj").into(), org.into(), format!("p-{n}").into(), tx.now.into()];
                let project: i64 = tx.one(project, &values).await?.get()?;
                give(&mut tx, team, project).await?;
            }
            let count = "UPDATE teams SET user_count = user_count + $1 WHERE id = $2";
            tx.execute(count, &[MANY.into(), team.into()]).await?;
            let count = "UPDATE organizations SET project_count = project_count + $1 WHERE id = $2";
            tx.execute(count, &[MANY.into(), org.into()]).await?;
            Ok(())
        }
        .boxed_local()
    });
    run.await;
}

async fn give(
    tx: &mut signet::projects::Tx<'_>,
    team: i64,
    project: i64,
) -> signet::projects::rejection::WorkResult<()> {
    let access = "INSERT INTO team_project_access (ext_id, team_id, project_id, access, perm_bits)
        VALUES ($1, $2, $3, 'read', 0)";
    tx.execute(access, &[ids::new("tprj").into(), team.into(), project.into()]).await.map(drop)
}

/// Grants a team read access to more projects than are checked one by one, and returns their number.
async fn grant_many(world: &World, team: &str) -> i64 {
    const MORE: i64 = 10_001;
    let team = team.to_owned();
    let run = world.run(move |mut tx| {
        let team = team.clone();
        async move {
            let org: i64 = tx.one("SELECT org_id FROM teams WHERE ext_id = $1", &[team[..].into()]).await?.get()?;
            let projects = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10001)
                INSERT INTO projects (ext_id, org_id, name, name_lc, team_count, created_at)
                SELECT 'prj-many-' || i, $1, 'many-' || i, 'many-' || i, 1, 0 FROM n";
            tx.execute(projects, &[org.into()]).await?;
            let access = "INSERT INTO team_project_access (ext_id, team_id, project_id, access, perm_bits)
                SELECT 'tprj-' || p.ext_id, t.id, p.id, 'read', $1 FROM teams t, projects p
                WHERE t.ext_id = $2 AND p.ext_id LIKE 'prj-many-%'";
            tx.execute(access, &[ProjectRights::READ.bits().into(), team[..].into()]).await?;
            Ok(MORE)
        }
        .boxed_local()
    });
    run.await
}

async fn remove_many(world: &World) {
    let gone = "DELETE FROM projects WHERE ext_id LIKE 'prj-many-%'";
    world.run(move |mut tx| async move { tx.execute(gone, &[]).await }.boxed_local()).await;
}

async fn open_to_many(world: &World, project: &str) {
    let named = project.to_owned();
    let run = world.run(move |mut tx| {
        let named = named.clone();
        async move {
            let mut found = tx.one("SELECT id, org_id FROM projects WHERE ext_id = $1", &[named.into()]).await?;
            let (project, org): (i64, i64) = (found.get()?, found.get()?);
            for n in 0..MANY {
                let team = "INSERT INTO teams (ext_id, org_id, name, name_lc) VALUES ($1, $2, $3, $3) RETURNING id";
                let values = [ids::new("team").into(), org.into(), format!("t-{n}").into()];
                let team: i64 = tx.one(team, &values).await?.get()?;
                give(&mut tx, team, project).await?;
            }
            let count = "UPDATE projects SET team_count = team_count + $1 WHERE id = $2";
            tx.execute(count, &[MANY.into(), project.into()]).await?;
            Ok(())
        }
        .boxed_local()
    });
    run.await;
}

async fn count(world: &World, sql: &'static str) -> i64 {
    world.run(move |mut tx| async move { Ok(tx.one(sql, &[]).await?.get()?) }.boxed_local()).await
}

/// Deletes with `If-Match`.
async fn delete(api: &Api, path: &str) -> u16 {
    let shown = api.request(Method::GET, path).send().await.unwrap();
    let tag = shown.headers()["etag"].to_str().unwrap().to_owned();
    api.request(Method::DELETE, path).header("If-Match", tag).send().await.unwrap().status().as_u16()
}

async fn a_team_with_many_people_and_grants(world: World) {
    let manages = OrganizationRights::NONE.with(Flag::ManageTeams, true).with(Flag::ManageMembership, true);
    // A caller whose right comes from the team itself keeps it until the team is deleted.
    let mia = world.member("mia", manages).await;
    crowd(&world, &mia.team).await;
    let path = format!("teams/{}", mia.team);
    assert_eq!(attribute(&mia.api.get(&path).await, "users-count"), MANY + 1);
    assert_eq!(delete(&mia.api, &path).await, 204);
    assert_eq!((mia.api.get(&path).await.status, world.owner.get(&path).await.status), (404, 404));
    assert_eq!(count(&world, "SELECT count(*) FROM team_project_access").await, 0);
    assert_eq!(count(&world, "SELECT count(*) FROM team_memberships").await, 1, "the owner's");
    assert_eq!(count(&world, "SELECT count(*) FROM projects WHERE team_count <> 0").await, 0);
    assert_eq!(count(&world, "SELECT count(*) FROM projects").await, MANY + 1);
    world.app.stop().await;
}

async fn a_project_with_many_teams(world: World) {
    let mia = world.member("mia", OrganizationRights::NONE).await;
    let project = world.project("Wide").await;
    // A caller whose right comes from access to the project keeps it until the project is deleted.
    world.grant(&mia.team, &project, ProjectRights::ALL).await;
    open_to_many(&world, &project).await;
    let path = format!("projects/{project}");
    assert_eq!(attribute(&mia.api.get(&path).await, "team-count"), MANY + 1);
    assert_eq!(delete(&mia.api, &path).await, 204);
    assert_eq!((mia.api.get(&path).await.status, world.owner.get(&path).await.status), (404, 404));
    assert_eq!(count(&world, "SELECT count(*) FROM team_project_access").await, 0);
    let list = world.owner.get("organizations/acme/projects").await;
    assert_eq!(list.body["meta"]["status-counts"], json!({ "total": 1, "matching": 1 }));
    let full = world.project("Full").await;
    let mut workspace = resource("workspaces", json!({ "name": "w1" }));
    workspace["data"]["relationships"] = json!({ "project": { "data": { "id": full, "type": "projects" } } });
    let made = world.owner.post("organizations/acme/workspaces", workspace).await;
    assert_eq!(made.status, 201, "{}", made.text);
    world.grant(&mia.team, &full, ProjectRights::ALL).await;
    assert_eq!(mia.api.delete(&format!("projects/{full}")).await.status, 422);
    assert_eq!(count(&world, "SELECT count(*) FROM team_project_access").await, 1);

    world.app.stop().await;
}

/// Commits only the first transaction of a deletion, as if the request or the server had ended after it.
async fn cut_off(world: &World, path: &str) {
    let token = world.owner.token.clone();
    let path = path.to_owned();
    let run = world.run(move |mut tx| {
        let token = token.clone();
        let path = path.clone();
        async move {
            let caller = ProjectsCaller::identify(&mut tx, &token).await?;
            match path.split_once('/') {
                Some(("teams", id)) => {
                    let (_, team) = team::find_visible(&mut tx, &caller, id).await?;
                    team::delete(&mut tx, &team).await
                }
                Some((_, id)) => {
                    let needed = ProjectRights::DESTROY;
                    let (member, project) = project::find_visible(&mut tx, &caller, id, needed).await?;
                    project::delete(&mut tx, &member, &project, true).await
                }
                None => unreachable!(),
            }
        }
        .boxed_local()
    });
    run.await;
}

async fn abandoned_deletion_is_effective_and_completed_later(world: World) {
    let owner = &world.owner;
    let mia = world.member("mia", OrganizationRights::NONE.with(Flag::ManageTeams, true)).await;
    crowd(&world, &mia.team).await;
    let empty = json!({ "data": { "type": "" } });
    let token = owner.post(&format!("teams/{}/authentication-token", mia.team), empty).await;
    let of_team = owner.with_token(attribute(&token, "token").as_str().unwrap());
    let wide = world.project("Wide").await;
    open_to_many(&world, &wide).await;
    world.grant(&mia.team, &wide, ProjectRights::READ).await;
    let noah = world.member("noah", OrganizationRights::NONE).await;
    world.grant(&noah.team, &wide, ProjectRights::READ).await;
    let team = format!("teams/{}", mia.team);
    let project = format!("projects/{wide}");
    cut_off(&world, &team).await;
    assert_eq!((owner.get(&team).await.status, owner.delete(&team).await.status), (404, 404));
    assert_eq!(of_team.get("organizations").await.status, 401);
    assert_eq!(mia.api.get("organizations/acme/projects").await.body["meta"]["status-counts"]["total"], 0);
    let access = owner.get(&format!("team-projects?filter[project][id]={wide}")).await;
    assert_eq!(access.body["meta"]["pagination"]["total-count"], MANY + 1);
    let named = resource("teams", json!({ "name": "team-mia" }));
    assert_eq!(owner.post("organizations/acme/teams", named).await.status, 201, "the name is free");

    cut_off(&world, &project).await;
    assert_eq!((owner.get(&project).await.status, owner.delete(&project).await.status), (404, 404));
    let list = owner.get("organizations/acme/projects").await;
    assert_eq!(list.body["meta"]["status-counts"], json!({ "total": MANY + 1, "matching": MANY + 1 }));
    // It is not counted for members with access to it either, with few such projects and with many.
    let counts = async |query: &str| {
        let list = noah.api.get(&format!("organizations/acme/projects{query}")).await;
        (list.body["meta"]["status-counts"].clone(), list.body["data"].as_array().unwrap().len())
    };
    assert_eq!(counts("").await, (json!({ "total": 0, "matching": 0 }), 0));
    assert_eq!(counts("?filter[names]=Wide").await, (json!({ "total": 0, "matching": 0 }), 0));
    let more = grant_many(&world, &noah.team).await;
    assert_eq!(counts("?page[size]=1").await, (json!({ "total": more, "matching": more }), 1));
    assert_eq!(counts("?filter[names]=Wide").await, (json!({ "total": more, "matching": 0 }), 0));
    remove_many(&world).await;
    world.project("Wide").await;
    let mut workspace = resource("workspaces", json!({ "name": "w1" }));
    workspace["data"]["relationships"] = json!({ "project": { "data": { "id": wide, "type": "projects" } } });
    assert_eq!(owner.post("organizations/acme/workspaces", workspace).await.status, 404);
    let organizations = owner.get("organizations?page[size]=9").await;
    assert_eq!(organizations.body["meta"]["pagination"]["total-count"], 1, "{}", organizations.text);

    world.app.shared().projects.sweep().await.unwrap();
    assert_eq!(count(&world, "SELECT count(*) FROM team_project_access").await, 0);
    assert_eq!(count(&world, "SELECT count(*) FROM team_memberships").await, 2, "the owner's and noah's");
    assert_eq!(count(&world, "SELECT count(*) FROM projects WHERE team_count <> 0").await, 0);
    assert_eq!(count(&world, "SELECT count(*) FROM projects").await, MANY + 2);
    assert_eq!(count(&world, "SELECT count(*) FROM organizations").await, 1);
    world.app.stop().await;
}

async fn concurrent_delete_and_fill_of_a_project_rejects_one(world: World) {
    for round in 0..if world.app.is_postgres() { 10 } else { 3 } {
        let project = world.project(&format!("Wide {round}")).await;
        open_to_many(&world, &project).await;
        let mut workspace = resource("workspaces", json!({ "name": format!("w{round}") }));
        workspace["data"]["relationships"] = json!({ "project": { "data": { "id": project, "type": "projects" } } });
        let path = format!("projects/{project}");
        let (deleted, filled) =
            tokio::join!(world.owner.delete(&path), world.owner.post("organizations/acme/workspaces", workspace));
        let shown = world.owner.get(&path).await;
        match (deleted.status, filled.status) {
            (204, 404) => assert_eq!(shown.status, 404),
            (422, 201) => assert_eq!(attribute(&shown, "team-count"), MANY, "round {round}"),
            other => panic!("round {round}: {other:?} {} {}", deleted.text, filled.text),
        }
        let teams = world.run(|mut tx| {
            async move { tx.execute("DELETE FROM teams WHERE is_owners = FALSE", &[]).await }.boxed_local()
        });
        teams.await;
    }
    world.app.stop().await;
}
