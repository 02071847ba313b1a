//! Matching only, one thread, no server: the indexed matcher, and the plain evaluator that it is measured against.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use tidings_core::pattern::workload::Workload;
use tidings_core::pattern::{Pattern, RuleSet, Scratch};

use super::Options;
use crate::bench::error::Error;
use crate::bench::stopwatch;
use crate::bench::tally::Tally;

const EVENTS: usize = 2_000;
const SEED: u64 = 7;

/// By the number of rules, and of tenants where it is fixed.
type Known = HashMap<(u32, Option<usize>), Arc<Material>>;

/// Compiled rules and events to hold against them.
struct Material {
    patterns: Vec<Pattern>,
    set: RuleSet<u64>,
    events: Vec<String>,
}

/// Tenants among whom the rules of the crowded scenario are divided.
const TENANTS: usize = 1_000;

/// An event's text against all rules through the index. More rules mean more tenants.
pub fn indexed(options: &Options, length: Duration) -> Result<Tally, Error> {
    through_index(&*material(options.rules, None)?, length)
}

/// The same, but more rules mean more rules for each tenant.
pub fn crowded(options: &Options, length: Duration) -> Result<Tally, Error> {
    through_index(&*material(options.rules, Some(TENANTS))?, length)
}

fn through_index(material: &Material, length: Duration) -> Result<Tally, Error> {
    let mut scratch = Scratch::new();
    Ok(measure(length, &material.events, |event| {
        black_box(material.set.matches(event, &mut scratch).map(|matched| matched.len())).map_err(|e| e.to_string())
    }))
}

/// An event read into a tree, then one rule after the other.
pub fn naive(options: &Options, length: Duration) -> Result<Tally, Error> {
    let material = material(options.rules, None)?;
    Ok(measure(length, &material.events, |event| {
        let tree = serde_json::from_str(event).map_err(|e| e.to_string())?;
        Ok(black_box(material.patterns.iter().filter(|pattern| pattern.naive_matches(&tree)).count()))
    }))
}

fn measure(length: Duration, events: &[String], mut each: impl FnMut(&str) -> Result<usize, String>) -> Tally {
    let mut tally = Tally::default();
    let start = stopwatch::now();
    let mut before = start;
    for event in events.iter().cycle() {
        match each(event) {
            Ok(_) => tally.operations += 1,
            Err(why) => tally.fail(|| why),
        }
        let now = stopwatch::now();
        tally.latencies.record(now.saturating_duration_since(before));
        before = now;
        if now.saturating_duration_since(start) >= length {
            break;
        }
    }
    tally.measured = stopwatch::since(start);
    tally
}

/// The rules of that number; made once, since every slice asks for them.
fn material(rules: u32, tenants: Option<usize>) -> Result<Arc<Material>, Error> {
    static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(material) = known.get(&(rules, tenants)) {
        return Ok(Arc::clone(material));
    }
    let count = usize::try_from(rules).unwrap_or(usize::MAX);
    let workload = Workload::new(count, SEED);
    let mut workload = match tenants {
        Some(tenants) => workload.with_tenants(tenants),
        None => workload,
    };
    let mut patterns = Vec::with_capacity(count);
    let mut set = RuleSet::new();
    for id in 0..u64::from(rules) {
        let pattern = Pattern::parse(&workload.pattern()).map_err(|error| Error::Usage(error.to_string()))?;
        set.insert(id, &pattern);
        patterns.push(pattern);
    }
    let events = (0..EVENTS).map(|_| workload.event()).collect();
    let material = Arc::new(Material { patterns, set, events });
    known.insert((rules, tenants), Arc::clone(&material));
    Ok(material)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_find_the_same_and_are_timed() {
        let material = material(50, None).unwrap();
        let mut scratch = Scratch::new();
        for event in material.events.iter().take(100) {
            let tree = serde_json::from_str(event).unwrap();
            let naive = material.patterns.iter().filter(|pattern| pattern.naive_matches(&tree)).count();
            assert_eq!(material.set.matches(event, &mut scratch).unwrap().len(), naive);
        }
        let options = Options { batch: 1, rules: 50, entries: 0, token: String::new() };
        for run in [indexed, crowded, naive] {
            let tally = run(&options, Duration::from_millis(20)).unwrap();
            assert!(tally.operations > 0 && tally.errors == 0);
        }
    }
}
