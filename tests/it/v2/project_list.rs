//! Lists of projects: visibility, filters, sorting, pages.

use serde_json::{Value, json};
use signet::projects::rights::{Flag, OrganizationRights, ProjectRights};

use super::fixture::{Api, Person, World, assert_refused, on_both_stores, resource};
use super::moves::workspace;
use crate::support::Answer;

on_both_stores!(
    project_list_shows_only_accessible_projects,
    project_list_pages,
    project_list_sorting_and_filters,
    project_list_links_keep_the_query,
    many_projects_are_paged_in_every_order,
    project_list_for_several_teams_and_many_grants,
    project_list_filters_and_includes_tags,
);

const PATH: &str = "organizations/acme/projects";

/// `acme` with `P1`, which has a workspace, and `P2`.
struct Two {
    world: World,
    one: String,
    two: String,
}

impl Two {
    async fn in_world(world: World) -> Self {
        let one = world.project("P-1").await;
        let two = world.project("P-2").await;
        workspace(&world, &one, "w1").await;
        Self { world, one, two }
    }

    async fn with(&self, name: &'static str, grants: &[(&str, ProjectRights)]) -> Person {
        let person = self.world.member(name, OrganizationRights::NONE).await;
        for (project, rights) in grants {
            self.world.grant(&person.team, project, *rights).await;
        }
        person
    }
}

async fn list(api: &Api, query: &str) -> Answer {
    let answer = api.get(&format!("{PATH}?{query}")).await;
    assert_eq!(answer.status, 200, "{query}: {}", answer.text);
    answer
}

async fn names(api: &Api, query: &str) -> Vec<String> {
    let answer = list(api, query).await;
    let data = answer.body["data"].as_array().unwrap();
    data.iter().map(|project| project["attributes"]["name"].as_str().unwrap().to_owned()).collect()
}

fn counts(answer: &Answer) -> (i64, i64) {
    let counts = &answer.body["meta"]["status-counts"];
    assert_eq!(counts["matching"], answer.body["meta"]["pagination"]["total-count"]);
    (counts["total"].as_i64().unwrap(), counts["matching"].as_i64().unwrap())
}

async fn project_list_shows_only_accessible_projects(world: World) {
    let two = Two::in_world(world).await;
    let world = &two.world;
    let owners = list(&world.owner, "").await;
    assert_eq!(counts(&owners), (3, 3));
    assert_eq!(owners.body["meta"]["pagination"]["page-size"], 20);
    assert_eq!(names(&world.owner, "").await, ["P-2", "P-1", "Default Project"], "newest first");
    let member = two.with("mia", &[]).await;
    let nothing = list(&member.api, "").await;
    assert_eq!((counts(&nothing), &nothing.body["data"]), ((0, 0), &json!([])));
    assert_eq!(nothing.body["meta"]["pagination"]["total-pages"], 1);
    assert_eq!(world.outsider("xaver").await.api.get(PATH).await.status, 404);
    let reader = two.with("rita", &[(&two.one, ProjectRights::READ)]).await;
    assert_eq!(names(&reader.api, "").await, ["P-1"]);
    assert_eq!(counts(&list(&reader.api, "").await), (1, 1));
    let reads = &list(&reader.api, "").await.body["data"][0];
    assert_eq!(reads, &reader.api.get(&format!("projects/{}", two.one)).await.body["data"]);
    assert_eq!(
        (&reads["attributes"]["permissions"]["can-update"], &reads["attributes"]["workspace-count"]),
        (&json!(false), &json!(1))
    );

    let updatable = list(&reader.api, "filter[permissions][update]=false").await;
    assert_eq!(counts(&updatable), (1, 0), "presence counts, not the value");
    let admin = two.with("ada", &[(&two.one, ProjectRights::ALL), (&two.two, ProjectRights::ALL)]).await;
    assert_eq!(names(&admin.api, "filter[permissions][create-workspace]").await, ["P-2", "P-1"]);
    assert_eq!(names(&world.owner, "filter[permissions][update]&filter[permissions][create-workspace]").await.len(), 3);
    let creates = ProjectRights::READ.and(ProjectRights::CREATE_WORKSPACE);
    let mixed =
        two.with("mix", &[(&two.one, creates), (&two.two, ProjectRights::READ.and(ProjectRights::UPDATE))]).await;
    assert_eq!(names(&mixed.api, "filter[permissions][create-workspace]=").await, ["P-1"]);
    assert_eq!(names(&mixed.api, "filter[permissions][update]=true").await, ["P-2"]);
    let both = list(&mixed.api, "filter[permissions][update]&filter[permissions][create-workspace]").await;
    assert_eq!(counts(&both), (2, 0));
    two.world.app.stop().await;
}

