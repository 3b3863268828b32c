//! What this machine can do at best, measured in the same run: figures of different machines and
//! moments compare only as fractions of it.

use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
};

/// The machine's floor, in microseconds per operation on one core.
pub(crate) struct Anchors {
    pub(crate) p256_sign: f64,
    pub(crate) p256_verify: f64,
    pub(crate) p256_keygen: f64,
    /// SHA-256 of 64 MiB, milliseconds.
    pub(crate) sha256_64mib_ms: f64,
    pub(crate) fdatasync: f64,
    pub(crate) fdatasync_p99: f64,
}

/// Measures the anchors; `folder` is where durability is measured.
pub(crate) fn measure(folder: &Path) -> Result<Anchors, String> {
    let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).map_err(|e| e.to_string())?;
    let message = [7u8; 700];
    let random = SystemRandom::new();
    let signature = key.sign(&random, &message).map_err(|e| e.to_string())?;
    let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, key.public_key().as_ref());
    let block = vec![1u8; 64 << 20];
    let syncs = fdatasyncs(folder).map_err(|e| format!("measuring fdatasync in {}: {e}", folder.display()))?;
    Ok(Anchors {
        p256_sign: micros(2000, || key.sign(&random, &message)),
        p256_verify: micros(1000, || public.verify(&message, signature.as_ref())),
        p256_keygen: micros(2000, || EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING)),
        sha256_64mib_ms: micros(1, || digest(&SHA256, &block)) / 1000.0,
        fdatasync: syncs.iter().sum::<f64>() / syncs.len() as f64,
        fdatasync_p99: syncs[syncs.len() * 99 / 100],
    })
}

/// Median over nine blocks of the mean time of `operation`.
fn micros<T>(count: u32, mut operation: impl FnMut() -> T) -> f64 {
    let mut blocks: Vec<f64> = (0..9)
        .map(|_| {
            let started = Instant::now();
            (0..count).for_each(|_| drop(std::hint::black_box(operation())));
            started.elapsed().as_secs_f64() * 1e6 / f64::from(count)
        })
        .collect();
    blocks.sort_by(f64::total_cmp);
    blocks[blocks.len() / 2]
}

/// Times of 500 appends of 8 KiB, each made durable, in microseconds, sorted.
fn fdatasyncs(folder: &Path) -> std::io::Result<Vec<f64>> {
    let path = folder.join("fdatasync.probe");
    let mut file = std::fs::File::create(&path)?;
    let mut times = Vec::with_capacity(500);
    for _ in 0..500 {
        let started = Instant::now();
        file.write_all(&[0; 8192])?;
        rustix::fs::fdatasync(&file)?;
        times.push(started.elapsed().as_secs_f64() * 1e6);
    }
    std::fs::remove_file(path)?;
    times.sort_by(f64::total_cmp);
    Ok(times)
}
