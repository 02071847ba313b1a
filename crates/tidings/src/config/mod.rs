//! The configuration: one TOML file, every key also as an environment variable, every mistake reported at once.
//!
//! `tree` parses and keeps places, `environment` lays variables over it, `read` turns it into the typed sections,
//! `secret` fetches what is given by reference, and each section's `check` judges its own values. A new key needs a
//! field in its section and a line in `tidings.example.toml`; tests hold the two together.

pub mod amqp;
pub mod audit;
pub mod bus;
mod check;
pub mod delivery;
mod difference;
pub mod duration;
pub mod email;
mod environment;
pub mod invoices;
pub mod json;
pub mod limits;
mod listen;
pub mod log;
pub mod message_types;
pub mod monitors;
pub mod node;
pub mod notification_center;
pub mod ntfy;
pub mod outbound;
mod problem;
pub mod process_alerts;
pub mod push;
mod read;
pub mod retention;
pub mod rules;
pub mod schedules;
mod secret;
pub mod sources;
pub mod store;
mod suggest;
#[cfg(test)]
mod tests;
pub mod tickets;
pub mod transfers;
mod tree;
pub mod values;

use std::collections::BTreeMap;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use difference::Difference;
pub use environment::process_environment;
pub use json::JsonObject;
pub use listen::{Listen, parse as parse_address};
pub use problem::{Problem, Problems};
pub use secret::Secret;
pub(crate) use suggest::nearest;

use check::{Check, plain_name};
use tree::Node;

/// The file's usual name.
pub const FILE_NAME: &str = "tidings.toml";
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// Everything that can be configured. `Debug` and `Serialize` show no secrets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Config {
    /// Port 0 takes a free one.
    #[serde(deserialize_with = "listen::required")]
    pub listen: SocketAddr,
    pub data_dir: PathBuf,
    pub stage: Stage,
    /// For links in mails and pushes.
    pub public_url: String,
    /// Encrypts the secrets that come through the API: 32 bytes in base64. Left out: a key in the store does.
    pub secrets_key: Option<Secret>,
    /// What was encrypted with this key can still be read.
    pub previous_secrets_key: Option<Secret>,
    /// Whether messages may have types that are neither built in nor among `message_types`.
    pub allow_unknown_types: bool,
    pub store: store::Store,
    pub node: node::Node,
    pub email: email::Email,
    pub ntfy: ntfy::Ntfy,
    pub push: push::Push,
    pub amqp: amqp::Amqp,
    pub process_alerts: process_alerts::ProcessAlerts,
    pub notification_center: notification_center::NotificationCenter,
    pub audit: audit::Audit,
    pub tickets: tickets::Tickets,
    pub invoices: invoices::Invoices,
    pub transfers: transfers::Transfers,
    pub outbound: outbound::Outbound,
    pub delivery: delivery::Delivery,
    pub quiet_hours: Vec<delivery::QuietHours>,
    pub limits: limits::Limits,
    pub retention: retention::Retention,
    pub log: log::Log,
    pub rules: Vec<rules::Rule>,
    pub queues: Vec<bus::Queue>,
    pub topics: Vec<bus::Topic>,
    pub schedules: Vec<schedules::Schedule>,
    pub monitors: Vec<monitors::Monitor>,
    pub message_types: Vec<message_types::MessageType>,
    pub sources: Vec<sources::Source>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    #[default]
    Dev,
    Stage,
    Prod,
}

impl Stage {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dev => "dev",
            Self::Stage => "stage",
            Self::Prod => "prod",
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 8787));
        Self {
            listen,
            data_dir: PathBuf::from("tidings-data"),
            stage: Stage::Dev,
            public_url: url_of(listen),
            secrets_key: None,
            previous_secrets_key: None,
            allow_unknown_types: false,
            store: store::Store::default(),
            node: node::Node::default(),
            email: email::Email::default(),
            ntfy: ntfy::Ntfy::default(),
            push: push::Push::default(),
            amqp: amqp::Amqp::default(),
            process_alerts: process_alerts::ProcessAlerts::default(),
            notification_center: notification_center::NotificationCenter::default(),
            audit: audit::Audit::default(),
            tickets: tickets::Tickets::default(),
            invoices: invoices::Invoices::default(),
            transfers: transfers::Transfers::default(),
            outbound: outbound::Outbound::default(),
            delivery: delivery::Delivery::default(),
            quiet_hours: Vec::new(),
            limits: limits::Limits::default(),
            retention: retention::Retention::default(),
            log: log::Log::default(),
            rules: Vec::new(),
            queues: Vec::new(),
            topics: Vec::new(),
            schedules: Vec::new(),
            monitors: Vec::new(),
            message_types: Vec::new(),
            sources: Vec::new(),
        }
    }
}

