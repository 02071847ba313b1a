//! The real program: commands that end, and a server that runs until told otherwise.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};

/// The program in a directory, without anything of the surroundings.
pub fn tidings(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidings"));
    command
        .current_dir(directory)
        .args(arguments)
        .env_clear()
        .env("TIDINGS__PUSH__LISTEN", "")
        .env("TIDINGS__STORE__RESERVE_MB", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// What a command that has ended leaves.
#[derive(Debug)]
pub struct Ended {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    fn of(output: &Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        self
    }

    /// One sentence on stderr, from the program itself.
    #[track_caller]
    pub fn sentence(&self) -> &str {
        let lines: Vec<_> = self.stderr.lines().filter(|line| line.starts_with("tidings: ")).collect();
        assert_eq!(lines.len(), 1, "{self:?}");
        lines[0]
    }
}

/// Runs a command to its end.
pub fn run(directory: &Path, arguments: &[&str]) -> Ended {
    Ended::of(&tidings(directory, arguments).output().unwrap())
}

/// Runs a command to its end with `input` on stdin.
pub fn run_with_input(directory: &Path, arguments: &[&str], input: &str) -> Ended {
    let mut child = tidings(directory, arguments).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    Ended::of(&child.wait_with_output().unwrap())
}

/// A command that goes on until it is told otherwise; killed when dropped.
pub struct Running {
    child: Child,
    lines: Receiver<String>,
    /// What it has said so far.
    said: String,
}

impl Running {
    /// Starts a command and listens to what it says on both its outputs.
    pub fn start(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let (sender, lines) = channel();
        // Somebody must always read: a full pipe would hold the command up.
        listen(child.stdout.take().unwrap(), sender.clone());
        listen(child.stderr.take().unwrap(), sender);
        Self { child, lines, said: String::new() }
    }

    /// Waits until it says a line with `text`, and gives that line.
    pub fn wait_for(&mut self, text: &str) -> String {
        loop {
            let line = self.lines.recv().unwrap_or_else(|_| panic!("ended without saying {text:?}: {}", self.said));
            self.said.push_str(&line);
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        self.signal(rustix::process::Signal::TERM);
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for the end; gives the exit code and everything it said.
    pub fn wait(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().unwrap().code();
        let rest: String = self.lines.iter().collect();
        (code, format!("{}{rest}", self.said))
    }
}

fn listen(output: impl Read + Send + 'static, sender: Sender<String>) {
    std::thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = String::new();
        while output.read_line(&mut line).is_ok_and(|read| read > 0) {
            if sender.send(std::mem::take(&mut line)).is_err() {
                return;
            }
        }
    });
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `tidings serve` on a free port.
pub struct Served {
    pub running: Running,
    pub url: String,
}

impl Served {
    /// Starts a server with its data in `tidings-data` under the directory, and waits until it answers.
    pub fn start(directory: &Path) -> Self {
        Self::start_with(directory, &[])
    }

    pub fn start_with(directory: &Path, arguments: &[&str]) -> Self {
        let mut command = tidings(directory, &["serve", "--listen", "127.0.0.1:0"]);
        command.args(arguments).env("TIDINGS__LOG__LEVEL", "debug");
        let mut running = Running::start(command);
        let line = running.wait_for("is listening on ");
        let url = line.split("is listening on ").nth(1).unwrap().trim().to_owned();
        let served = Self { running, url };
        served.ask("/healthz");
        served
    }

    /// A GET without a token, answered before this returns.
    pub fn ask(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.url.trim_start_matches("http://")).unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Stops it in order; gives everything it said.
    pub fn stop(self) -> String {
        self.running.terminate();
        let (code, said) = self.running.wait();
        assert_eq!(code, Some(0), "{said}");
        said
    }
}
