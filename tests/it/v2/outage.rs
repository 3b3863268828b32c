//! PostgreSQL crashes and restarts while clients create, fill, empty and delete projects: requests get a 503, and no
//! change is incomplete afterwards.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::json;

use super::fixture::{Api, PROJECTS, WORKSPACES, World, id_of, in_project, these};
use crate::cluster::Cluster;
use crate::support::{Answer, App};

const CLIENTS: usize = 8;

#[derive(Default)]
struct Told {
    over: Cell<bool>,
    successes: Cell<u32>,
    outages: Cell<u32>,
    /// Names of projects that were created and not deleted.
    standing: RefCell<BTreeSet<String>>,
}

impl Told {
    /// Records a response and returns `true` for a success. Anything else must be an outage, or follow from a write
    /// with an unknown outcome.
    fn record_answer(&self, answer: &Answer) -> bool {
        match answer.status {
            200..300 => self.successes.set(self.successes.get() + 1),
            503 => {
                assert!(!answer.header("retry-after").is_empty(), "{}", answer.text);
                assert_eq!(answer.body["errors"][0]["status"], "503", "{}", answer.text);
                self.outages.set(self.outages.get() + 1);
            }
            404 | 409 | 422 if self.outages.get() > 0 => {}
            status => panic!("{status}: {}", answer.text),
        }
        (200..300).contains(&answer.status)
    }
}

/// Creates projects with a workspace, moves each workspace to the first project, and deletes the other projects.
async fn client(api: Api, number: usize, told: Rc<Told>) {
    let mut home = None;
    for round in 0.. {
        if told.over.get() {
            return;
        }
        let name = format!("p-{number}-{round}");
        let made = api.add(PROJECTS, json!({ "name": name })).await;
        if !told.record_answer(&made) {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        }
        told.standing.borrow_mut().insert(name.clone());
        let project = id_of(&made);
        let workspace = api.post(WORKSPACES, in_project(&project, json!({ "name": name }))).await;
        if !told.record_answer(&workspace) {
            continue;
        }
        let Some(home) = &home else {
            home = Some(project);
            continue;
        };
        let moved = these("workspaces", &[id_of(&workspace)]);
        if told.record_answer(&api.post(&format!("projects/{home}/relationships/workspaces"), moved).await)
            && round % 2 == 0
        {
            told.standing.borrow_mut().remove(&name);
            told.record_answer(&api.delete(&format!("projects/{project}")).await);
        }
    }
}

#[actix_web::test]
async fn postgres_restart_under_load_is_503_and_changes_stay_complete() {
    let cluster = Cluster::new();
    let world = World::of(App::builder().postgres_of(&cluster)).await;
    let told = Rc::new(Told::default());
    let clients = (0..CLIENTS).map(|n| client(world.owner.clone(), n, Rc::clone(&told)));
    let script = async {
        let until = async |what: &str, reached: &dyn Fn() -> bool| {
            let deadline = Instant::now() + Duration::from_secs(30);
            while !reached() {
                assert!(Instant::now() < deadline, "{what}");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        until("it works", &|| told.successes.get() > 100).await;
        let of_cluster = cluster.clone();
        tokio::task::spawn_blocking(move || of_cluster.stop()).await.unwrap();
        until("an outage is told", &|| told.outages.get() > 20).await;
        let of_cluster = cluster.clone();
        tokio::task::spawn_blocking(move || of_cluster.start()).await.unwrap();
        let before = told.successes.get();
        until("it works again", &|| told.successes.get() > before + 100).await;
        told.over.set(true);
    };
    tokio::join!(join_all(clients), script);

    let database = world.app.database();
    let wrong = "SELECT count(*) FROM projects p WHERE p.workspace_count <>
        (SELECT count(*) FROM workspaces w WHERE w.project_id = p.id)";
    assert_eq!(database.psql(wrong), "0", "counters of projects against a full scan");
    let of_organization = "SELECT o.project_count = (SELECT count(*) FROM projects)
        AND o.workspace_count = (SELECT count(*) FROM workspaces) FROM organizations o";
    assert_eq!(database.psql(of_organization), "t", "counters of the organization");
    let stored = database.psql("SELECT name FROM projects");
    let stored: BTreeSet<&str> = stored.lines().collect();
    let standing = told.standing.take();
    let lost: Vec<_> = standing.iter().filter(|name| !stored.contains(name.as_str())).collect();
    assert!(lost.is_empty() && standing.len() > 20, "answered as made, and gone: {lost:?}");
    world.app.stop().await;
}
