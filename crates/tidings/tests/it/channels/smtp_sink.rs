//! Starts `smtp_sink.py` and remembers what it says.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::Value;

pub struct Sink {
    child: Child,
    lines: Receiver<Value>,
    pub port: u16,
}

impl Sink {
    pub fn start(arguments: &[&str]) -> Self {
        let python = std::env::var("TIDINGS_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/channels/smtp_sink.py");
        let mut child = Command::new(&python)
            .arg(script)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("these tests need Python with aiosmtpd, and `{python}` did not start: {error}")
            });
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = sender.send(serde_json::from_str::<Value>(&line).unwrap());
            }
        });
        let first = lines.recv_timeout(Duration::from_secs(20)).unwrap_or_else(|_| {
            panic!("the SMTP sink did not start; install it with `{python} -m pip install aiosmtpd`, see its complaint above")
        });
        let port = u16::try_from(first["port"].as_u64().unwrap()).unwrap();
        Self { child, lines, port }
    }

    /// Everything since the last call.
    pub fn said(&self) -> Vec<Value> {
        // The sink answers the client and then prints; its last line may still be on the way.
        let mut said = Vec::new();
        while let Ok(line) = self.lines.recv_timeout(Duration::from_millis(300)) {
            said.push(line);
        }
        said
    }

    /// The mails since the last call.
    pub fn mails(&self) -> Vec<Value> {
        self.said().into_iter().filter(|line| line.get("data").is_some()).collect()
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
