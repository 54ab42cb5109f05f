//! Samples that have not been merged yet.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// How many threads record beside each other without touching the same memory.
const SHARDS: usize = 4;

/// Room for so many samples in each shard. A power of two.
const SLOTS: usize = 2048;

/// A bounded buffer that many threads put samples into and one at a time takes them from.
///
/// A sample is a number of nanoseconds as an `f32`, whose 24 bits of precision are more than a clock's.
/// Memory is taken when a thread first records: 8 KiB a shard.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    shards: [Shard; SHARDS],
    lost: AtomicU64,
}

/// On cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    /// Where the next sample goes; grows for ever, wrapping.
    head: AtomicUsize,
    /// Up to where samples have been taken.
    taken: AtomicUsize,
    slots: OnceLock<Box<[AtomicU32]>>,
}

/// An empty slot. No sample has these bits: zero is recorded as one nanosecond.
const EMPTY: u32 = 0;

impl Buffer {
    /// The largest batch: a full shard less some room for what comes while it is merged.
    pub(super) const BATCH: usize = SLOTS / 4 * 3;

    /// Puts a sample in, or counts it as lost when there is no room. Gives the number of samples that
    /// wait beside it.
    pub(super) fn put(&self, nanos: f32) -> usize {
        let bits = nanos.clamp(1.0, f32::MAX).to_bits();
        let Some(shard) = self.shards.get(this_shard()) else {
            return 0; // `this_shard` is below the number of shards
        };
        let slots = shard
            .slots
            .get_or_init(|| (0..SLOTS).map(|_| AtomicU32::new(EMPTY)).collect());
        let mut head = shard.head.load(Ordering::Relaxed);
        let waiting = loop {
            // Acquire: what has been taken has left its slot.
            let taken = shard.taken.load(Ordering::Acquire);
            let waiting = head.wrapping_sub(taken);
            if waiting > usize::MAX / 2 {
                // So many others came by since the head was read that it has been taken already.
                head = shard.head.load(Ordering::Relaxed);
                continue;
            }
            if waiting >= SLOTS {
                self.lost.fetch_add(1, Ordering::Relaxed);
                return waiting;
            }
            // A place is claimed only while there is one: a claim beyond it would land in a slot that
            // is still another's, and the taker would wait for one of the two for ever.
            match shard.head.compare_exchange_weak(
                head,
                head.wrapping_add(1),
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => break waiting,
                Err(other) => head = other,
            }
        };
        if let Some(slot) = slots.get(head % SLOTS) {
            slot.store(bits, Ordering::Release);
        }
        waiting + 1
    }

    /// Takes what is there. By one thread at a time.
    pub(super) fn take(&self, samples: &mut Vec<f64>) {
        for shard in &self.shards {
            let Some(slots) = shard.slots.get() else {
                continue;
            };
            let head = shard.head.load(Ordering::Relaxed);
            let mut at = shard.taken.load(Ordering::Relaxed);
            while at != head {
                let bits = slots
                    .get(at % SLOTS)
                    .map_or(EMPTY, |slot| slot.swap(EMPTY, Ordering::Acquire));
                if bits == EMPTY {
                    break; // claimed and not filled yet: next time
                }
                samples.push(f64::from(f32::from_bits(bits)));
                at = at.wrapping_add(1);
            }
            shard.taken.store(at, Ordering::Release);
        }
    }

    /// How many samples there was no room for.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// The shard of this thread. Threads are dealt round.
fn this_shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    SHARD.with(|shard| {
        if shard.get() == usize::MAX {
            shard.set(NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS);
        }
        shard.get()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn what_is_put_in_is_taken_once() {
        let buffer = Buffer::default();
        for i in 1..=100_u16 {
            assert_eq!(buffer.put(f32::from(i)), usize::from(i));
        }
        let mut taken = Vec::new();
        buffer.take(&mut taken);
        assert_eq!(taken, (1..=100).map(f64::from).collect::<Vec<_>>());
        buffer.take(&mut taken);
        assert_eq!(taken.len(), 100);
    }

    #[test]
    fn what_there_is_no_room_for_is_counted() {
        let buffer = Buffer::default();
        for _ in 0..SLOTS + 10 {
            buffer.put(1.0);
        }
        assert_eq!(buffer.lost(), 10);
        let mut taken = Vec::new();
        buffer.take(&mut taken);
        assert_eq!(taken.len(), SLOTS);
        buffer.put(1.0);
        assert_eq!(buffer.lost(), 10);
    }

    #[test]
    fn extremes_are_samples() {
        let buffer = Buffer::default();
        for odd in [0.0, -1.0, f32::MAX, f32::INFINITY, f32::MIN_POSITIVE] {
            buffer.put(odd);
        }
        let mut taken = Vec::new();
        buffer.take(&mut taken);
        assert_eq!(taken.len(), 5);
        assert!(taken.iter().all(|t| t.is_finite() && *t >= 1.0));
    }

    #[test]
    fn eight_threads_lose_nothing_that_there_was_room_for() {
        let buffer = Buffer::default();
        let done = AtomicBool::new(false);
        let (mut taken, mut rest) = (0, Vec::new());
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        for i in 1..=50_000_u32 {
                            buffer.put(f32::from_bits(i));
                            if i % 100 == 0 {
                                std::thread::yield_now();
                            }
                        }
                    })
                })
                .collect();
            let consumer = scope.spawn(|| {
                let mut taken = 0;
                let mut batch = Vec::new();
                while !done.load(Ordering::Acquire) {
                    buffer.take(&mut batch);
                    taken += batch.len();
                    batch.clear();
                }
                taken
            });
            for writer in writers {
                writer.join().unwrap();
            }
            done.store(true, Ordering::Release);
            taken = consumer.join().unwrap();
        });
        buffer.take(&mut rest);
        let all = taken as u64 + rest.len() as u64 + buffer.lost();
        assert_eq!(all, 8 * 50_000);
    }
}
