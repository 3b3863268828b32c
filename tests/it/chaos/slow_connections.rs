//! Three nodes behind their own proxies to the database, which are slow, cut or dead at times.

use std::time::Duration;

use super::proxy::{Mode, Proxy};
use super::seed::{Seed, is_long, rounds};
use super::site::{Site, Way};
use crate::cluster::Cluster;
use crate::crash::place::Place;

#[derive(Clone, Copy, Debug)]
enum Fault {
    Delay,
    Cut,
    HalfOpen,
    Mute,
}

const ALL: [Fault; 4] = [Fault::Delay, Fault::Cut, Fault::HalfOpen, Fault::Mute];
/// Longer than any timeout of the server for its database.
const FOR_GOOD: Duration = Duration::from_secs(25);

fn inflict(fault: Fault, ways: &[&Proxy], seed: &mut Seed) {
    println!("{fault:?} of {} ways", ways.len());
    let set = |mode| ways.iter().for_each(|way| way.set(mode));
    match fault {
        Fault::Delay => {
            set(Mode::Delay(seed.millis(20..200)));
            std::thread::sleep(seed.millis(1000..2500));
            set(Mode::Pass);
        }
        Fault::Cut => {
            set(Mode::Cut);
            std::thread::sleep(seed.millis(50..2500));
            set(Mode::Pass);
        }
        Fault::HalfOpen | Fault::Mute => {
            set(if matches!(fault, Fault::Mute) { Mode::Mute } else { Mode::HalfOpen });
            std::thread::sleep(seed.millis(500..3500));
            if is_long() && seed.coin() {
                // New connections work; the old ones stay dead until the server closes them.
                set(Mode::Pass);
                std::thread::sleep(FOR_GOOD);
            } else {
                ways.iter().for_each(|way| way.forget());
            }
        }
    }
}

#[actix_web::test]
async fn nodes_lose_nothing_behind_slow_cut_or_dead_connections() {
    let mut seed = Seed::new();
    let cluster = Cluster::over_tcp();
    let place = Place::postgres(cluster.database());
    let proxies: Vec<Proxy> = (0..3).map(|_| Proxy::new(cluster.port())).collect();
    let through = |proxy: &Proxy| place.database().unwrap().url_through(proxy.port);
    let ways = proxies.iter().map(|proxy| Way { url: Some(through(proxy)), clock: None }).collect();
    let mut site = Site::start(place, ways).await;
    let faults = seed.order(&ALL, rounds(ALL.len(), 8 * ALL.len()));
    let rotates = seed.below(faults.len());
    let copies = seed.below(faults.len());
    for (round, fault) in faults.into_iter().enumerate() {
        site.works(10 + seed.below(30), 1);
        if round == copies {
            site.copy();
        }
        if round == rotates {
            site.rotate_meanwhile(seed.below(3));
        }
        let chosen = 1 + seed.below(7);
        let chosen: Vec<&Proxy> =
            proxies.iter().enumerate().filter(|(at, _)| chosen & (1 << at) != 0).map(|(_, proxy)| proxy).collect();
        inflict(fault, &chosen, &mut seed);
    }
    site.works(20, 2);
    site.judge().await;
}