async fn project_list_pages(world: World) {
    let two = Two::in_world(world).await;
    let owner = &two.world.owner;
    let page = |answer: &Answer| answer.body["meta"]["pagination"].clone();
    let first = list(owner, "page[size]=1").await;
    assert_eq!(
        page(&first),
        json!({ "current-page": 1, "page-size": 1, "prev-page": null, "next-page": 2, "total-pages": 3, "total-count": 3 })
    );
    assert!(first.body["links"]["last"].as_str().unwrap().ends_with("page%5Bnumber%5D=3&page%5Bsize%5D=1"));
    assert_eq!(first.body["links"]["prev"], Value::Null);
    assert_eq!(page(&list(owner, "page[size]=101").await)["page-size"], 100);
    assert_eq!(page(&list(owner, "page[size]=0&page[number]=0").await)["page-size"], 20);
    let past = list(owner, "page[number]=999").await;
    assert_eq!(
        page(&past),
        json!({ "current-page": 999, "page-size": 20, "prev-page": 1, "next-page": null, "total-pages": 1, "total-count": 3 })
    );
    assert_eq!((&past.body["data"], &past.body["links"]["next"]), (&json!([]), &Value::Null));
    assert_eq!(list(owner, "page[number]=2147483647&page[size]=100").await.body["data"], json!([]));
    for wrong in ["page[size]=abc", "page[size]=-1", "page[number]=2147483648"] {
        let place = wrong.split('=').next().unwrap();
        assert_refused(&owner.get(&format!("{PATH}?{wrong}")).await, 400, &[(place, place)]);
    }
    for encoded in ["page%5Bsize%5D=2", "page%5bsize%5d=2"] {
        assert_eq!(list(owner, encoded).await.body, list(owner, "page[size]=2").await.body);
    }
    two.world.app.stop().await;
}

async fn project_list_sorting_and_filters(world: World) {
    for name in ["Payments", "Repay", "Ops", "a_b", "axb", "P-1", "p-22"] {
        world.project(name).await;
    }
    let owner = &world.owner;
    let by_name = ["a_b", "axb", "Default Project", "Ops", "P-1", "p-22", "Payments", "Repay"];
    assert_eq!(names(owner, "sort=name").await, by_name);
    let mut backwards = names(owner, "sort=-name").await;
    backwards.reverse();
    assert_eq!(backwards, by_name);
    for wrong in ["created-at", "--name", "name,id"] {
        assert_refused(&owner.get(&format!("{PATH}?sort={wrong}")).await, 400, &[("sort", "sort must be one of name")]);
    }
    for (query, found) in [
        ("q=PAY", vec!["Payments", "Repay"]),
        ("q=+pay+", vec!["Payments", "Repay"]),
        ("q=a_b", vec!["a_b"]),
        ("q=%25", vec![]),
        ("q=%5C", vec![]),
        ("q=%C3%9C", vec![]),
        ("q=t+p", vec!["Default Project"]),
        ("q=ops&q=repay", vec!["Repay"]),
        ("filter[names]=p-1,P-22,zzz", vec!["P-1", "p-22"]),
        ("filter[names]=p-1&filter[names]=,OPS,", vec!["Ops", "P-1"]),
        ("filter[names]=P-", vec![]),
        ("filter[names]=P-1&q=ops", vec!["P-1"]),
    ] {
        assert_eq!(names(owner, &format!("{query}&sort=name")).await, found, "{query}");
    }
    for all in ["filter[names]=", "filter[names]=,+,", "q=", "q=+", "filter[names]=&q="] {
        assert_eq!(counts(&list(owner, all).await), (8, 8), "{all}");
    }
    assert_eq!(counts(&list(owner, "filter[names]=p-1,P-22,zzz").await), (8, 2));
    assert_eq!(counts(&list(owner, &format!("q={}", "%25_".repeat(15_000))).await), (8, 0), "longer than any name");
    assert_eq!(owner.get(&format!("{PATH}?q=%00")).await.status, 400);
    assert_eq!(owner.get("projects/prj%00").await.status, 404);
    world.app.stop().await;
}

