//! `tidings serve`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use super::{Done, Failure, logging, output};
use crate::app::{App, Surroundings};
use crate::clock::{SystemClock, SystemIds};
use crate::config::{self, Config, Problems};
use crate::demo::Demo;
use crate::demo::place::{self, Scratch};

/// Run the whole system in one process
#[derive(Args)]
#[command(after_help = "Examples:\n  tidings serve\n  tidings serve --config tidings.toml\n  tidings serve --demo\n\n\
    Without any file or flag: data in ./tidings-data, listening on 127.0.0.1:8787. On the first start it writes\n\
    tidings-data/admin.token, which opens everything.\n\n\
    --demo plays in a temporary directory, which it removes when it ends; with --data in that one, which must be empty\n\
    or an earlier demo's, and stays. It does not read ./tidings.toml, and takes no more than addresses, log and limits\n\
    from a file that --config names: it mails nobody, asks no source and works on no shared store.")]
pub struct Arguments {
    /// The configuration file; without it, ./tidings.toml if there is one (and no --demo)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The data directory
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDR", value_parser = config::parse_address)]
    listen: Option<SocketAddr>,
    /// Play a stream of sample events, in a temporary data directory unless --data names one
    #[arg(long)]
    demo: bool,
    /// For `tidings bench`: also serve POST /limit, which appends to this file
    #[arg(long, value_name = "FILE", hide = true)]
    limit_file: Option<PathBuf>,
    /// For the crash tests: acknowledge before the fsync, which loses data when the power goes
    #[arg(long, hide = true)]
    unsafe_acknowledge_before_fsync: bool,
    /// For the crash tests: commits go into tables when so many bytes of them are in memory
    #[arg(long, value_name = "BYTES", hide = true)]
    sheet_bytes: Option<usize>,
}

/// How a start reads its configuration. A reload reads it the same way.
struct Reading {
    file: Option<PathBuf>,
    listen: Option<SocketAddr>,
    data_dir: Option<PathBuf>,
    demo: bool,
}

impl Reading {
    fn read(&self) -> Result<Config, Problems> {
        // A file that happens to be there is that of the real thing.
        let mut config = if self.demo { read(self.file.as_deref())? } else { read_usual(self.file.as_deref())? };
        if let Some(listen) = self.listen {
            config.set_listen(listen);
        }
        if let Some(data_dir) = &self.data_dir {
            config.data_dir.clone_from(data_dir);
        }
        Ok(if self.demo { crate::demo::configure(config) } else { config })
    }
}

/// Serves until told to stop. The demo's own directory is left in `scratch`, for whoever ends all that works in it.
pub async fn run(arguments: Arguments, scratch: &mut Option<Scratch>) -> Result<Done, Failure> {
    let Arguments { config: file, data: data_dir, listen, demo, .. } = arguments;
    let mut reading = Reading { file, listen, data_dir, demo };
    let mut config = reading.read().map_err(|problems| Failure(problems.to_string()))?;
    if demo {
        // Not before: what is wrong with the configuration leaves no directory behind.
        config.data_dir = demo_directory(reading.data_dir.take(), scratch)?;
        reading.data_dir = Some(config.data_dir.clone());
    }
    logging::start(&config)?;
    if arguments.unsafe_acknowledge_before_fsync {
        tracing::warn!("acknowledging before the fsync: a power cut will lose acknowledged events");
    }
    crate::http::raise_file_limit();
    survive_file_size_limit()?;
    let stop = stop_signal()?;
    if let Some(warning) = config.email.warning(|name| std::env::var(name).ok()) {
        tracing::warn!("{warning}");
    }

    let surroundings = Surroundings {
        clock: Arc::new(SystemClock::default()),
        ids: Arc::new(SystemIds::default()),
        acknowledge_before_fsync: arguments.unsafe_acknowledge_before_fsync,
        sheet_bytes: arguments.sheet_bytes,
        limit_file: arguments.limit_file,
        reload: Some(Arc::new(move || reading.read())),
        // The demo brings its own.
        sample: !demo,
    };
    let data_dir = config.data_dir.clone();
    let player = if demo { Some(Demo::prepare().await?) } else { None };
    let app = Box::pin(App::open(config, surroundings)).await?;
    greet(&app, &data_dir, demo);
    if let Some(player) = player {
        player.play(&app.services).await.map_err(Failure)?;
    }
    reload_on_hangup(app.services.clone())?;
    app.run(stop).await?;
    Ok(Done::All)
}

