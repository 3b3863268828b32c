//! Reference measurements of this machine, taken in the same run. Results of different machines and times can only be
//! compared relative to them.

use std::io::Write as _;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use crate::environment::Facts;

/// Number of RSA keys whose mean generation time is measured. The times vary several-fold, so a few keys are not
/// enough.
const RSA_KEYS: u32 = 400;
const RSA_TIME: Duration = Duration::from_secs(30);
/// Fixed part of [`Anchors::p99_allowance_ms`], in milliseconds.
const P99_MS: f64 = 15.0;

/// Times per operation on one core, in microseconds unless the name says otherwise.
#[derive(Default)]
pub(crate) struct Anchors {
    pub(crate) p256_sign: f64,
    pub(crate) p256_verify: f64,
    pub(crate) p256_keygen: f64,
    /// SHA-256 of 64 MiB, in milliseconds.
    pub(crate) sha256_64mib_ms: f64,
    pub(crate) fdatasync: f64,
    pub(crate) fdatasync_p50: f64,
    pub(crate) fdatasync_p99: f64,
    /// Mean time to generate an RSA-2048 key, in milliseconds; `None` unless the run generates such keys.
    pub(crate) rsa_2048_keygen_ms: Option<f64>,
    pub(crate) cores: usize,
}

impl Anchors {
    /// Returns the p99 that this disk allows for durable requests, in milliseconds. A request may wait for the commit
    /// in progress, for its own, and for one that the disk delays.
    pub(crate) fn p99_allowance_ms(&self) -> f64 {
        P99_MS + 3.0 * self.fdatasync_p99 / 1000.0
    }

    /// Returns the SHA-256 throughput of one core.
    pub(crate) fn sha256_gb_per_second(&self) -> f64 {
        f64::from(64 << 20) / self.sha256_64mib_ms / 1e6
    }

    /// Returns the RSA-2048 keys per second that all cores generate together.
    pub(crate) fn rsa_2048_per_second(&self) -> Option<f64> {
        self.rsa_2048_keygen_ms.map(|ms| self.cores as f64 * 1000.0 / ms)
    }

    /// Returns the measurements for the text and the page of a report.
    pub(crate) fn facts(&self) -> Facts {
        let rsa = self
            .rsa_2048_keygen_ms
            .zip(self.rsa_2048_per_second())
            .map(|(ms, limit)| format!("{ms:.1} ms, so at most {limit:.1} per second on {} cores", self.cores));
        let allowance = format!("{:.2} ms (15 ms and three times the p99 of fdatasync)", self.p99_allowance_ms());
        let facts = [
            ("P-256 sign", Some(format!("{:.1} µs", self.p256_sign))),
            ("P-256 verify", Some(format!("{:.1} µs", self.p256_verify))),
            ("P-256 key", Some(format!("{:.1} µs", self.p256_keygen))),
            ("RSA-2048 key", rsa),
            ("SHA-256", Some(format!("{:.2} GB/s", self.sha256_gb_per_second()))),
            ("fdatasync of 8 KiB", Some(format!("p50 {:.0} µs, p99 {:.0} µs", self.fdatasync_p50, self.fdatasync_p99))),
            ("p99 allowance", Some(allowance)),
        ];
        facts.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text?))).collect()
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "cores": self.cores,
            "p256_sign_us": self.p256_sign,
            "p256_verify_us": self.p256_verify,
            "p256_keygen_us": self.p256_keygen,
            "rsa_2048_keygen_ms": self.rsa_2048_keygen_ms,
            "rsa_2048_keys_per_second": self.rsa_2048_per_second(),
            "sha256_64mib_ms": self.sha256_64mib_ms,
            "fdatasync_us": self.fdatasync,
            "fdatasync_p50_us": self.fdatasync_p50,
            "fdatasync_p99_us": self.fdatasync_p99,
        })
    }
}

/// Measures the anchors. `folder` is on the disk to be measured; `rsa` includes RSA key generation.
pub(crate) fn measure(folder: &Path, rsa: bool) -> Result<Anchors, String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
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
        fdatasync_p50: syncs[syncs.len() / 2],
        fdatasync_p99: syncs[syncs.len() * 99 / 100],
        rsa_2048_keygen_ms: if rsa { Some(rsa_keygen_ms(cores)?) } else { None },
        cores,
    })
}

