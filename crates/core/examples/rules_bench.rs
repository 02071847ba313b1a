//! Measures the matcher: `cargo run --release -p tidings-core --example rules_bench [rules…] [--tenants N]`.
//!
//! One thread. The baseline reads each event into a tree and asks every rule in turn.
#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]
#![allow(clippy::print_stdout, reason = "a measurement prints its figures")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use tidings_core::pattern::workload::Workload;
use tidings_core::pattern::{Pattern, RuleSet, Scratch};

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let tenants = arguments.iter().position(|argument| argument == "--tenants").and_then(|at| {
        let count = arguments.drain(at..(at + 2).min(arguments.len())).nth(1)?;
        count.parse().ok()
    });
    let mut sizes: Vec<usize> = arguments.iter().filter_map(|size| size.parse().ok()).collect();
    if sizes.is_empty() {
        sizes = vec![1, 100, 1_000, 10_000, 100_000];
    }
    for size in sizes {
        measure(size, tenants);
    }
}

fn measure(size: usize, tenants: Option<usize>) {
    let workload = Workload::new(size, 7);
    let mut workload = match tenants {
        Some(tenants) => workload.with_tenants(tenants),
        None => workload,
    };
    let texts: Vec<String> = (0..size).map(|_| workload.pattern()).collect();
    let events: Vec<String> = (0..2_000).map(|_| workload.event()).collect();
    let bytes = events.iter().map(String::len).sum::<usize>() / events.len();

    let before = resident_bytes();
    let start = Instant::now();
    let patterns: Vec<Pattern> = texts.iter().filter_map(|text| Pattern::parse(text).ok()).collect();
    let compile = start.elapsed() / size as u32;
    assert_eq!(patterns.len(), size, "the workload makes valid patterns");

    let mut rules = RuleSet::new();
    let start = Instant::now();
    patterns.iter().enumerate().for_each(|(id, pattern)| rules.insert(id as u64, pattern));
    let insert = start.elapsed() / size as u32;
    let memory = resident_bytes().saturating_sub(before) / size;

    let mut scratch = Scratch::new();
    let mut found = 0;
    let indexed = rate(Duration::from_secs(2), &events, |event| {
        found += rules.matches(event, &mut scratch).map_or(0, |ids| black_box(ids).len());
    });
    let naive = rate(Duration::from_secs(2), &events, |event| {
        let tree = serde_json::from_str(event).unwrap_or_default();
        black_box(patterns.iter().filter(|pattern| pattern.naive_matches(&tree)).count());
    });
    let replace = worst_replacement(&mut rules, &patterns);
    println!(
        "{size:>7} rules: {:>9.0} events/s, naive {:>9.0}, ratio {:>7.1}; event {bytes} B; compile {compile:?}, insert {insert:?}, {memory} B a rule; replace at worst {replace:?}; matches {found}",
        indexed,
        naive,
        indexed / naive
    );
}

/// Events a second of this thread's own time, so that a busy machine disturbs it less.
fn rate(span: Duration, events: &[String], mut each: impl FnMut(&str)) -> f64 {
    let (start, spent) = (Instant::now(), processor_time());
    let mut count = 0u32;
    for event in events.iter().cycle() {
        each(event);
        count += 1;
        if start.elapsed() > span {
            break;
        }
    }
    let used = processor_time().saturating_sub(spent);
    f64::from(count) / if used.is_zero() { start.elapsed() } else { used }.as_secs_f64()
}

/// Zero where the system does not tell.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0))
}

fn worst_replacement(rules: &mut RuleSet<u64>, patterns: &[Pattern]) -> Duration {
    let mut worst = Duration::ZERO;
    for (id, pattern) in patterns.iter().enumerate().take(2_000) {
        let start = Instant::now();
        rules.insert(id as u64, pattern);
        worst = worst.max(start.elapsed());
    }
    worst
}

fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    pages.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096
}
