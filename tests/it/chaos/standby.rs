//! The database server of three nodes stops, and its synchronous standby takes over.

use super::seed::{Seed, rounds};
use super::site::{Site, Way};
use crate::crash::place::Place;
use crate::nodes::failover::pair;

async fn failover(seed: &mut Seed) {
    let (primary, database, standby) = pair();
    let place = Place::with_standby(database, &standby);
    let mut site = Site::start(place, vec![Way::default(); 3]).await;
    site.works(20 + seed.below(60), 2);
    site.copy();
    let rotates_before = seed.coin();
    let kills = seed.coin();
    let victim = 1 + seed.below(2);
    if rotates_before {
        site.rotate_meanwhile(0);
        std::thread::sleep(seed.millis(0..60));
    }
    println!("failover, kills {victim}: {kills}, rotates before: {rotates_before}");
    std::thread::scope(|scope| {
        scope.spawn(|| primary.stop());
        if kills {
            site.kill(victim);
        }
    });
    if !rotates_before {
        site.rotate_meanwhile(0);
    }
    std::thread::sleep(seed.millis(0..1500));
    standby.promote();
    site.place.moved_to(&standby);
    if kills {
        site.restart(victim);
    }
    site.works(20, 2);
    site.judge().await;
}

#[actix_web::test]
async fn nodes_lose_nothing_on_synchronous_standby_failover() {
    let mut seed = Seed::new();
    for _ in 0..rounds(1, 8) {
        failover(&mut seed).await;
    }
}
