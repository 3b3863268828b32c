//! The course of a run: responses and errors per slot of time, and CPU time and memory of the server. A long run has
//! longer slots instead of more slots, so memory is bounded.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::histogram::LatencyHistogram;
use crate::proc::{self, WatchedProcesses};

/// Maximum number of slots; beyond it, slots become twice as long.
const MAX_SLOTS: usize = 600;
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// The responses in one slot.
#[derive(Clone, Debug, Default)]
pub(crate) struct TimelineSlot {
    pub(crate) latencies: LatencyHistogram,
    pub(crate) errors: u64,
}

/// Responses by time of arrival.
#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    /// Duration of a slot in whole seconds.
    pub(crate) width: Duration,
    pub(crate) slots: Vec<TimelineSlot>,
}

impl Default for Timeline {
    fn default() -> Self {
        Self { width: SAMPLE_INTERVAL, slots: Vec::new() }
    }
}

impl Timeline {
    /// Returns the slot of a time since the start of the run.
    pub(crate) fn at(&mut self, since: Duration) -> &mut TimelineSlot {
        let mut number = (since.as_nanos() / self.width.as_nanos()) as usize;
        while number >= MAX_SLOTS {
            self.width *= 2;
            number /= 2;
            let pairs = self.slots.chunks(2).map(|pair| {
                let mut sum = pair[0].clone();
                if let Some(next) = pair.get(1) {
                    sum.latencies.add(&next.latencies);
                    sum.errors += next.errors;
                }
                sum
            });
            self.slots = pairs.collect();
        }
        if number >= self.slots.len() {
            self.slots.resize(number + 1, TimelineSlot::default());
        }
        &mut self.slots[number]
    }
}

/// State of the watched processes at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sample {
    /// Seconds since the start of the run.
    pub(crate) at: f64,
    /// CPU seconds so far, including the database.
    pub(crate) cpu: Option<f64>,
    /// Resident memory of the server in MiB.
    pub(crate) resident_mib: Option<f64>,
}

/// Samples the watched processes every second, on a separate thread, because reading `/proc` takes longer than a
/// response.
pub(crate) struct Sampler {
    stop: Sender<()>,
    thread: JoinHandle<Vec<Sample>>,
}

impl Sampler {
    pub(crate) fn start(watched: WatchedProcesses) -> Self {
        let (stop, stopped) = channel::<()>();
        let begun = Instant::now();
        let thread = std::thread::spawn(move || {
            let mut samples = ThinnedSamples::default();
            let mut over = false;
            loop {
                samples.push(Sample {
                    at: begun.elapsed().as_secs_f64(),
                    cpu: watched.read().sum(),
                    resident_mib: watched.server.and_then(proc::resident_mib),
                });
                if over {
                    return samples.kept;
                }
                over = stopped.recv_timeout(SAMPLE_INTERVAL) != Err(RecvTimeoutError::Timeout);
            }
        });
        Self { stop, thread }
    }

    /// Stops sampling and returns the samples; none if no process is watched.
    pub(crate) fn stop(self) -> Vec<Sample> {
        drop(self.stop);
        let mut samples = self.thread.join().unwrap_or_default();
        samples.retain(|sample| sample.cpu.is_some() || sample.resident_mib.is_some());
        samples
    }
}

/// At most twice [`MAX_SLOTS`] samples. When that is reached, every other sample is removed, and from then on only half
/// as many samples are kept.
#[derive(Default)]
struct ThinnedSamples {
    kept: Vec<Sample>,
    seen: usize,
    skip: usize,
}

impl ThinnedSamples {
    fn push(&mut self, sample: Sample) {
        if self.seen.is_multiple_of(self.skip + 1) {
            self.kept.push(sample);
        }
        self.seen += 1;
        if self.kept.len() > 2 * MAX_SLOTS {
            let mut odd = true;
            self.kept.retain(|_| {
                odd = !odd;
                !odd
            });
            self.skip = 2 * self.skip + 1;
        }
    }
}

/// Returns the busy cores between samples, as pairs of seconds and cores.
pub(crate) fn cores(samples: &[Sample]) -> Vec<(f64, f64)> {
    let spent = |pair: &[Sample]| {
        let seconds = pair[1].at - pair[0].at;
        Some((pair[1].at, (pair[1].cpu? - pair[0].cpu?) / seconds)).filter(|_| seconds > 0.05)
    };
    samples.windows(2).filter_map(spent).collect()
}

/// Returns the relative change of the mean memory from the third quarter to the last; `None` with too few samples.
pub(crate) fn drift(samples: &[Sample]) -> Option<f64> {
    let memory: Vec<f64> = samples.iter().filter_map(|sample| sample.resident_mib).collect();
    let quarter = memory.len() / 4;
    if quarter == 0 {
        return None;
    }
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    let (before, last) = memory[memory.len() - 2 * quarter..].split_at(quarter);
    Some((mean(last) - mean(before)) / mean(before))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeline_of_a_long_run_has_longer_slots() {
        let mut timeline = Timeline::default();
        for second in 0..3000 {
            let slot = timeline.at(Duration::from_millis(second * 1000 + 999));
            slot.latencies.record(second);
            slot.errors += 1;
        }
        assert_eq!((timeline.width.as_secs(), timeline.slots.len()), (8, 375));
        assert_eq!(timeline.slots.iter().map(|slot| slot.latencies.count()).sum::<u64>(), 3000);
        assert_eq!(timeline.slots[1].errors, 8);
        assert_eq!(timeline.slots[1].latencies.percentile_ms(100.0), 0.015);
    }

    #[test]
    fn samples_of_a_long_run_are_thinned_evenly() {
        let mut samples = ThinnedSamples::default();
        (0..10_000_u32).for_each(|at| samples.push(Sample { at: at.into(), cpu: None, resident_mib: None }));
        let kept = samples.kept;
        assert!((MAX_SLOTS..=2 * MAX_SLOTS).contains(&kept.len()), "{}", kept.len());
        let steps: Vec<f64> = kept.windows(2).map(|pair| pair[1].at - pair[0].at).collect();
        assert!(kept[0].at == 0.0 && steps.iter().all(|step| *step == steps[0]), "{steps:?}");
    }

    fn sample(at: f64, cpu: f64, resident_mib: f64) -> Sample {
        Sample { at, cpu: Some(cpu), resident_mib: Some(resident_mib) }
    }

    #[test]
    fn cores_are_cpu_time_by_time() {
        let samples = [sample(0.0, 1.0, 1.0), sample(2.0, 4.0, 1.0), sample(3.0, 4.5, 1.0)];
        assert_eq!(cores(&samples), [(2.0, 1.5), (3.0, 0.5)]);
        assert_eq!(cores(&samples[..1]), []);
    }

    #[test]
    fn drift_is_the_last_quarter_relative_to_the_one_before() {
        let of = |memory: &[f64]| drift(&memory.iter().map(|mib| sample(0.0, 0.0, *mib)).collect::<Vec<_>>());
        assert_eq!(of(&[1.0, 2.0, 50.0, 100.0, 100.0, 100.0, 110.0, 110.0]), Some(0.1));
        assert_eq!(of(&[1.0, 2.0, 3.0]), None);
    }

    #[test]
    fn sampler_samples_this_process_and_ends_on_stop() {
        let sampler = Sampler::start(WatchedProcesses { server: Some(std::process::id()), postgres: None });
        let samples = sampler.stop();
        assert!(samples[0].resident_mib.unwrap() > 1.0 && samples[0].cpu.is_some());
        assert!(Sampler::start(WatchedProcesses::default()).stop().is_empty());
    }
}