/// Where the demo has its data: where it was told, else in a directory that goes with it.
fn demo_directory(given: Option<PathBuf>, scratch: &mut Option<Scratch>) -> Result<PathBuf, Failure> {
    if let Some(given) = given {
        place::take(&given).map_err(Failure)?;
        return Ok(given);
    }
    let made = Scratch::make().map_err(|error| Failure(format!("cannot make a temporary directory: {error}")))?;
    Ok(scratch.insert(made).path().to_owned())
}

/// The configuration from a file, or without one; the variables on top.
fn read(file: Option<&Path>) -> Result<Config, Problems> {
    Config::load(file, config::process_environment())
}

/// The same, with the file that has the usual name if none is given.
fn read_usual(file: Option<&Path>) -> Result<Config, Problems> {
    let usual = Path::new(config::FILE_NAME);
    read(file.or_else(|| usual.exists().then_some(usual)))
}

pub(super) fn load(file: Option<&Path>) -> Result<Config, Failure> {
    read_usual(file).map_err(|problems| Failure(problems.to_string()))
}

/// SIGHUP reads the configuration again.
fn reload_on_hangup(services: crate::app::Services) -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            let correlation = services.ids.uuid(services.clock.now()).to_string();
            if let Err(problem) = services.reload("signal:SIGHUP", &correlation).await {
                tracing::error!(detail = problem.detail, "the configuration was not reloaded");
            }
        }
    });
    Ok(())
}

fn greet(app: &App, data_dir: &Path, demo: bool) {
    output::note(&format!("tidings {} is listening on {}", env!("CARGO_PKG_VERSION"), app.url));
    if let Some(push_url) = &app.push_url {
        output::note(&format!("push server (ntfy's protocol): {push_url}"));
    }
    output::note(&format!("dashboard: {}/ui/", app.url));
    output::note(&format!("data directory: {}", data_dir.display()));
    let token = data_dir.join("admin.token");
    if app.first_token.is_some() {
        output::note(&format!("the administrator's token was written to {}", token.display()));
    }
    if demo {
        let (url, token) = (&app.url, token.display());
        output::note(&format!("\nDemo: a small company is at work. Open {url}/ui/ and sign in with this token:"));
        output::note(&format!(
            "  {}",
            std::fs::read_to_string(data_dir.join("admin.token")).unwrap_or_default().trim()
        ));
        output::note("\nThree things to try:");
        output::note("  1. In the dashboard, open Live, choose any trace and see what became of the event.");
        output::note("  2. Open Messages, then dead letters: one system cannot read its invoices. Send one again.");
        output::note("  3. Send an event of your own, then find it under Events:");
        output::note(&format!("     export TIDINGS_URL={url} TIDINGS_TOKEN=$(cat {token})"));
        output::note(
            "     echo '{\"eventType\":\"ticket.created\",\"data\":{\"caller_id\":\"me\",\"issue_description\":\"hello\"}}' | tidings send -",
        );
    }
}

/// A file that grows beyond `ulimit -f` is an error of that write, which says why, and not the end without a word.
fn survive_file_size_limit() -> std::io::Result<()> {
    let kind = SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
    // Once there is a handler, it stays.
    signal(kind).map(drop)
}

/// Ready at SIGTERM or SIGINT, from this call on and not only when it is waited for.
fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
