//! The program: parses the command line and hands over.

use std::process::ExitCode;

// Linked in, it takes the place of the system's allocator: small allocations on many threads are most of the work of an
// ingest, and that one takes a fifth of it.
use mimalloc as _;

fn main() -> ExitCode {
    tidings::cli::main()
}
