//! The server under test: this very program, started on a data directory of its own.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use serde::Deserialize;
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use super::client::{self, Connection};
use super::error::Error;
use super::stopwatch;

const READY_WITHIN: Duration = Duration::from_secs(60);
const POLL_EVERY: Duration = Duration::from_millis(2);
/// The contract gives a server ten seconds to end; after that it is killed.
const END_WITHIN: Duration = Duration::from_secs(12);
const LOG: &str = "server.log";
/// A file system in memory, whose syncs cost nothing and prove nothing.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Where to send requests, and with which right.
#[derive(Debug, Clone)]
pub struct Target {
    pub address: SocketAddr,
    pub token: String,
}

impl Target {
    /// A server that already runs, named by the user.
    pub async fn parse(url: &str, token: &str) -> Result<Self, Error> {
        let host =
            url.strip_prefix("http://").map(|rest| rest.trim_end_matches('/')).filter(|rest| !rest.contains('/'));
        let host = host.ok_or_else(|| Error::Usage(format!("`{url}` is not of the form http://HOST:PORT")))?;
        let full = if host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
            host.to_owned()
        } else {
            format!("{host}:80")
        };
        let mut found = tokio::net::lookup_host(&full)
            .await
            .map_err(|error| Error::Usage(format!("`{url}` names no reachable host: {error}")))?;
        let address = found.next().ok_or_else(|| Error::Usage(format!("`{url}` names no address")))?;
        Ok(Self { address, token: token.to_owned() })
    }
}

/// A server that this process started and ends again. Its data goes with it.
#[derive(Debug)]
pub struct Started {
    data: TempDir,
    child: Child,
    target: Target,
    environment: Vec<(String, String)>,
}

/// What `server.json` in the data directory says.
#[derive(Debug, Deserialize)]
struct Announcement {
    url: String,
    pid: u32,
}

impl Started {
    /// Starts a server with an empty store somewhere below `parent` and waits until it is ready.
    pub async fn start(parent: &Path) -> Result<Self, Error> {
        Self::start_with(parent, Vec::new()).await
    }

    /// The same with more variables in its environment.
    pub async fn start_with(parent: &Path, environment: Vec<(String, String)>) -> Result<Self, Error> {
        let data = tempfile::Builder::new().prefix("tidings-bench-").tempdir_in(parent).map_err(Error::file(parent))?;
        let child = spawn(data.path(), true, &environment)?;
        let target = Target { address: SocketAddr::from(([127, 0, 0, 1], 0)), token: String::new() };
        // From here on an early return ends the process again.
        let mut started = Self { data, child, target, environment };
        started.wait_until_ready().await?;
        Ok(started)
    }

    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The resident memory of the process in bytes: now, and the most it ever was.
    pub fn memory(&self) -> Result<(u64, u64), Error> {
        let path = PathBuf::from(format!("/proc/{}/status", self.child.id()));
        let status = std::fs::read_to_string(&path).map_err(Error::file(&path))?;
        let field = |name| {
            memory_field(&status, name)
                .ok_or_else(|| Error::file(&path)(io::Error::other(format!("there is no {name} in it"))))
        };
        Ok((field("VmRSS:")?, field("VmHWM:")?))
    }

    /// The time that the process was on a core, in all its threads.
    pub fn cpu(&self) -> Result<Duration, Error> {
        let path = PathBuf::from(format!("/proc/{}/stat", self.child.id()));
        let stat = std::fs::read_to_string(&path).map_err(Error::file(&path))?;
        let ticks = cpu_ticks(&stat).ok_or_else(|| Error::file(&path)(io::Error::other("it cannot be read")))?;
        #[expect(clippy::cast_precision_loss, reason = "ticks of a run are few")]
        let seconds = ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
        Ok(Duration::try_from_secs_f64(seconds).unwrap_or_default())
    }

    /// Ends the process at once, as a crash would. Returns before it is gone.
    pub fn kill(&mut self) -> Result<(), Error> {
        self.child.kill().map_err(|error| Error::Start(format!("the old one cannot be killed: {error}")))
    }

    /// Starts again on the same data after a [`kill`](Self::kill), and waits until it is ready. There is no `limit`
    /// any more: preparing its file takes longer than starting does, and would be measured with it.
    pub async fn restart(&mut self) -> Result<(), Error> {
        end(&mut self.child);
        self.child = spawn(self.data.path(), false, &self.environment)?;
        self.wait_until_ready().await
    }

    async fn wait_until_ready(&mut self) -> Result<(), Error> {
        let start = stopwatch::now();
        loop {
            if let Some(target) = self.announced() {
                self.target = target;
                if is_ready(self.target.address).await {
                    return Ok(());
                }
            }
            let gone = self.child.try_wait().map_err(|error| Error::Start(error.to_string()))?;
            if let Some(status) = gone {
                return Err(Error::Start(format!("it ended with {status}; its last words: {}", self.last_words())));
            }
            if stopwatch::since(start) > READY_WITHIN {
                return Err(Error::NotReady { seconds: READY_WITHIN.as_secs(), log: self.last_words() });
            }
            sleep(POLL_EVERY).await;
        }
    }

