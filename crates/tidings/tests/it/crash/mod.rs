//! Never lost (SX-02): the real program, killed, cut from power and given a failing disk, and what it acknowledged
//! compared with what it still has.
//!
//! `server` starts and kills it, `http` talks to it, `load` sends and keeps the ledger of what was acknowledged,
//! `check` compares. `disk` is the disk that fails and forgets, through the preloaded `shim.c`. The tests are in
//! `kill`, `power` and `faults`. Every test prints its seed; `TIDINGS_CRASH_SEED` repeats one, and
//! `TIDINGS_CRASH_ROUNDS` asks for more rounds than the usual ones.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, reason = "all of this is tests")]

mod check;
mod disk;
mod faults;
mod http;
mod kill;
mod load;
mod power;
mod random;
mod server;
