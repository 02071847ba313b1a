//! The program: parses the command line and hands over.

use std::process::ExitCode;

fn main() -> ExitCode {
    tidings::cli::main()
}
