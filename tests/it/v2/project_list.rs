//! Lists of projects: visibility, filters, sorting, pages.

use serde_json::{Value, json};
use signet::projects::rights::{OrganizationFlag as Flag, ProjectRights};

use super::fixture::{
    Api, NONE, PROJECTS, Person, World, assert_refused, attribute, ids, names, on_both_stores, path_of, related, tags,
};
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

/// Creates `P-1`, which has a workspace, and `P-2`; returns their ids.
async fn two_projects(world: &World) -> [String; 2] {
    let one = world.project("P-1").await;
    let two = world.project("P-2").await;
    world.workspace(&one, "w1").await;
    [one, two]
}

/// Adds a member with rights on these projects.
async fn member(world: &World, name: &'static str, grants: &[(&str, ProjectRights)]) -> Person {
    let person = world.member(name, NONE).await;
    for (project, rights) in grants {
        world.grant(&person.team, project, *rights).await;
    }
    person
}

async fn list(api: &Api, query: &str) -> Answer {
    let answer = api.get(&format!("{PROJECTS}?{query}")).await;
    assert_eq!(answer.status, 200, "{query}: {}", answer.text);
    answer
}

async fn named(api: &Api, query: &str) -> Vec<String> {
    names(&list(api, query).await)
}

fn counts(answer: &Answer) -> (i64, i64) {
    let counts = &answer.body["meta"]["status-counts"];
    assert_eq!(counts["matching"], answer.body["meta"]["pagination"]["total-count"]);
    (counts["total"].as_i64().unwrap(), counts["matching"].as_i64().unwrap())
}

async fn project_list_shows_only_accessible_projects(world: &World) {
    let [one, two] = two_projects(world).await;
    let owners = list(&world.owner, "").await;
    assert_eq!(counts(&owners), (3, 3));
    assert_eq!(owners.body["meta"]["pagination"]["page-size"], 20);
    assert_eq!(named(&world.owner, "").await, ["P-2", "P-1", "Default Project"], "newest first");
    let mia = member(world, "mia", &[]).await;
    let nothing = list(&mia.api, "").await;
    assert_eq!((counts(&nothing), &nothing.body["data"]), ((0, 0), &json!([])));
    assert_eq!(nothing.body["meta"]["pagination"]["total-pages"], 1);
    assert_eq!(world.outsider("xaver").await.api.get(PROJECTS).await.status, 404);
    let reader = member(world, "rita", &[(&one, ProjectRights::READ)]).await;
    assert_eq!(named(&reader.api, "").await, ["P-1"]);
    assert_eq!(counts(&list(&reader.api, "").await), (1, 1));
    let reads = &list(&reader.api, "").await.body["data"][0];
    assert_eq!(reads, &reader.api.get(&format!("projects/{one}")).await.body["data"]);
    assert_eq!(reads["attributes"]["permissions"]["can-update"], false);
    assert_eq!(reads["attributes"]["workspace-count"], 1);

    let updatable = list(&reader.api, "filter[permissions][update]=false").await;
    assert_eq!(counts(&updatable), (1, 0), "presence counts, not the value");
    let admin = member(world, "ada", &[(&one, ProjectRights::ALL), (&two, ProjectRights::ALL)]).await;
    assert_eq!(named(&admin.api, "filter[permissions][create-workspace]").await, ["P-2", "P-1"]);
    assert_eq!(named(&world.owner, "filter[permissions][update]&filter[permissions][create-workspace]").await.len(), 3);
    let creates = ProjectRights::READ.union(ProjectRights::CREATE_WORKSPACE);
    let mixed =
        member(world, "mix", &[(&one, creates), (&two, ProjectRights::READ.union(ProjectRights::UPDATE))]).await;
    assert_eq!(named(&mixed.api, "filter[permissions][create-workspace]=").await, ["P-1"]);
    assert_eq!(named(&mixed.api, "filter[permissions][update]=true").await, ["P-2"]);
    let both = list(&mixed.api, "filter[permissions][update]&filter[permissions][create-workspace]").await;
    assert_eq!(counts(&both), (2, 0));
}

async fn project_list_pages(world: &World) {
    two_projects(world).await;
    let owner = &world.owner;
    let page = |answer: &Answer| answer.body["meta"]["pagination"].clone();
    let first = list(owner, "page[size]=1").await;
    let expected = json!({ "current-page": 1, "page-size": 1, "prev-page": null, "next-page": 2, "total-pages": 3,
        "total-count": 3 });
    assert_eq!(page(&first), expected);
    assert!(first.body["links"]["last"].as_str().unwrap().ends_with("page%5Bnumber%5D=3&page%5Bsize%5D=1"));
    assert_eq!(first.body["links"]["prev"], Value::Null);
    assert_eq!(page(&list(owner, "page[size]=101").await)["page-size"], 100);
    assert_eq!(page(&list(owner, "page[size]=0&page[number]=0").await)["page-size"], 20);
    let past = list(owner, "page[number]=999").await;
    let expected = json!({ "current-page": 999, "page-size": 20, "prev-page": 1, "next-page": null, "total-pages": 1,
        "total-count": 3 });
    assert_eq!(page(&past), expected);
    assert_eq!((&past.body["data"], &past.body["links"]["next"]), (&json!([]), &Value::Null));
    assert_eq!(list(owner, "page[number]=2147483647&page[size]=100").await.body["data"], json!([]));
    for wrong in ["page[size]=abc", "page[size]=-1", "page[number]=2147483648"] {
        let place = wrong.split('=').next().unwrap();
        assert_refused(&owner.get(&format!("{PROJECTS}?{wrong}")).await, 400, &[(place, place)]);
    }
    for encoded in ["page%5Bsize%5D=2", "page%5bsize%5d=2"] {
        assert_eq!(list(owner, encoded).await.body, list(owner, "page[size]=2").await.body);
    }
}

