//! Three nodes on one PostgreSQL, while nodes and database crash or are suspended.

use super::seed::{Seed, rounds};
use super::site::{Site, Way};
use crate::cluster::Cluster;
use crate::crash::place::Place;
use rustix::process::Signal;

#[derive(Clone, Copy, Debug)]
enum Fault {
    Kill,
    Crash,
    KillAndCrash,
    /// The database server terminates the connections of all nodes.
    Terminated,
    /// A node is suspended, at times for longer than other nodes wait for its locks.
    Pause,
    /// The database's processes are suspended.
    Hang,
}

const ALL: [Fault; 6] = [Fault::Kill, Fault::Crash, Fault::KillAndCrash, Fault::Terminated, Fault::Pause, Fault::Hang];

fn inflict(fault: Fault, site: &mut Site, cluster: &Cluster, seed: &mut Seed) {
    // The first node rotates keys, so it is never the victim.
    let victim = 1 + seed.below(site.nodes.len() - 1);
    println!("{fault:?}, node {victim}");
    let database = |site: &Site| site.place.database().unwrap().end_connections();
    match fault {
        Fault::Kill => {
            site.kill(victim);
            site.restart(victim);
        }
        Fault::Crash => {
            cluster.stop();
            std::thread::sleep(seed.millis(0..1500));
            cluster.start();
        }
        Fault::KillAndCrash => {
            std::thread::scope(|scope| {
                scope.spawn(|| cluster.stop());
                site.kill(victim);
            });
            cluster.start();
            site.restart(victim);
        }
        Fault::Terminated => {
            for _ in 0..1 + seed.below(5) {
                database(site);
                std::thread::sleep(seed.millis(0..200));
            }
        }
        Fault::Pause => {
            site.nodes[victim].signal(Signal::STOP);
            std::thread::sleep(seed.millis(500..3500));
            site.nodes[victim].signal(Signal::CONT);
        }
        Fault::Hang => {
            let database = site.place.database().unwrap();
            database.signal_connections("STOP");
            std::thread::sleep(seed.millis(100..1500));
            if seed.coin() {
                database.end_connections();
            }
            database.signal_connections("CONT");
        }
    }
}

#[actix_web::test]
async fn three_nodes_lose_nothing_to_kills_and_crashes() {
    let mut seed = Seed::new();
    let cluster = Cluster::new();
    let mut site = Site::start(Place::postgres(cluster.database()), vec![Way::default(); 3]).await;
    let faults = seed.order(&ALL, rounds(ALL.len(), 10 * ALL.len()));
    let rotates = seed.below(faults.len());
    let copies = seed.below(faults.len());
    for (round, fault) in faults.into_iter().enumerate() {
        site.works(10 + seed.below(30), 1);
        if round == copies {
            site.copy();
        }
        if round == rotates {
            site.rotate_meanwhile(0);
        }
        inflict(fault, &mut site, &cluster, &mut seed);
    }
    site.works(20, 2);
    site.judge().await;
}