impl Config {
    /// Defaults, then the file, then the variables `TIDINGS__SECTION__KEY` of `env`. Without a path there is no file.
    ///
    /// # Errors
    ///
    /// Everything that is wrong.
    pub fn load(path: Option<&Path>, env: impl Iterator<Item = (String, String)>) -> Result<Self, Problems> {
        let Some(path) = path else { return Self::parse_named("environment", "", env) };
        let name = path.display().to_string();
        let text = read_file(path)
            .map_err(|error| Problems::new(&name, vec![Problem::new(None, "", format!("cannot be read: {error}"))]))?;
        Self::parse_named(&name, &text, env)
    }

    /// The same from a text, which problems call `tidings.toml`.
    ///
    /// # Errors
    ///
    /// Everything that is wrong.
    pub fn parse(text: &str, env: impl Iterator<Item = (String, String)>) -> Result<Self, Problems> {
        Self::parse_named(FILE_NAME, text, env)
    }

    fn parse_named(name: &str, text: &str, env: impl Iterator<Item = (String, String)>) -> Result<Self, Problems> {
        let variables: BTreeMap<String, String> = env.collect();
        // A file that is not TOML has no keys to judge; guessing at them would bury the real mistake.
        let mut root = Node::from_toml(text).map_err(|problems| Problems::new(name, problems))?;
        let mut problems = Vec::new();
        environment::overlay(&mut root, &variables, &mut problems);
        let (mut config, left_out): (Config, _) = read::read(&root, &mut problems);
        config.derive_public_url(&root);
        let mut check = Check::new(&root, &left_out, &mut problems);
        let mut unknown = Vec::new();
        for (path, secret) in config.secrets() {
            if let Err(why) = secret.resolve(&variables) {
                check.problem_at(&path, &why);
                unknown.push(path);
            }
        }
        let known = check.count();
        config.check(&mut check);
        // What is said of a secret that nobody knows is not about the secret.
        let judged = problems.split_off(known);
        problems.extend(judged.into_iter().filter(|problem| !unknown.contains(&problem.key)));
        if problems.is_empty() { Ok(config) } else { Err(Problems::new(name, problems)) }
    }

    /// Changes the address to listen on, as `--listen` does or once port 0 became a real one; a `public_url` that was
    /// made from the old address follows.
    pub fn set_listen(&mut self, listen: SocketAddr) {
        if self.public_url == url_of(self.listen) {
            self.public_url = url_of(listen);
        }
        self.listen = listen;
    }

    /// What a reload from this configuration to `new` would change, and what has to wait for a restart.
    #[must_use]
    pub fn reloadable_difference(&self, new: &Config) -> Difference {
        difference::difference(self, new)
    }

    /// Takes over from `new` what a reload changes at once. What has to wait for a restart is still a difference then.
    pub fn take_over(&mut self, new: Config) {
        difference::take_over(self, new);
    }

    /// Links should work when only `listen` was changed.
    fn derive_public_url(&mut self, root: &Node) {
        if !root.has("public_url") {
            self.public_url = url_of(self.listen);
        }
    }

    fn check(&self, check: &mut Check<'_>) {
        if self.data_dir.as_os_str().is_empty() {
            check.key("data_dir").problem("is empty");
        }
        // Made from port 0, it becomes a real one with `set_listen`.
        if self.public_url != url_of(self.listen) {
            let mut check = check.key("public_url");
            check.url(&self.public_url, &["http", "https"]);
            if self.public_url.contains(['?', '#']) {
                check.problem("must have neither `?` nor `#`, for links are made by adding a path to it");
            }
        }
        for (name, key) in [("secrets_key", &self.secrets_key), ("previous_secrets_key", &self.previous_secrets_key)] {
            // An empty one is reported by then.
            let key = key.as_ref().filter(|key| !key.expose().is_empty());
            if key.is_some_and(|key| crate::secrets::configured(key).is_none()) {
                check.key(name).problem("must be 32 bytes in base64, as `openssl rand -base64 32` makes them");
            }
        }
        self.store.check(&mut check.key("store"));
        self.node.check(&mut check.key("node"));
        self.email.check(&mut check.key("email"));
        self.ntfy.check(&mut check.key("ntfy"));
        self.push.check(&mut check.key("push"));
        self.amqp.check(&mut check.key("amqp"));
        self.process_alerts.check(&mut check.key("process_alerts"));
        self.notification_center.check(&mut check.key("notification_center"));
        self.audit.check(&mut check.key("audit"));
        self.invoices.check(&mut check.key("invoices"));
        self.transfers.check(&mut check.key("transfers"));
        self.outbound.check(&mut check.key("outbound"));
        self.delivery.check(&mut check.key("delivery"));
        self.limits.check(&mut check.key("limits"));
        self.retention.check(&mut check.key("retention"), self.store.engine);
        self.check_listeners(check);
        // Whoever judges a name in the API judges it here. A rule's is judged with the rest of it.
        check.list("rules", &self.rules, (|rule| &rule.name, |_| Ok(())), rules::Rule::check);
        check.list("queues", &self.queues, (|queue| &queue.name, bus::entity_name), bus::Queue::check);
        check.list("topics", &self.topics, (|topic| &topic.name, bus::entity_name), bus::Topic::check);
        check.list("quiet_hours", &self.quiet_hours, (|hours| &hours.name, plain_name), delivery::QuietHours::check);
        check.list(
            "schedules",
            &self.schedules,
            (|schedule| &schedule.name, schedules::name),
            schedules::Schedule::check,
        );
        check.list("monitors", &self.monitors, (|monitor| &monitor.name, plain_name), monitors::Monitor::check);
        let kinds = &self.message_types;
        check.list("message_types", kinds, (|kind| &kind.name, message_types::name), message_types::MessageType::check);
        check.list("sources", &self.sources, (|source| &source.name, plain_name), sources::Source::check);
        self.check_scheduled_payloads(check);
        self.check_counts(check);
        // Queues and topics share the paths under `/bus`.
        for (index, topic) in self.topics.iter().enumerate() {
            if !topic.name.is_empty() && self.queues.iter().any(|queue| queue.name == topic.name) {
                let mut topics = check.key("topics");
                topics
                    .item(index)
                    .key("name")
                    .problem(format_args!("is {}, which a queue has already", problem::quote(&topic.name)));
            }
        }
    }