async fn project_list_sorting_and_filters(world: &World) {
    for name in ["Payments", "Repay", "Ops", "a_b", "axb", "P-1", "p-22"] {
        world.project(name).await;
    }
    let owner = &world.owner;
    let by_name = ["a_b", "axb", "Default Project", "Ops", "P-1", "p-22", "Payments", "Repay"];
    assert_eq!(named(owner, "sort=name").await, by_name);
    let mut backwards = named(owner, "sort=-name").await;
    backwards.reverse();
    assert_eq!(backwards, by_name);
    for wrong in ["created-at", "--name", "name,id"] {
        assert_refused(
            &owner.get(&format!("{PROJECTS}?sort={wrong}")).await,
            400,
            &[("sort", "sort must be one of name")],
        );
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
        assert_eq!(named(owner, &format!("{query}&sort=name")).await, found, "{query}");
    }
    for all in ["filter[names]=", "filter[names]=,+,", "q=", "q=+", "filter[names]=&q="] {
        assert_eq!(counts(&list(owner, all).await), (8, 8), "{all}");
    }
    assert_eq!(counts(&list(owner, "filter[names]=p-1,P-22,zzz").await), (8, 2));
    assert_eq!(counts(&list(owner, &format!("q={}", "%25_".repeat(15_000))).await), (8, 0), "longer than any name");
    assert_eq!(owner.get(&format!("{PROJECTS}?q=%00")).await.status, 400);
    assert_eq!(owner.get("projects/prj%00").await.status, 404);
}

async fn project_list_links_keep_the_query(world: &World) {
    two_projects(world).await;
    let owner = &world.owner;
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
}

/// All ids of a list, read in pages.
async fn read_all_pages(api: &Api, query: &str, size: i64) -> Vec<String> {
    let mut all = Vec::new();
    for number in 1.. {
        let page = list(api, &format!("{query}&page[size]={size}&page[number]={number}")).await;
        all.extend(ids(&page));
        if page.body["meta"]["pagination"]["next-page"].is_null() {
            break;
        }
    }
    all
}

async fn many_projects_are_paged_in_every_order(world: &World) {
    world.many_projects(0..1249).await;
    let owner = &world.owner;
    for query in ["", "sort=name", "sort=-name", "q=many"] {
        let all = read_all_pages(owner, query, 100).await;
        let once: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!((all.len(), once.len()), if query == "q=many" { (1249, 1249) } else { (1250, 1250) }, "{query}");
        // The last pages are read backwards; they equal those of the larger page size.
        let pages = all.len().div_ceil(7);
        for number in [1, 144, pages - 1, pages] {
            let page = ids(&list(owner, &format!("{query}&page[size]=7&page[number]={number}")).await);
            let from = (number - 1) * 7;
            assert_eq!(page, all[from..all.len().min(from + 7)], "{query} {number}");
        }
        if query.is_empty() {
            assert_eq!(read_all_pages(owner, query, 100).await, all, "the same every time");
        }
    }
    let mut up = read_all_pages(owner, "sort=name", 100).await;
    let down = read_all_pages(owner, "sort=-name", 100).await;
    up.reverse();
    assert_eq!(up, down);
}

