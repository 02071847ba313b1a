//! `tidings serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use tracing_subscriber::EnvFilter;

use super::{Done, Failure, output};
use crate::app::{App, Surroundings};
use crate::clock::{SystemClock, SystemIds};
use crate::config::{self, Config, log::Format};

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
    start_logging(&config);
    if arguments.unsafe_acknowledge_before_fsync {
        tracing::warn!("acknowledging before the fsync: a power cut will lose acknowledged events");
    }
    crate::http::raise_file_limit();

    let surroundings = Surroundings {
        clock: Arc::new(SystemClock::default()),
        ids: Arc::new(SystemIds::default()),
        acknowledge_before_fsync: arguments.unsafe_acknowledge_before_fsync,
        limit_file: arguments.limit_file,
    };
    let data_dir = config.data_dir.clone();
    let app = App::open(config, surroundings).await?;
    greet(&app, &data_dir, arguments.demo);
    if arguments.demo {
        crate::demo::play(&app.services);
    }
    app.run(stop_signal()).await?;
    if arguments.demo {
        let _ = std::fs::remove_dir_all(&data_dir);
    }
    Ok(Done::All)
}

fn load(path: Option<&std::path::Path>) -> Result<Config, Failure> {
    let usual = PathBuf::from(config::FILE_NAME);
    let path = path.or_else(|| usual.exists().then_some(usual.as_path()));
    Config::load(path, config::process_environment()).map_err(|problems| Failure(problems.to_string()))
}

fn greet(app: &App, data_dir: &std::path::Path, demo: bool) {
    output::note(&format!("tidings {} is listening on {}", env!("CARGO_PKG_VERSION"), app.url));
    output::note(&format!("data directory: {}", data_dir.display()));
    let token = data_dir.join("admin.token");
    if app.first_token.is_some() {
        output::note(&format!("the administrator's token was written to {}", token.display()));
    }
    if demo {
        let (url, token) = (&app.url, token.display());
        output::note("\nDemo: sample events are coming in. Three things to try in another terminal:");
        output::note(&format!("  export TIDINGS_URL={url} TIDINGS_TOKEN=$(cat {token})"));
        output::note("  tidings tail                                          # watch them come in");
        output::note("  echo '{\"eventType\":\"hello.world\",\"data\":{\"from\":\"me\"}}' | tidings send -");
        output::note("  curl -H \"Authorization: Bearer $TIDINGS_TOKEN\" \"$TIDINGS_URL/events?limit=5\"");
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

/// Ready at SIGTERM or SIGINT.
async fn stop_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut terminate), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        tracing::error!("cannot listen for signals; stop with kill -9");
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}