async fn project_list_links_keep_the_query(world: World) {
    let two = Two::in_world(world).await;
    let owner = &two.world.owner;
    assert_eq!(counts(&list(owner, "TagBindings={%20env%20dev}&page[size]=1").await), (3, 3));
    let query = "sort=-name&TagBindings=x&filter[names]=P-1,P-2&q=&page[size]=1&filter[permissions][update]=no";
    let first = list(owner, query).await;
    let base = first.body["links"]["self"].as_str().unwrap().split('?').next().unwrap().to_owned();
    assert!(base.starts_with("http://127.0.0.1:") && base.ends_with("/api/v2/organizations/acme/projects"), "{base}");
    let kept = "filter%5Bnames%5D=P-1%2CP-2&filter%5Bpermissions%5D%5Bupdate%5D=no";
    let next = format!("{base}?{kept}&page%5Bnumber%5D=2&page%5Bsize%5D=1&q=&sort=-name");
    assert_eq!(first.body["links"]["next"], json!(next));
    let follow = next.split("/api/v2/").nth(1).unwrap();
    let second = owner.get(follow).await;
    assert_eq!(second.body["data"][0]["attributes"]["name"], "P-1");
    assert_eq!((&second.body["links"]["self"], &second.body["links"]["next"]), (&json!(next), &Value::Null));
    let none = list(owner, "filter[names]=zzz&page[number]=3").await;
    let last = none.body["links"]["last"].as_str().unwrap();
    assert!(last.contains("page%5Bnumber%5D=1&"), "{last}");
    two.world.app.stop().await;
}

/// Inserts many projects whose order by name differs from their order of creation.
async fn many(world: &World, count: i64) {
    world
        .run(move |mut tx| {
            Box::pin(async move {
                let org: i64 = tx.one("SELECT id FROM organizations WHERE name_lc = 'acme'", &[]).await?.get()?;
                let insert = "INSERT INTO projects (ext_id, org_id, name, name_lc, created_at)
                    WITH RECURSIVE n (i, k) AS (SELECT CAST($1 AS bigint), CAST(0 AS bigint) UNION ALL
                        SELECT i + 1, ((i + 1) * 7919) % 100003 FROM n WHERE i + 1 < $2)
                    SELECT 'prj-many-' || CAST(i AS text), $3, 'Many ' || CAST(100000 + k AS text),
                        'many ' || CAST(100000 + k AS text), $4 FROM n";
                tx.execute(insert, &[0.into(), count.into(), org.into(), tx.now.into()]).await?;
                let counted = "UPDATE organizations SET project_count = project_count + $1 WHERE id = $2";
                tx.execute(counted, &[count.into(), org.into()]).await?;
                Ok(())
            })
        })
        .await;
}

/// All ids of a list, read in pages.
async fn walk(api: &Api, query: &str, size: i64) -> Vec<String> {
    let mut ids = Vec::new();
    for number in 1.. {
        let page = list(api, &format!("{query}&page[size]={size}&page[number]={number}")).await;
        ids.extend(page.body["data"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()));
        if page.body["meta"]["pagination"]["next-page"].is_null() {
            break;
        }
    }
    ids
}

