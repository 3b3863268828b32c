//! A complete CRL with a million entries, built from rows in memory and extended by a thousand revocations, compared
//! with the SHA-256 of its bytes, which every CRL needs. The ratios are printed first; they must be at most 4 from
//! rows, and at most 2 for the extension.

use std::time::{Duration, Instant};

use signet::clock::Time;
use signet::documents::MountId;
use signet::keys::local::{KeySpec, PrivateKey};
use signet::pki::crl::batch::CrlEntryBatch;
use signet::pki::crl::entries::CrlEntries;
use signet::pki::store::{RevocationRow, StoredRevocation};
use signet::x509::algorithm::{Hash, SignatureAlgorithm};
use signet::x509::crl::CrlTbs;
use signet::x509::extension;
use signet::x509::name::{self, Attribute, rdn};
use signet::x509::serial::Serial;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ENTRIES: usize = 1_000_000;
const ADDED_ENTRIES: usize = 1_000;

fn main() {
    ratios();
    divan::main();
}

/// Kinds of serial numbers.
#[derive(Clone, Copy, Debug)]
enum Serials {
    /// Random from the first bit on.
    Random,
    /// Beginning with the time of issuance, 15 per millisecond; revoked in that order.
    InOrder,
    /// Like [`Self::InOrder`], but revoked in random order.
    Shuffled,
}

impl Serials {
    fn one(self, n: usize) -> Serial {
        let made = match self {
            Self::Random => return Serial::random(),
            Self::InOrder => n,
            Self::Shuffled => n.wrapping_mul(0x9e37_79b1) % ENTRIES,
        };
        Serial::time_based(1_760_000_000_000 + made as u64 / 15, signet::random::bytes())
    }
}

/// Rows as the store returns them, ordered by time: a revocation every 30 seconds, some with a reason.
fn rows(serials: Serials, count: usize) -> Vec<StoredRevocation> {
    let issuer = "0f6a5f5e-9d0c-4c1e-8a57-6e1f4b0d2c3a";
    let row = |n: usize| RevocationRow {
        mount: MountId(1),
        serial: serials.one(n),
        issuer: issuer.to_owned(),
        revoked_at: Time::from_unix_timestamp(1_880_000_000 + 30 * n as i64).expect("benchmark inputs are sound"),
        not_after: 2_000_000_000 + n as i64,
        reason: [Some(1), Some(4), None, Some(5)][n % 4],
        invalidity_date: None,
    };
    (0..count).map(|n| StoredRevocation { row: row(n), sequence: n as u64 + 1 }).collect()
}

fn batch(rows: &[StoredRevocation]) -> CrlEntryBatch {
    let mut batch = CrlEntryBatch::default();
    rows.iter().for_each(|revocation| batch.add(&revocation.row));
    batch
}

/// Signs a CRL with the entries and returns its length.
fn signed(key: &PrivateKey, entries: &CrlEntries) -> usize {
    let algorithm = SignatureAlgorithm::for_issuer(key.kind(), 0, false).expect("benchmark inputs are sound");
    let issuer = name::name(&[&rdn(Attribute::CommonName, &["Bench Root".to_owned()])]);
    let authority = extension::authority_key_id(&key.public().key_id());
    let number = extension::crl_number(7);
    let (this_update, next_update) = (1_900_000_000, 1_900_259_200);
    let tbs = CrlTbs { algorithm, issuer: &issuer, this_update, next_update, extensions: &[&authority, &number] };
    let tbs = tbs.encode(entries.pieces());
    let signature = key.sign_pieces(algorithm, tbs.pieces()).expect("benchmark inputs are sound");
    tbs.signed(algorithm, &signature).iter().map(bytes::Bytes::len).sum()
}

fn key() -> PrivateKey {
    let spec = KeySpec::new("ec", 256).expect("benchmark inputs are sound");
    PrivateKey::generate(spec).expect("benchmark inputs are sound")
}

fn best<T>(mut work: impl FnMut() -> T) -> Duration {
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let started = Instant::now();
        divan::black_box(work());
        best = best.min(started.elapsed());
    }
    best
}

fn ratios() {
    for serials in [Serials::Random, Serials::InOrder, Serials::Shuffled] {
        println!("serial numbers: {serials:?}");
        ratios_of(serials);
    }
}

fn ratios_of(serials: Serials) {
    let (key, rows, more) = (key(), rows(serials, ENTRIES), rows(serials, ADDED_ENTRIES));
    let entries = CrlEntries::default().with_batch(batch(&rows));
    let whole = entries.pieces().concat();
    let floor = best(|| Hash::Sha256.digest(&whole));
    let from_rows = best(|| signed(&key, &CrlEntries::default().with_batch(batch(&rows))));
    let after_more = best(|| signed(&key, &entries.with_batch(batch(&more))));
    let shown = |name: &str, took: Duration| {
        let ratio = took.as_secs_f64() / floor.as_secs_f64();
        println!("{name:<36} {:>8.1} ms   {ratio:.2} x", took.as_secs_f64() * 1e3);
    };
    println!("{ENTRIES} entries, {} bytes", whole.len());
    shown("SHA-256 of the bytes", floor);
    shown("complete CRL from rows in memory", from_rows);
    shown("complete CRL after 1,000 more", after_more);
}

#[divan::bench(sample_count = 5, sample_size = 1)]
fn from_rows(bencher: divan::Bencher<'_, '_>) {
    let (key, rows) = (key(), rows(Serials::InOrder, ENTRIES));
    bencher.bench_local(|| signed(&key, &CrlEntries::default().with_batch(batch(&rows))));
}

#[divan::bench(sample_count = 5, sample_size = 1)]
fn after_more(bencher: divan::Bencher<'_, '_>) {
    let (key, entries) = (key(), CrlEntries::default().with_batch(batch(&rows(Serials::InOrder, ENTRIES))));
    let more = rows(Serials::InOrder, ADDED_ENTRIES);
    bencher.bench_local(|| signed(&key, &entries.with_batch(batch(&more))));
}
