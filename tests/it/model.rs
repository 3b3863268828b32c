//! Compares revocation with an in-memory model. A seed determines the steps: requests, changes of settings and issuers,
//! tidy, clock steps, crashes and store faults. After each step the served CRLs must be what the model permits.
//!
//! [`world`] is the model, [`ask`] draws requests and learns from their responses, [`look`] compares, [`run`] orders
//! the steps, [`life`] is a server that can crash inside this process.
//!
//! A failure prints the seed and the last steps. `MODEL_SEED=7 MODEL_STEPS=5000 MODEL_RUNS=50` selects them; races may
//! make two runs of a seed differ.

mod ask;
mod life;
mod look;
pub mod random;
mod run;
mod world;

use self::run::run;

/// Seconds by which thisUpdate of a CRL is backdated.
pub const BACKDATING: i64 = 30;
/// Steps of a run by default.
const STEPS: u64 = 150;
/// Runs by default, each with its own seed.
const RUNS: u64 = 3;

fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().expect("a number"))
}

async fn all(postgres: bool) {
    let first = setting("MODEL_SEED", 1);
    let steps = setting("MODEL_STEPS", STEPS);
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
