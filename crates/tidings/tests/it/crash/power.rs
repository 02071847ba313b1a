//! The power goes: what was acknowledged is still there, and the harness would see it if it were not (SX-02).

use super::check::{Figures, compare};
use super::disk::{Disk, Fault};
use super::load::{Ledger, Until};
use super::random::{Random, rounds};
use super::server::Start;

const ROUNDS: u64 = 10;

struct Outcome {
    figures: Figures,
    dropped: usize,
}

fn cut_again_and_again(test: &str, flags: &[&str]) -> Outcome {
    let mut random = Random::from_environment(test);
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let disk = Disk::new(dir.path());
    let start = Start { disk: Some(&disk), flags, ..Start::default() };
    let (mut ledger, mut figures, mut dropped) = (Ledger::default(), Figures::default(), 0);
    let mut server = start.run(&data).expect("the first start");
    for _ in 0..rounds(ROUNDS) {
        let target = random.between(20, 200);
        // So that most cuts come while a sync is under way: between the write and the acknowledgement.
        disk.set(Fault::Slow { ms: 3 });
        ledger.load(server, &Until::Acknowledged(target), &mut random, |server| drop(server.kill()));
        disk.heal();
        dropped += disk.cut_power(&mut random);
        server = match start.run(&data) {
            Ok(server) => server,
            // Rightly so where acknowledged commits are gone or later ones survived earlier ones.
            Err(ended) if flags == UNSAFE => {
                assert_eq!(ended.status.code(), Some(1), "{ended:?}");
                figures.lost += ledger.acknowledged.len();
                figures.cycles += 1;
                figures.print(test);
                return Outcome { figures, dropped };
            }
            Err(ended) => panic!("it does not start after a power cut: {ended:?}"),
        };
        figures.recovery = figures.recovery.max(server.took);
        let mut connection = server.connect();
        let present = compare(&ledger, &mut connection, &mut figures);
        if figures.lost > 0 {
            break;
        }
        ledger.resend(&mut connection, &present);
    }
    server.kill();
    figures.print(test);
    Outcome { figures, dropped }
}

/// What the negative control is started with.
const UNSAFE: &[&str] = &["--unsafe-acknowledge-before-fsync"];

fn nothing_is_lost(test: &str, flags: &[&str]) {
    let Outcome { figures, dropped } = cut_again_and_again(test, flags);
    println!("{test}: {dropped} sectors were taken back");
    assert_eq!((figures.lost, figures.doubled), (0, 0));
}

#[test]
fn a_power_cut_loses_and_doubles_nothing_first_ten_rounds() {
    nothing_is_lost("power 1", &[]);
}

// Hardly a moment without commits on their way from the log into tables.
#[test]
fn a_power_cut_loses_and_doubles_nothing_second_ten_rounds() {
    nothing_is_lost("power 2", &["--sheet-bytes", "60000"]);
}

// The negative control: a server that acknowledges before the fsync does lose events, and this harness sees it.
#[test]
fn acknowledging_before_the_fsync_is_caught() {
    let Outcome { figures, dropped } = cut_again_and_again("power, unsafe", UNSAFE);
    assert!(dropped > 0, "the cut took nothing back");
    assert!(figures.lost > 0, "the harness has no teeth: {figures:?}");
}
