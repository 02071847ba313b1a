//! `tidings completions`.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{Done, Failure, output};

/// Print the completions of a shell
#[derive(Args)]
#[command(after_help = "Examples:\n  tidings completions bash > /usr/share/bash-completion/completions/tidings\n  \
    tidings completions zsh > ~/.zfunc/_tidings\n  tidings completions fish > ~/.config/fish/completions/tidings.fish")]
pub struct Arguments {
    /// bash, elvish, fish, powershell or zsh
    shell: Shell,
}

#[expect(clippy::unnecessary_wraps, reason = "commands have one form")]
pub fn run(arguments: &Arguments) -> Result<Done, Failure> {
    let mut command = super::Arguments::command();
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "tidings", &mut script);
    output::row(String::from_utf8_lossy(&script).trim_end());
    Ok(Done::All)
}
