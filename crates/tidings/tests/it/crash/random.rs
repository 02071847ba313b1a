//! Choices that can be repeated from their seed.

/// SplitMix64: small, and good enough to choose moments and places.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The seed to use: from the environment, else a new one. Printed either way.
    pub fn from_environment(test: &str) -> Self {
        let given = std::env::var("TIDINGS_CRASH_SEED").ok().map(|text| text.parse().expect("a number as the seed"));
        let seed = given.unwrap_or_else(|| {
            // A temporary directory's name and the process id differ in every run, without asking a clock.
            let hasher = std::hash::RandomState::new();
            std::hash::BuildHasher::hash_one(&hasher, (test, std::process::id()))
        });
        println!("{test}: seed {seed} (repeat with TIDINGS_CRASH_SEED={seed})");
        Self::new(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Another source, for another thread.
    pub fn fork(&mut self) -> Self {
        Self::new(self.next())
    }
}

/// How many rounds to run: `usual`, or as many as the environment asks for.
pub fn rounds(usual: u64) -> u64 {
    let asked = std::env::var("TIDINGS_CRASH_ROUNDS").ok();
    asked.map_or(usual, |text| text.parse().expect("a number of rounds"))
}
