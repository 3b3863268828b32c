//! Three nodes on one PostgreSQL, of which now one and now the other ends or stands still.

use super::seed::{Seed, rounds};
use super::site::{Site, Way};
use crate::cluster::Cluster;
use crate::crash::place::Place;
use rustix::process::Signal;

/// What happens.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// A node is killed and started again.
    Kill,
    /// The database server ends as by a crash (`pg_ctl stop -m immediate`) and is started again.
    Crash,
    /// Both at once.
    KillAndCrash,
    /// The server ends the connections of all nodes.
    Terminated,
    /// A node stands still, for longer than the others' patience with what it holds.
    Pause,
    /// The server's processes stand still.
    Hang,
}

const ALL: [Fault; 6] = [Fault::Kill, Fault::Crash, Fault::KillAndCrash, Fault::Terminated, Fault::Pause, Fault::Hang];

fn inflict(fault: Fault, site: &mut Site, cluster: &Cluster, seed: &mut Seed) {
    // The node that rotates is the first one, and is left alone.
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
    let (rotates, copies) = (seed.below(faults.len()), seed.below(faults.len()));
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