/// Returns the mean time of an RSA-2048 key in milliseconds while all `cores` generate keys: a core is faster while the
/// others are idle.
fn rsa_keygen_ms(cores: usize) -> Result<f64, String> {
    let started = Instant::now();
    let made = AtomicU32::new(0);
    let generate = || {
        while made.fetch_add(1, Ordering::Relaxed) < RSA_KEYS && started.elapsed() < RSA_TIME {
            RsaKeyPair::generate(KeySize::Rsa2048).map_err(|e| e.to_string())?;
        }
        Ok::<_, String>(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(generate)).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| "a measuring thread panicked".to_owned())?)
    })?;
    // Each thread incremented the counter once more before it stopped.
    let made = made.into_inner() as usize - cores;
    Ok(started.elapsed().as_secs_f64() * 1000.0 * cores as f64 / made as f64)
}

/// Returns the median over nine blocks of the mean time of `operation`, in microseconds.
pub(crate) fn micros<T>(count: u32, mut operation: impl FnMut() -> T) -> f64 {
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

/// Returns the CPU time of an operation in microseconds while `threads` threads run it concurrently, as on a busy
/// server: busy neighbor cores and locks in a module slow it down. `begin` creates the operation of a thread. The
/// result is the median over nine blocks of the mean over all threads.
pub(crate) fn busy_micros<T, W: FnMut() -> T>(
    threads: usize,
    count: u32,
    begin: impl Fn() -> Result<W, String> + Sync,
) -> Result<f64, String> {
    const BLOCKS: usize = 9;
    let together = Barrier::new(threads);
    let work = || {
        let mut begun = begin();
        let blocks = [(); BLOCKS].map(|()| {
            // A thread whose `begin` failed also reaches the barrier, or the others would wait forever.
            together.wait();
            let before = thread_micros();
            if let Ok(operation) = &mut begun {
                (0..count).for_each(|_| drop(std::hint::black_box(operation())));
            }
            (thread_micros() - before) / f64::from(count)
        });
        begun.map(|_| blocks)
    };
    let all: Result<Vec<[f64; BLOCKS]>, String> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running.into_iter().map(|thread| thread.join().map_err(|_| "a measuring thread panicked".to_owned())?).collect()
    });
    let all = all?;
    let mean = |block: usize| all.iter().map(|blocks| blocks[block]).sum::<f64>() / threads as f64;
    let mut means: Vec<f64> = (0..BLOCKS).map(mean).collect();
    means.sort_by(f64::total_cmp);
    Ok(means[BLOCKS / 2])
}

/// Returns the CPU time of this thread in microseconds.
pub(crate) fn thread_micros() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// Returns the sorted times of 1000 durable appends of 8 KiB, in microseconds.
fn fdatasyncs(folder: &Path) -> std::io::Result<Vec<f64>> {
    // Concurrent measurements may use the same folder.
    static PROBES: AtomicU32 = AtomicU32::new(0);
    let number = PROBES.fetch_add(1, Ordering::Relaxed);
    let path = folder.join(format!("fdatasync-{}-{number}.probe", std::process::id()));
    let mut file = std::fs::File::create(&path)?;
    let mut times = Vec::with_capacity(1000);
    for _ in 0..1000 {
        let started = Instant::now();
        file.write_all(&[0; 8192])?;
        rustix::fs::fdatasync(&file)?;
        times.push(started.elapsed().as_secs_f64() * 1e6);
    }
    std::fs::remove_file(path)?;
    times.sort_by(f64::total_cmp);
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_threads_are_measured_and_end_after_a_failed_start() {
        let add = || Ok(|| (0..1000_u64).map(std::hint::black_box).sum::<u64>());
        assert!(busy_micros(2, 10, add).unwrap() > 0.0);
        let first = std::sync::atomic::AtomicBool::new(true);
        let one_fails = || match first.swap(false, Ordering::Relaxed) {
            true => Err("no session".to_owned()),
            false => Ok(|| ()),
        };
        assert_eq!(busy_micros(2, 10, one_fails), Err("no session".to_owned()));
    }

    #[test]
    fn anchors_are_positive_and_determine_limits() {
        let folder = tempfile::tempdir().unwrap();
        let mut times = fdatasyncs(folder.path()).unwrap();
        assert!(times.is_sorted() && times.remove(0) > 0.0);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the probe is removed");
        let anchors = Anchors {
            sha256_64mib_ms: 1.0,
            fdatasync_p99: 500.0,
            rsa_2048_keygen_ms: Some(50.0),
            cores: 4,
            ..Anchors::default()
        };
        assert_eq!(anchors.p99_allowance_ms(), 16.5);
        assert_eq!(anchors.rsa_2048_per_second(), Some(80.0));
        assert_eq!(anchors.sha256_gb_per_second(), 67.108_864);
    }
}
