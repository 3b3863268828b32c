//! Revocation against a model in memory: certificates are issued and revoked, lists rotated, settings and
//! issuers changed, what has expired is tidied, the clock steps forwards and now and then a little
//! backwards, the server crashes, its store fails, in an order that a seed gives. After every step the lists
//! that are served, and now and then everything else that tells of revocations, must be what the model
//! allows.
//!
//! [`world`] is the model: what is stored, and what each list must and may hold. [`ask`] draws requests
//! and learns from their answers, [`look`] holds what is served against the model, [`run`] is the order of
//! the steps, [`life`] a server that can crash inside this process.
//!
//! A failure prints the seed and the last steps. `MODEL_SEED=7 MODEL_STEPS=5000` plays another order, longer;
//! `MODEL_RUNS=50` that many seeds in a row. Where requests race, or a crash cuts them short, the same seed
//! may come out in more than one way: play it a few times.

mod ask;
mod life;
mod look;
pub mod random;
mod run;
mod world;

use self::run::run;

/// Seconds by which thisUpdate of a list is backdated.
pub const BACKDATING: i64 = 30;
/// Steps of a run, unless `MODEL_STEPS` says otherwise.
const STEPS: u64 = 150;
/// Runs with a seed each, unless `MODEL_RUNS` says otherwise.
const RUNS: u64 = 3;

/// A number from the environment.
fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().expect("a number"))
}

async fn all(postgres: bool) {
    let (first, steps) = (setting("MODEL_SEED", 1), setting("MODEL_STEPS", STEPS));
    for seed in first..first + setting("MODEL_RUNS", RUNS) {
        run(seed, steps, postgres).await;
        println!("MODEL_SEED={seed}: {steps} steps");
    }
}

#[actix_web::test]
async fn the_embedded_store_keeps_to_the_model() {
    all(false).await;
}

#[actix_web::test]
async fn postgresql_keeps_to_the_model() {
    all(true).await;
}
