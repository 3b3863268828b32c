//! What much belongs to is deleted in several sessions, by callers whose rights are part of it.

use futures_util::FutureExt as _;
use reqwest::Method;
use serde_json::json;
use signet::projects::id as ids;
use signet::projects::rights::{Flag, OrganizationRights, ProjectRights};

use super::fixture::{Api, World, attribute, on_both_stores, resource};

on_both_stores!(a_team_with_many_people_and_grants, a_project_with_many_teams);

/// More than two sessions remove.
const MANY: i64 = 1_200;

/// As many new people, and as many projects, for a team to be of and with.
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

async fn give(tx: &mut signet::projects::Tx<'_>, team: i64, project: i64) -> signet::projects::refusal::Outcome<()> {
    let access = "INSERT INTO team_project_access (ext_id, team_id, project_id, access, perm_bits)
        VALUES ($1, $2, $3, 'read', 0)";
    tx.execute(access, &[ids::new("tprj").into(), team.into(), project.into()]).await.map(drop)
}

/// What a text counts.
async fn count(world: &World, sql: &'static str) -> i64 {
    world.run(move |mut tx| async move { Ok(tx.one(sql, &[]).await?.get()?) }.boxed_local()).await
}

/// A deletion that demands what is there before it begins.
async fn delete(api: &Api, path: &str) -> u16 {
    let shown = api.request(Method::GET, path).send().await.unwrap();
    let tag = shown.headers()["etag"].to_str().unwrap().to_owned();
    api.request(Method::DELETE, path).header("If-Match", tag).send().await.unwrap().status().as_u16()
}

async fn a_team_with_many_people_and_grants(world: World) {
    let manages = OrganizationRights::NONE.with(Flag::ManageTeams, true).with(Flag::ManageMembership, true);
    // Whoever may manage the team by being in it has that until it is gone.
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
    // Whoever may delete the project by its access has that until it is gone.
    world.grant(&mia.team, &project, ProjectRights::ALL).await;
    let named = project.clone();
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
    let path = format!("projects/{project}");
    assert_eq!(attribute(&mia.api.get(&path).await, "team-count"), MANY + 1);
    assert_eq!(delete(&mia.api, &path).await, 204);
    assert_eq!((mia.api.get(&path).await.status, world.owner.get(&path).await.status), (404, 404));
    assert_eq!(count(&world, "SELECT count(*) FROM team_project_access").await, 0);
    let list = world.owner.get("organizations/acme/projects").await;
    assert_eq!(list.body["meta"]["status-counts"], json!({ "total": 1, "matching": 1 }));
    // One that is refused gives nothing away.
    let full = world.project("Full").await;
    let mut workspace = resource("workspaces", json!({ "name": "w1" }));
    workspace["data"]["relationships"] = json!({ "project": { "data": { "id": full, "type": "projects" } } });
    let made = world.owner.post("organizations/acme/workspaces", workspace).await;
    assert_eq!(made.status, 201, "{}", made.text);
    world.grant(&mia.team, &full, ProjectRights::ALL).await;
    assert_eq!(mia.api.delete(&format!("projects/{full}")).await.status, 409);
    assert_eq!(count(&world, "SELECT count(*) FROM team_project_access").await, 1);

    world.app.stop().await;
}
