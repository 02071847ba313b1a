//! Entities that exist from the start: the seed's (S003-110), and those of the configuration.

use tidings_core::retry::Strategy;

use super::definition::{Definition, Kind, Retry, RuleDefinition};
use super::entity::Origin;
use super::path::Path;
use crate::business;
use crate::config::Config;

pub const OCR_QUEUE: &str = "ocr-processing-queue";
pub const TRANSFER_QUEUE: &str = "transfer-expiration-queue";
pub const DOMAIN_TOPIC: &str = "domain-events-topic";
pub const NOTIFICATIONS: &str = "notifications-sub";
pub const SYSTEM_TOPIC: &str = "system-events-topic";
pub const AUDITING: &str = "auditing-sub";

/// Everything that is declared: the seed's first, a topic before its subscriptions. The configuration's word counts where both have one.
#[must_use]
pub fn all(config: &Config) -> Vec<(Path, Definition, Origin)> {
    let mut declared = Vec::new();
    for queue in &config.queues {
        declared.push((Path::queue(&queue.name), Definition::from(queue), Origin::File));
    }
    for topic in &config.topics {
        declared.push((Path::queue(&topic.name), Definition::from(topic), Origin::File));
        for subscription in &topic.subscriptions {
            let path = Path::subscription(&topic.name, &subscription.name);
            declared.push((path, Definition::from(subscription), Origin::File));
        }
    }
    // These first: whatever else there is, they are there.
    let mut first = Vec::new();
    for (path, definition) in seeds() {
        let said = declared.iter().position(|(known, ..)| *known == path);
        first.push(said.map_or_else(|| (path, definition, Origin::BuiltIn), |place| declared.remove(place)));
    }
    first.extend(declared);
    first
}

/// Whether it is one of the seed's, whoever has changed it since: handlers of ours wait at it for as long as we run.
#[must_use]
pub fn is_seed(path: &Path) -> bool {
    seeds().iter().any(|(seed, _)| seed == path)
}

/// The seed's entities with its retries and time limits.
#[must_use]
pub fn seeds() -> Vec<(Path, Definition)> {
    let fixed = Retry { strategy: Strategy::Fixed, base_seconds: 60.0, jitter: false, ..Retry::default() };
    let with = |kind: Kind, lock_seconds: u64, retry: Retry| Definition {
        lock_seconds,
        retry: Some(retry),
        ..Definition::new(kind)
    };
    let of_kind = |kind: business::Kind, lock_seconds: u64| Definition {
        rules: rules_of(kind),
        ..with(Kind::Subscription, lock_seconds, Retry::default())
    };
    vec![
        // S003-10, S003-12, S003-14: the time limit is the longest lock there is; the lock is renewed meanwhile.
        (Path::queue(OCR_QUEUE), with(Kind::Queue, 300, Retry::default())),
        // S003-35, S003-37, S003-39
        (Path::queue(TRANSFER_QUEUE), with(Kind::Queue, 90, fixed)),
        // S003-22, S003-24, S003-26
        (Path::queue(DOMAIN_TOPIC), Definition::new(Kind::Topic)),
        (Path::subscription(DOMAIN_TOPIC, NOTIFICATIONS), of_kind(business::Kind::StatusChanged, 90)),
        // S003-48, S003-50, S003-52
        (Path::queue(SYSTEM_TOPIC), Definition::new(Kind::Topic)),
        (Path::subscription(SYSTEM_TOPIC, AUDITING), of_kind(business::Kind::ActionOccurred, 60)),
    ]
}

/// What the subscription of a business event takes: its routing key or its name, as the subject or as `eventType`, in the
/// version that its handler understands. Another version is for other subscriptions (S003-65, S003-66).
fn rules_of(kind: business::Kind) -> Vec<RuleDefinition> {
    let names = format!("('{}', '{}')", kind.routing_key().unwrap_or_default(), kind.event_type());
    let major = business::event::MAJOR;
    let version = format!("(eventVersion IS NULL OR eventVersion = '{major}' OR eventVersion LIKE '{major}.%')");
    let rule = |name: &str, names: String| RuleDefinition {
        name: name.to_owned(),
        sql: Some(format!("{names} AND {version}")),
        ..RuleDefinition::default()
    };
    vec![
        rule("routing-key", format!("sys.Label IS NOT NULL AND sys.Label IN {names}")),
        rule("event-type", format!("eventType IN {names}")),
    ]
}

/// Whether these are the rules that an earlier release declared for a subscription, which nobody has changed since.
#[must_use]
pub fn is_superseded(path: &Path, rules: &[RuleDefinition]) -> bool {
    let of = |kind: business::Kind| {
        let key = kind.routing_key().unwrap_or_default();
        let by_key =
            RuleDefinition { name: "routing-key".to_owned(), key: Some(key.to_owned()), ..RuleDefinition::default() };
        let by_type = RuleDefinition {
            name: "event-type".to_owned(),
            correlation: Some(serde_json::json!({ "properties": { "eventType": key } })),
            ..RuleDefinition::default()
        };
        *rules == [by_key, by_type]
    };
    (*path == Path::subscription(DOMAIN_TOPIC, NOTIFICATIONS) && of(business::Kind::StatusChanged))
        || (*path == Path::subscription(SYSTEM_TOPIC, AUDITING) && of(business::Kind::ActionOccurred))
}