async fn project_list_for_several_teams_and_many_grants(world: &World) {
    let project = world.project("Granted").await;
    let two_teams = world.member("tom", NONE).await;
    world.grant(&two_teams.team, &project, ProjectRights::READ).await;
    let admins = world.member("ada", NONE).await;
    world.grant(&admins.team, &project, ProjectRights::ALL).await;
    world.join(&admins.team, "tom").await;
    let shown = two_teams.api.get(&format!("projects/{project}")).await;
    assert_eq!(attribute(&shown, "permissions")["can-destroy"], true, "the union counts");
    assert_eq!(named(&two_teams.api, "filter[permissions][update]").await, ["Granted"]);

    let manager = world.member("wim", NONE.with(Flag::ManageWorkspaces, true)).await;
    assert_eq!(named(&manager.api, "").await, ["Default Project"]);
    assert_eq!(named(&manager.api, "filter[permissions][create-workspace]").await, ["Default Project"]);
    assert_eq!(counts(&list(&manager.api, "filter[permissions][update]").await), (1, 0));
    let all_seeing = world.member("rea", NONE.with(Flag::ReadProjects, true)).await;
    world.grant(&all_seeing.team, &project, ProjectRights::ALL).await;
    assert_eq!(counts(&list(&all_seeing.api, "").await), (2, 2));
    assert_eq!(named(&all_seeing.api, "filter[permissions][update]").await, ["Granted"]);
    assert_eq!(counts(&list(&all_seeing.api, "filter[permissions][update]").await), (2, 1));

    // As many grants as are checked one by one, and more.
    world.many_projects(0..20_010).await;
    let updates = ProjectRights::READ.union(ProjectRights::UPDATE);
    for (person, rights) in [(&manager, ProjectRights::READ), (&all_seeing, updates), (&two_teams, updates)] {
        world.grant_many(&person.team, rights, "p.id % 2 = 0").await;
    }
    let half = 10_005;
    assert_eq!(counts(&list(&manager.api, "").await), (half + 1, half + 1));
    assert_eq!(counts(&list(&manager.api, "filter[permissions][create-workspace]").await), (half + 1, 1));
    assert_eq!(counts(&list(&manager.api, "filter[permissions][update]").await), (half + 1, 0));
    assert_eq!(counts(&list(&all_seeing.api, "filter[permissions][update]").await), (20_012, half + 1));
    let query = "filter[permissions][update]&filter[permissions][create-workspace]";
    assert_eq!(counts(&list(&two_teams.api, query).await), (half + 1, 1));
    assert_eq!(counts(&list(&two_teams.api, "q=many+1000").await).0, half + 1);
    let mut up = read_all_pages(&manager.api, "q=many+100&sort=name", 10).await;
    up.reverse();
    assert_eq!(read_all_pages(&manager.api, "q=many+100&sort=-name", 100).await, up);
    let last = list(&manager.api, &format!("page[size]=1&page[number]={}", half + 1)).await;
    assert_eq!(last.body["data"][0]["attributes"]["name"], "Default Project", "the oldest");
}

async fn project_list_filters_and_includes_tags(world: &World) {
    let owner = &world.owner;
    let with_tags =
        |name: &str, pairs: &[(&str, &str)]| related("projects", json!({ "name": name }), "tag-bindings", tags(pairs));
    let made = owner.post(PROJECTS, with_tags("Tagged", &[("a", "7"), ("b", "x")])).await.assert_status(201);
    assert_eq!(made.body["data"]["relationships"]["effective-tag-bindings"].get("data"), None);
    owner.create(PROJECTS, with_tags("Other", &[("a", "8"), ("c", "")])).await;
    let filter = |key: &str, value: &str| format!("filter[tagged][0][key]={key}&filter[tagged][0][value]={value}");
    assert_eq!(named(owner, &filter("a", "")).await, ["Other", "Tagged"]);
    assert_eq!(named(owner, &filter("a", "7")).await, ["Tagged"]);
    assert_eq!(named(owner, &format!("{}&filter[tagged][1][key]=c", filter("a", ""))).await, ["Other"]);
    assert_eq!(counts(&list(owner, &filter("zzz", "")).await), (3, 0));
    let narrow = list(owner, &format!("{}&page[size]=1", filter("a", ""))).await;
    let next = narrow.body["links"]["next"].as_str().unwrap();
    assert!(next.contains("filter%5Btagged%5D%5B0%5D%5Bkey%5D=a"), "{next}");

    let plain = list(owner, "").await;
    assert_eq!(plain.body.get("included"), None);
    assert!(plain.body["data"].as_array().unwrap().contains(&made.body["data"]));
    let including = list(owner, "include=effective-tag-bindings&q=tagged").await;
    let path = path_of(&made);
    let bindings = owner.get(&format!("{path}/tag-bindings")).await;
    let ids_of = |list: &Value| list.as_array().unwrap().iter().map(|one| one["id"].clone()).collect::<Vec<_>>();
    let included = &including.body["included"];
    assert_eq!(ids_of(included), ids_of(&bindings.body["data"]));
    assert_eq!(included[0]["type"], "effective-tag-bindings");
    assert_eq!(included[0].get("links"), None);
    let listed = &including.body["data"][0]["relationships"]["effective-tag-bindings"];
    assert_eq!(ids_of(&listed["data"]), ids_of(included));
    let mut stripped = including.body["data"][0].clone();
    stripped["relationships"]["effective-tag-bindings"].as_object_mut().unwrap().remove("data");
    assert_eq!(stripped, made.body["data"], "nothing else is different");
    let shown = owner.get(&format!("{path}?include=effective_tag_bindings")).await;
    assert_eq!((&shown.body["data"], &shown.body["included"]), (&including.body["data"][0], included));
    let all = list(owner, "include=effective_tag_bindings").await;
    assert_eq!(all.body["included"].as_array().unwrap().len(), 4);
    assert!(list(owner, "include=&page[size]=1").await.body["links"]["next"].as_str().unwrap().contains("include="));
    for wrong in [format!("{PROJECTS}?include=users"), format!("{path}?include=effective_tag_bindings,users")] {
        assert_refused(&owner.get(&wrong).await, 400, &[("include", "the include parameter")]);
    }
}
