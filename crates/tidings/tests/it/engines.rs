//! `docs/engines.md`: which test proves what, on both engines.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// What must hold on both engines: a seed's number, and the first and last of its requirements.
const RANGES: [(&str, u32, u32); 9] = [
    ("S000", 1, 34),
    ("S001", 10, 10),
    ("S001", 42, 46),
    ("S001", 66, 70),
    ("S002", 1, 1),
    ("S002", 19, 29),
    ("S002", 71, 79),
    ("S004", 2, 16),
    ("S004", 41, 41),
];

fn ids(text: &str) -> Vec<String> {
    let number = |id: &str| -> u32 { id.split_once('-').unwrap().1.parse().unwrap() };
    let of = |part: &str| match part.trim().split_once(" to ") {
        Some((from, to)) => {
            let seed = from.split_once('-').unwrap().0;
            (number(from)..=number(to)).map(|n| format!("{seed}-{n:02}")).collect::<Vec<_>>()
        }
        None => vec![part.trim().to_owned()],
    };
    text.split(',').flat_map(of).collect()
}

/// The tests of a cell, each with the word before it.
fn tests(cell: &str) -> Vec<(String, String)> {
    let parts: Vec<&str> = cell.split('`').collect();
    let word = |before: &str| before.rsplit(',').next().unwrap_or_default().trim().to_owned();
    parts.chunks(2).filter(|pair| pair.len() == 2).map(|pair| (word(pair[0]), pair[1].to_owned())).collect()
}

/// Whether a function of this name is somewhere in the sources under a folder.
fn is_in(folder: &Path, function: &str) -> bool {
    std::fs::read_dir(folder).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return is_in(&path, function);
        }
        std::fs::read_to_string(&path).is_ok_and(|text| text.contains(&format!("fn {function}(")))
    })
}

#[test]
fn every_requirement_is_proved_on_both_engines() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(own.join("../../docs/engines.md")).unwrap();
    let listed = Command::new(std::env::current_exe().unwrap()).args(["--list", "--format", "terse"]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let here: BTreeSet<&str> = listed.lines().filter_map(|line| line.strip_suffix(": test")).collect();
    let mut proved: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in text.lines().filter(|line| line.starts_with("| S0")) {
        let cells: Vec<&str> = row.split('|').collect();
        let mut sides = Vec::new();
        for (word, test) in tests(cells[2]) {
            let (known, on): (bool, &[&str]) = match word.as_str() {
                "" => {
                    let (module, name) = test.rsplit_once("::").unwrap();
                    let second = format!("{module}::on_dynamodb::{name}");
                    (here.contains(test.as_str()) && here.contains(second.as_str()), &["embedded", "dynamodb"])
                }
                "store" => (is_in(&own.join("../store/src/conformance"), &test), &["embedded", "dynamodb"]),
                "pure" => (is_in(&own.join("src"), &test), &[]),
                "embedded" => (here.contains(test.as_str()), &["embedded"]),
                "dynamodb" => (here.contains(test.as_str()), &["dynamodb"]),
                other => panic!("what is {other:?} in {row}"),
            };
            assert!(known, "there is no such test: {word} {test}");
            sides.extend(on.iter().map(ToString::to_string));
        }
        for id in ids(cells[1]) {
            proved.entry(id).or_default().extend(sides.clone());
        }
    }
    // What only a service has: billing, tags, encryption and regions.
    let only_there = ["S001-70", "S002-75", "S004-03", "S004-04", "S004-41"];
    for (seed, first, last) in RANGES {
        for number in first..=last {
            let id = format!("{seed}-{number:02}");
            let sides = proved.get(&id).cloned().unwrap_or_default();
            assert!(sides.iter().any(|side| side == "dynamodb"), "{id} is not proved on DynamoDB");
            let embedded = sides.iter().any(|side| side == "embedded");
            assert!(embedded || only_there.contains(&id.as_str()), "{id} is not proved on the embedded store");
        }
    }
}
