//! The program: parses the command line and hands over.

use std::process::ExitCode;

/// Small allocations on many threads are most of the work of an ingest; the system's allocator takes a fifth of it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tidings::cli::main()
}