    /// More than there can be would be left out at the start, with those that come with Tidings among them.
    fn check_counts(&self, check: &mut Check<'_>) {
        if self.schedules.len() > crate::schedules::MOST {
            let (most, all) = (crate::schedules::MOST, self.schedules.len());
            check
                .key("schedules")
                .item(most)
                .problem(format_args!("is one too many: there are {all}, at most {most} are possible"));
        }
        bus::check_counts(self, check);
        bus::check_kinds(self, check);
    }

    /// A scheduled message is judged as the API would judge it (S002-60), so that no run fails for what could be known.
    fn check_scheduled_payloads(&self, check: &mut Check<'_>) {
        // A schema that is none is reported by then.
        let Ok(types) = crate::messages::types::Types::new(&self.message_types) else { return };
        let types = types.allowing_unknown(self.allow_unknown_types);
        let mut schedules = check.key("schedules");
        for (index, schedule) in self.schedules.iter().enumerate() {
            if schedule.message_type.is_empty() {
                continue;
            }
            let mut entry = schedules.item(index);
            for error in types.check(&schedule.message_type, schedule.payload.as_map()) {
                match error.field.strip_prefix("payload.") {
                    Some(inner) => {
                        entry.key("payload").problem(format_args!("does not fit: `{inner}` {}", error.message))
                    }
                    None => entry.key(&error.field).problem(error.message),
                }
            }
        }
    }

    /// Two listeners cannot share an address; the operating system would say so later and less clearly.
    fn check_listeners(&self, check: &mut Check<'_>) {
        if let Some(push) = self.push.listen.address().filter(|push| overlap(*push, self.listen)) {
            check.key("push").key("listen").problem(format_args!("is {push}, which `listen` has already"));
        }
    }

    /// Every secret with its key's path.
    fn secrets(&mut self) -> Vec<(String, &mut Secret)> {
        let mut secrets = Vec::new();
        secrets.extend(self.secrets_key.as_mut().map(|key| ("secrets_key".to_owned(), key)));
        secrets.extend(self.previous_secrets_key.as_mut().map(|key| ("previous_secrets_key".to_owned(), key)));
        self.email.secrets(&mut secrets);
        self.ntfy.secrets(&mut secrets);
        self.amqp.secrets(&mut secrets);
        for (index, rule) in self.rules.iter_mut().enumerate() {
            rule.secrets(&format!("rules[{index}]"), &mut secrets);
        }
        for (index, topic) in self.topics.iter_mut().enumerate() {
            topic.secrets(&format!("topics[{index}]"), &mut secrets);
        }
        for (index, monitor) in self.monitors.iter_mut().enumerate() {
            monitor.secrets(&format!("monitors[{index}]"), &mut secrets);
        }
        for (index, source) in self.sources.iter_mut().enumerate() {
            source.secrets(&format!("sources[{index}]"), &mut secrets);
        }
        secrets
    }
}

/// Whether the second to be opened would fail. Port 0 never does.
fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    let same_address = a.ip() == b.ip() || a.ip().is_unspecified() || b.ip().is_unspecified();
    a.port() == b.port() && a.port() != 0 && same_address
}

/// How a browser on this machine reaches the address.
fn url_of(listen: SocketAddr) -> String {
    let host = match listen {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => SocketAddr::from((Ipv4Addr::LOCALHOST, v4.port())),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, v6.port())),
        other => other,
    };
    format!("http://{host}")
}

fn read_file(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let read = std::fs::File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if read as u64 > MAX_FILE_BYTES {
        return Err(std::io::Error::other(format!("it is larger than {MAX_FILE_BYTES} bytes")));
    }
    Ok(text)
}
