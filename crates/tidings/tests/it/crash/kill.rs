//! SIGKILL at any moment: nothing acknowledged is lost, nothing is there twice (SX-02).

use super::check::{Figures, compare};
use super::load::{Ledger, Until};
use super::random::{Random, rounds};
use super::server::Start;

/// Rounds of each of the three tests; together they are the thirty that every run makes.
const ROUNDS: u64 = 10;

fn kill_again_and_again(test: &str, flags: &[&str]) {
    let mut random = Random::from_environment(test);
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let start = Start { flags, ..Start::default() };
    let (mut ledger, mut figures) = (Ledger::default(), Figures::default());
    let mut server = start.run(&data).expect("the first start");
    for _ in 0..rounds(ROUNDS) {
        let target = random.between(20, 400);
        ledger.load(server, &Until::Acknowledged(target), &mut random, |server| drop(server.kill()));
        if random.one_in(4) {
            // Once more while it recovers.
            let starting = start.launch(&data);
            for _ in 0..random.below(50_000_000) {
                std::hint::black_box(());
            }
            starting.kill();
        }
        server = start.run(&data).expect("it starts again after SIGKILL");
        figures.recovery = figures.recovery.max(server.took);
        let mut connection = server.connect();
        let present = compare(&ledger, &mut connection, &mut figures);
        ledger.resend(&mut connection, &present);
    }
    let mut after = Figures::default();
    let present = compare(&ledger, &mut server.connect(), &mut after);
    server.kill();
    figures.print(test);
    assert_eq!((figures.lost, figures.doubled, after.lost, after.doubled), (0, 0, 0, 0));
    assert_eq!(present.len(), ledger.sent.len(), "after the resend there is exactly one of each");
}

#[test]
fn sigkill_loses_and_doubles_nothing_first_ten_rounds() {
    kill_again_and_again("kill 1", &[]);
}

#[test]
fn sigkill_loses_and_doubles_nothing_second_ten_rounds() {
    kill_again_and_again("kill 2", &[]);
}

// Hardly a moment without commits on their way from the log into tables.
#[test]
fn sigkill_loses_and_doubles_nothing_third_ten_rounds() {
    kill_again_and_again("kill 3", &["--sheet-bytes", "60000"]);
}