    /// Where the server says it listens; none while it has not said so. A file left by a killed predecessor names
    /// another process and does not count.
    fn announced(&self) -> Option<Target> {
        let text = std::fs::read(self.data.path().join("server.json")).ok()?;
        let announcement: Announcement = serde_json::from_slice(&text).ok()?;
        if announcement.pid != self.child.id() {
            return None;
        }
        let address = announcement.url.strip_prefix("http://")?.parse().ok()?;
        let token = std::fs::read_to_string(self.data.path().join("admin.token")).ok()?;
        Some(Target { address, token: token.trim().to_owned() })
    }

    fn last_words(&self) -> String {
        let log = std::fs::read_to_string(self.data.path().join(LOG)).unwrap_or_default();
        log.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("none").to_owned()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Whether the directory lies on a disk, so that a sync there means something.
#[must_use]
pub fn is_on_disk(directory: &Path) -> bool {
    rustix::fs::statfs(directory).is_ok_and(|fs| u64::try_from(fs.f_type).is_ok_and(|kind| kind != TMPFS_MAGIC))
}

fn spawn(data: &Path, with_limit: bool, environment: &[(String, String)]) -> Result<Child, Error> {
    let program = std::env::current_exe().map_err(|error| Error::Start(error.to_string()))?;
    let log = data.join(LOG);
    let log = File::options().create(true).append(true).open(&log).map_err(Error::file(&log))?;
    let mut command = Command::new(&program);
    command.arg("serve").arg("--data").arg(data).args(["--listen", "127.0.0.1:0"]);
    if with_limit {
        command.arg("--limit-file").arg(data.join("limit"));
    }
    // What the user set for a server of their own must not change the figures.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TIDINGS_") {
            command.env_remove(name);
        }
    }
    // The other listeners have fixed addresses, which may be taken.
    command.env("TIDINGS__PUSH__LISTEN", "").env("TIDINGS__AMQP__LISTEN", "");
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    // A directory without a `tidings.toml`.
    command.current_dir(data);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    command.spawn().map_err(|error| Error::Start(format!("{}: {error}", program.display())))
}

/// SIGTERM, and SIGKILL to what does not listen to it. Does nothing but wait if it was killed already.
fn end(child: &mut Child) {
    if matches!(child.try_wait(), Ok(None)) {
        if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            // It may end by itself in this very moment.
            let _ = rustix::process::kill_process(pid, Signal::TERM);
        }
        let start: Instant = stopwatch::now();
        while matches!(child.try_wait(), Ok(None)) && stopwatch::since(start) < END_WITHIN {
            std::thread::sleep(POLL_EVERY);
        }
        // Both fail only if the process is gone, which is what is wanted.
        let _ = child.kill();
    }
    let _ = child.wait();
}

async fn is_ready(address: SocketAddr) -> bool {
    let ask = async {
        let mut connection = Connection::open(address).await.ok()?;
        let response = connection.call(&client::request("GET", "/readyz", "", None)).await.ok()?;
        Some(response.status == 200)
    };
    timeout(Duration::from_secs(1), ask).await.ok().flatten().unwrap_or(false)
}

/// `utime` and `stime`, the 14th and 15th field; the second is a name, which may have anything in it.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// A line such as `VmRSS: 123456 kB`, in bytes.
fn memory_field(status: &str, name: &str) -> Option<u64> {
    let rest = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_the_status_file() {
        let status = "Name:\ttidings\nVmHWM:\t  204800 kB\nVmRSS:\t  102400 kB\nThreads:\t4\n";
        assert_eq!(memory_field(status, "VmRSS:"), Some(100 << 20));
        assert_eq!(memory_field(status, "VmHWM:"), Some(200 << 20));
        assert_eq!(memory_field(status, "VmSwap:"), None);
    }

    #[test]
    fn the_time_on_a_core_is_read_from_the_stat_file() {
        let stat = "42 (a b) c) S 1 42 42 0 -1 4194560 100 0 0 0 170 30 0 0 20 0 5 0 1000 2000 300";
        assert_eq!(cpu_ticks(stat), Some(200));
        assert_eq!(cpu_ticks("42 (x) S 1"), None);
    }

    #[tokio::test]
    async fn a_server_is_named_by_a_plain_url() {
        let target = Target::parse("http://127.0.0.1:8787/", "secret").await.unwrap();
        assert_eq!((target.address.to_string().as_str(), target.token.as_str()), ("127.0.0.1:8787", "secret"));
        assert_eq!(Target::parse("http://127.0.0.1", "").await.unwrap().address.port(), 80);
        for bad in ["https://127.0.0.1:8787", "127.0.0.1:8787", "http://127.0.0.1:8787/events"] {
            let error = Target::parse(bad, "").await.unwrap_err().to_string();
            assert!(error.contains(bad), "{error}");
        }
    }
}
