//! The real program on a directory: started, asked, killed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use tidings::clock::SystemClock;
use tidings_core::time::Clock;

use super::disk::Disk;
use super::http::Connection;

/// How to start it.
#[derive(Default)]
pub struct Start<'a> {
    pub disk: Option<&'a Disk>,
    pub flags: &'a [&'a str],
    pub reserve_mb: u64,
}

/// A server that listens.
pub struct Server {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    reader: Option<std::thread::JoinHandle<()>>,
    pub address: String,
    pub token: String,
    /// From the start of the process until it listened.
    pub took: Duration,
}

/// A server that ended before it listened.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stderr: String,
}

/// A process that has just been started and may not listen yet.
pub struct Starting {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    reader: std::thread::JoinHandle<()>,
    address: mpsc::Receiver<String>,
}

impl Start<'_> {
    /// Starts it without waiting.
    pub fn launch(&self, data: &Path) -> Starting {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidings"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data).args(self.flags);
        command.env("TIDINGS__STORE__RESERVE_MB", self.reserve_mb.to_string());
        command.env("TIDINGS__PUSH__LISTEN", "").env("NO_COLOR", "1").env("RUST_BACKTRACE", "1");
        command.current_dir(data.parent().expect("the data directory is inside a temporary one"));
        if let Some(disk) = self.disk {
            disk.attach(&mut command);
        }
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let stderr = BufReader::new(child.stderr.take().expect("stderr is piped"));
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let (send, address) = mpsc::channel();
        let kept = Arc::clone(&lines);
        let reader = std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                if let Some((_, url)) = line.split_once("is listening on http://") {
                    let _ = send.send(url.to_owned());
                }
                kept.lock().unwrap().push(line);
            }
        });
        Starting { child, lines, reader, address }
    }

    /// Starts it and waits until it listens, or until it has ended.
    pub fn run(&self, data: &Path) -> Result<Server, Ended> {
        let clock = SystemClock::default();
        let started = clock.monotonic();
        let Starting { mut child, lines, reader, address } = self.launch(data);
        let Ok(address) = address.recv() else {
            let status = child.wait().expect("the process ends");
            reader.join().expect("its stderr was read");
            let stderr = lines.lock().unwrap().join("\n");
            return Err(Ended { status, stderr });
        };
        let took = clock.monotonic().saturating_sub(started);
        let token = std::fs::read_to_string(data.join("admin.token")).expect("the administrator's token");
        Ok(Server { child, lines, reader: Some(reader), address, token: token.trim().to_owned(), took })
    }
}

impl Starting {
    pub fn kill(mut self) {
        self.child.kill().expect("SIGKILL is sent");
        self.child.wait().expect("the process ends");
        self.reader.join().expect("its stderr was read");
    }
}

impl Server {
    pub fn connect(&self) -> Connection {
        Connection::open(&self.address, &self.token).expect("the server accepts a connection")
    }

    /// SIGKILL, and its stderr.
    pub fn kill(mut self) -> String {
        self.child.kill().expect("SIGKILL is sent");
        self.finish().1
    }

    /// SIGTERM, as a supervisor does.
    pub fn stop(mut self) -> (ExitStatus, String) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("SIGTERM is sent");
        self.finish()
    }

    fn finish(&mut self) -> (ExitStatus, String) {
        let status = self.child.wait().expect("the process ends");
        if let Some(reader) = self.reader.take() {
            reader.join().expect("its stderr was read");
        }
        let text = self.lines.lock().unwrap().join("\n");
        assert!(!text.contains("panicked at"), "the server panicked:\n{text}");
        (status, text)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Only where a test failed half-way: nothing may be left running.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