async fn many_projects_are_paged_in_every_order(world: World) {
    many(&world, 1249).await;
    let owner = &world.owner;
    for query in ["", "sort=name", "sort=-name", "q=many"] {
        let ids = walk(owner, query, 100).await;
        let once: std::collections::BTreeSet<_> = ids.iter().collect();
        assert_eq!((ids.len(), once.len()), if query == "q=many" { (1249, 1249) } else { (1250, 1250) }, "{query}");
        // The last pages are read backwards; they equal those of the larger page size.
        let total = ids.len() as i64;
        for number in [1, 144, (total + 6) / 7 - 1, (total + 6) / 7] {
            let page = list(owner, &format!("{query}&page[size]=7&page[number]={number}")).await;
            let page: Vec<&str> =
                page.body["data"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
            let from = ((number - 1) * 7) as usize;
            assert_eq!(page, ids[from..ids.len().min(from + 7)], "{query} {number}");
        }
        if query.is_empty() {
            assert_eq!(walk(owner, query, 100).await, ids, "the same every time");
        }
    }
    let mut up = walk(owner, "sort=name", 100).await;
    let down = walk(owner, "sort=-name", 100).await;
    up.reverse();
    assert_eq!(up, down);
    world.app.stop().await;
}

/// Grants a team access to every second project of [`many`].
async fn grant_half(world: &World, team: &str, bits: i64) {
    let team = team.to_owned();
    world
        .run(move |mut tx| {
            let team = team.clone();
            Box::pin(async move {
                let grant = "INSERT INTO team_project_access (ext_id, team_id, project_id, access, perm_bits)
                    SELECT $1 || p.ext_id, t.id, p.id, 'custom', $2 FROM projects p, teams t
                    WHERE p.name_lc LIKE 'many %' AND p.id % 2 = 0 AND t.ext_id = $3";
                tx.execute(grant, &[team[..].into(), bits.into(), team[..].into()]).await?;
                Ok(())
            })
        })
        .await;
}

async fn project_list_for_several_teams_and_many_grants(world: World) {
    let project = world.project("Granted").await;
    let two_teams = world.member("tom", OrganizationRights::NONE).await;
    world.grant(&two_teams.team, &project, ProjectRights::READ).await;
    let admins = world.member("ada", OrganizationRights::NONE).await;
    world.grant(&admins.team, &project, ProjectRights::ALL).await;
    join(&world, &admins.team, "tom").await;
    let shown = two_teams.api.get(&format!("projects/{project}")).await;
    assert_eq!(shown.body["data"]["attributes"]["permissions"]["can-destroy"], true, "the union counts");
    assert_eq!(names(&two_teams.api, "filter[permissions][update]").await, ["Granted"]);

    let manager = world.member("wim", OrganizationRights::NONE.with(Flag::ManageWorkspaces, true)).await;
    assert_eq!(names(&manager.api, "").await, ["Default Project"]);
    assert_eq!(names(&manager.api, "filter[permissions][create-workspace]").await, ["Default Project"]);
    assert_eq!(counts(&list(&manager.api, "filter[permissions][update]").await), (1, 0));
    let all_seeing = world.member("rea", OrganizationRights::NONE.with(Flag::ReadProjects, true)).await;
    world.grant(&all_seeing.team, &project, ProjectRights::ALL).await;
    assert_eq!(counts(&list(&all_seeing.api, "").await), (2, 2));
    assert_eq!(names(&all_seeing.api, "filter[permissions][update]").await, ["Granted"]);
    assert_eq!(counts(&list(&all_seeing.api, "filter[permissions][update]").await), (2, 1));

    // As many grants as are checked one by one, and more.
    many(&world, 20_010).await;
    let reads = ProjectRights::READ.bits();
    let updates = reads | ProjectRights::UPDATE.bits();
    for (person, bits) in [(&manager, reads), (&all_seeing, updates), (&two_teams, updates)] {
        grant_half(&world, &person.team, bits).await;
    }
    let half = 10_005;
    assert_eq!(counts(&list(&manager.api, "").await), (half + 1, half + 1));
    assert_eq!(counts(&list(&manager.api, "filter[permissions][create-workspace]").await), (half + 1, 1));
    assert_eq!(counts(&list(&manager.api, "filter[permissions][update]").await), (half + 1, 0));
    assert_eq!(counts(&list(&all_seeing.api, "filter[permissions][update]").await), (20_012, half + 1));
    let query = "filter[permissions][update]&filter[permissions][create-workspace]";
    assert_eq!(counts(&list(&two_teams.api, query).await), (half + 1, 1));
    assert_eq!(counts(&list(&two_teams.api, "q=many+1000").await).0, half + 1);
    let mut up = walk(&manager.api, "q=many+100&sort=name", 10).await;
    up.reverse();
    assert_eq!(walk(&manager.api, "q=many+100&sort=-name", 100).await, up);
    let last = list(&manager.api, &format!("page[size]=1&page[number]={}", half + 1)).await;
    assert_eq!(last.body["data"][0]["attributes"]["name"], "Default Project", "the oldest");
    world.app.stop().await;
}

async fn join(world: &World, team: &str, username: &'static str) {
    let team = team.to_owned();
    world
        .run(move |mut tx| {
            let team = team.clone();
            Box::pin(async move {
                let join = "INSERT INTO team_memberships (team_id, user_id)
                    SELECT t.id, u.id FROM teams t, users u WHERE t.ext_id = $1 AND u.username_lc = $2";
                tx.execute(join, &[team.into(), username.into()]).await?;
                Ok(())
            })
        })
        .await;
}

async fn project_list_filters_and_includes_tags(world: World) {
    let owner = &world.owner;
    let tag = |key: &str, value: &str| json!({ "type": "tag-bindings", "attributes": { "key": key, "value": value } });
    let with_tags = |name: &str, tags: Value| {
        let mut body = resource("projects", json!({ "name": name }));
        body["data"]["relationships"] = json!({ "tag-bindings": { "data": tags } });
        body
    };
    let made = owner.post(PATH, with_tags("Tagged", json!([tag("a", "7"), tag("b", "x")]))).await;
    assert_eq!(made.status, 201, "{}", made.text);
    assert_eq!(made.body["data"]["relationships"]["effective-tag-bindings"].get("data"), None);
    owner.post(PATH, with_tags("Other", json!([tag("a", "8"), tag("c", "")]))).await;
    let filter = |key: &str, value: &str| format!("filter[tagged][0][key]={key}&filter[tagged][0][value]={value}");
    assert_eq!(names(owner, &filter("a", "")).await, ["Other", "Tagged"]);
    assert_eq!(names(owner, &filter("a", "7")).await, ["Tagged"]);
    assert_eq!(names(owner, &format!("{}&filter[tagged][1][key]=c", filter("a", ""))).await, ["Other"]);
    assert_eq!(counts(&list(owner, &filter("zzz", "")).await), (3, 0));
    let narrow = list(owner, &format!("{}&page[size]=1", filter("a", ""))).await;
    let next = narrow.body["links"]["next"].as_str().unwrap();
    assert!(next.contains("filter%5Btagged%5D%5B0%5D%5Bkey%5D=a"), "{next}");

    let plain = list(owner, "").await;
    assert_eq!(plain.body.get("included"), None);
    assert!(plain.body["data"].as_array().unwrap().contains(&made.body["data"]));
    let including = list(owner, "include=effective-tag-bindings&q=tagged").await;
    let bindings = owner.get(&format!("projects/{}/tag-bindings", made.body["data"]["id"].as_str().unwrap())).await;
    let ids = |list: &Value| list.as_array().unwrap().iter().map(|one| one["id"].clone()).collect::<Vec<_>>();
    let included = &including.body["included"];
    assert_eq!(ids(included), ids(&bindings.body["data"]));
    assert!(
        included[0]["type"] == "effective-tag-bindings" && included[0].get("links").is_none(),
        "{}",
        including.text
    );
    let related = &including.body["data"][0]["relationships"]["effective-tag-bindings"];
    assert_eq!(ids(&related["data"]), ids(included));
    let mut stripped = including.body["data"][0].clone();
    stripped["relationships"]["effective-tag-bindings"].as_object_mut().unwrap().remove("data");
    assert_eq!(stripped, made.body["data"], "nothing else is different");
    let path = format!("projects/{}", made.body["data"]["id"].as_str().unwrap());
    let shown = owner.get(&format!("{path}?include=effective_tag_bindings")).await;
    assert_eq!((&shown.body["data"], &shown.body["included"]), (&including.body["data"][0], included));
    let all = list(owner, "include=effective_tag_bindings").await;
    assert_eq!(all.body["included"].as_array().unwrap().len(), 4);
    assert!(list(owner, "include=&page[size]=1").await.body["links"]["next"].as_str().unwrap().contains("include="));
    for wrong in [format!("{PATH}?include=users"), format!("{path}?include=effective_tag_bindings,users")] {
        assert_refused(&owner.get(&wrong).await, 400, &[("include", "the include parameter")]);
    }
    world.app.stop().await;
}
