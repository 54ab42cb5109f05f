//! Interleaved rounds: each runs every variant, in an order that rotates.

use std::time::Duration;

/// A variant: runs so many times, and says how long that took.
pub(crate) struct Variant<'a> {
    pub(crate) name: &'static str,
    pub(crate) run: Box<dyn FnMut(u32) -> Duration + 'a>,
}

impl<'a> Variant<'a> {
    pub(crate) fn new(name: &'static str, run: impl FnMut(u32) -> Duration + 'a) -> Self {
        Self {
            name,
            run: Box::new(run),
        }
    }
}

/// Nanoseconds of each variant, in each round.
pub(crate) struct Measured {
    names: Vec<&'static str>,
    rounds: Vec<Vec<f64>>,
}

impl Measured {
    pub(crate) fn measure(variants: &mut [Variant<'_>], rounds: u32, iterations: u32) -> Self {
        for variant in &mut *variants {
            (variant.run)(iterations); // warm
        }
        let n = variants.len();
        let mut measured = Self {
            names: variants.iter().map(|v| v.name).collect(),
            rounds: Vec::new(),
        };
        for round in 0..rounds as usize {
            let mut times = vec![0.0; n];
            for place in 0..n {
                let at = (round + place) % n;
                let took = (variants[at].run)(iterations);
                times[at] = took.as_secs_f64() * 1e9 / f64::from(iterations);
            }
            measured.rounds.push(times);
        }
        measured
    }

    fn at(&self, name: &str) -> usize {
        let found = self.names.iter().position(|n| *n == name);
        found.expect("a variant of this name")
    }

    pub(crate) fn names(&self) -> &[&'static str] {
        &self.names
    }

    /// The median over the rounds of what `f` makes of the nanoseconds in one.
    fn median_of(&self, f: impl Fn(&[f64]) -> f64) -> f64 {
        let mut values: Vec<f64> = self.rounds.iter().map(|times| f(times)).collect();
        median(&mut values)
    }

    /// Nanoseconds over `bare`.
    pub(crate) fn over(&self, name: &str, bare: &str) -> f64 {
        let (name, bare) = (self.at(name), self.at(bare));
        self.median_of(|times| times[name] - times[bare])
    }

    pub(crate) fn nanos(&self, name: &str) -> f64 {
        let name = self.at(name);
        self.median_of(|times| times[name])
    }

    /// The overhead of one in that of another, both over `bare`, in the same round.
    pub(crate) fn ratio(&self, ours: &str, theirs: &str, bare: &str) -> f64 {
        let (ours, theirs, bare) = (self.at(ours), self.at(theirs), self.at(bare));
        self.median_of(|times| (times[ours] - times[bare]) / (times[theirs] - times[bare]))
    }
}

pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.is_empty() {
        f64::NAN
    } else if values.len() % 2 == 1 {
        values[middle]
    } else {
        (values[middle - 1] + values[middle]) / 2.0
    }
}
