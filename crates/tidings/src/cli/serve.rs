//! `tidings serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use super::{Done, Failure, output};
use crate::app::{App, Surroundings};
use crate::clock::{SystemClock, SystemIds};
use crate::config::{self, Config, log::Format};
use crate::demo::Demo;

/// Run the whole system in one process
#[derive(Args)]
#[command(after_help = "Examples:\n  tidings serve\n  tidings serve --config tidings.toml\n  tidings serve --demo\n\n\
    Without any file or flag: data in ./tidings-data, listening on 127.0.0.1:8787. On the first start it writes\n\
    tidings-data/admin.token, which opens everything.")]
pub struct Arguments {
    /// The configuration file; without it, ./tidings.toml if there is one
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The data directory
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// Use a temporary data directory and play a stream of sample events
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

pub async fn run(arguments: Arguments) -> Result<Done, Failure> {
    let mut config = load(arguments.config.as_deref())?;
    if let Some(listen) = arguments.listen {
        config.set_listen(listen);
    }
    if let Some(data) = arguments.data {
        config.data_dir = data;
    } else if arguments.demo {
        config.data_dir = std::env::temp_dir().join(format!("tidings-demo-{}", std::process::id()));
    }
    if arguments.demo {
        crate::demo::configure(&mut config);
    }
    start_logging(&config);
    if arguments.unsafe_acknowledge_before_fsync {
        tracing::warn!("acknowledging before the fsync: a power cut will lose acknowledged events");
    }
    crate::http::raise_file_limit();
    survive_file_size_limit()?;
    let stop = stop_signal()?;

    let surroundings = Surroundings {
        clock: Arc::new(SystemClock::default()),
        ids: Arc::new(SystemIds::default()),
        acknowledge_before_fsync: arguments.unsafe_acknowledge_before_fsync,
        sheet_bytes: arguments.sheet_bytes,
        limit_file: arguments.limit_file,
        reload: Some(reload_source(arguments.config, arguments.listen, config.data_dir.clone(), arguments.demo)),
        // The demo brings its own.
        sample: !arguments.demo,
    };
    let data_dir = config.data_dir.clone();
    let demo = if arguments.demo { Some(Demo::prepare().await?) } else { None };
    let app = Box::pin(App::open(config, surroundings)).await?;
    greet(&app, &data_dir, arguments.demo);
    if let Some(demo) = demo {
        demo.play(&app.services).await.map_err(Failure)?;
    }
    reload_on_hangup(app.services.clone())?;
    app.run(stop).await?;
    if arguments.demo {
        let _ = std::fs::remove_dir_all(&data_dir);
    }
    Ok(Done::All)
}

pub(super) fn load(path: Option<&std::path::Path>) -> Result<Config, Failure> {
    let usual = PathBuf::from(config::FILE_NAME);
    let path = path.or_else(|| usual.exists().then_some(usual.as_path()));
    Config::load(path, config::process_environment()).map_err(|problems| Failure(problems.to_string()))
}

/// Reads the configuration as this start did: the same file, and what the command line said on top of it.
fn reload_source(
    path: Option<PathBuf>,
    listen: Option<SocketAddr>,
    data_dir: PathBuf,
    demo: bool,
) -> crate::reload::Source {
    Arc::new(move || {
        let usual = PathBuf::from(config::FILE_NAME);
        let path = path.as_deref().or_else(|| usual.exists().then_some(usual.as_path()));
        let mut config = Config::load(path, config::process_environment())?;
        if let Some(listen) = listen {
            config.set_listen(listen);
        }
        config.data_dir.clone_from(&data_dir);
        if demo {
            crate::demo::configure(&mut config);
        }
        Ok(config)
    })
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

fn greet(app: &App, data_dir: &std::path::Path, demo: bool) {
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

fn start_logging(config: &Config) {
    let filter = EnvFilter::try_from_env("TIDINGS_LOG")
        .unwrap_or_else(|_| EnvFilter::new(format!("{},fjall=warn,lsm_tree=warn", config.log.level.as_str())));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A second call in one process (tests) keeps the first.
    let _ = match config.log.format {
        Format::Json => builder.json().flatten_event(true).try_init(),
        Format::Text => builder.with_target(false).try_init(),
    };
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
