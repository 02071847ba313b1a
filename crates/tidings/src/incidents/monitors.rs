//! The monitors: the seed's three, which the configuration may replace by name, and the rules that tell people.

use serde_json::json;

use crate::config::json::JsonObject;
use crate::config::monitors::{Metric, Monitor, Severity};
use crate::config::rules::{Channel, Rule, Target};

const TITLE: &str = "[{{ data.severity }}] {{ data.summary }}";
const TEXT: &str = "{{ data.summary }}\n\nMonitor: {{ data.monitor }}\nSince: {{ data.aboveSince }}\n\
    Incident: {{ data.incidentId }} ({{ data.state }}){% if data.state == 'open' %}\n\
    Acknowledge: POST /incidents/{{ data.incidentId }}/acknowledge{% endif %}";

#[must_use]
pub const fn metric_name(metric: Metric) -> &'static str {
    match metric {
        Metric::DeadLetters => "dead_letters",
        Metric::ActiveMessages => "active_messages",
        Metric::LatencyP99Seconds => "latency_p99_seconds",
        Metric::DeadLetterShare => "dead_letter_share",
    }
}

#[must_use]
pub const fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Critical => "critical",
    }
}

#[must_use]
pub fn severity_of(name: &str) -> Severity {
    match name {
        "critical" => Severity::Critical,
        "info" => Severity::Info,
        _ => Severity::Warning,
    }
}

/// The seed's monitors (S003-105 to S003-107) and that of full dead letters where the configuration has none of the name, and the configuration's.
#[must_use]
pub fn in_force(configured: &[Monitor]) -> Vec<Monitor> {
    let replaced = |name: &str| configured.iter().any(|monitor| monitor.name == name);
    let built_in = built_in().into_iter().filter(|monitor| !replaced(&monitor.name));
    built_in.chain(configured.iter().cloned()).collect()
}

fn built_in() -> [Monitor; 4] {
    let told = |user: &str| vec![inbox(user), Target { channel: Some(Channel::Ntfy), ..Target::default() }];
    let monitor = |name: &str, metric, above, for_seconds, user| Monitor {
        name: name.to_owned(),
        metric: Some(metric),
        above,
        for_seconds,
        targets: told(user),
        escalate: vec![inbox(user)],
        ..Monitor::default()
    };
    [
        Monitor {
            severity: Severity::Critical,
            acknowledge_seconds: 900,
            ..monitor("dead-letters", Metric::DeadLetters, 0.0, 300, "on-call")
        },
        monitor("active-messages", Metric::ActiveMessages, 1000.0, 600, "devops-team"),
        monitor("latency-p99", Metric::LatencyP99Seconds, 5.0, 300, "devops-team"),
        // S003-99: while there is still room.
        Monitor {
            severity: Severity::Critical,
            acknowledge_seconds: 900,
            ..monitor("dead-letters-full", Metric::DeadLetterShare, 0.9, 0, "on-call")
        },
    ]
}

fn inbox(user: &str) -> Target {
    Target { channel: Some(Channel::Inbox), users: vec![user.to_owned()], ..Target::default() }
}

/// The rules that tell people of incidents: ordinary ones, seen at `/rules` (SX-17). The n-th escalation goes to the
/// n-th of the path, and from the last one on to the last.
#[must_use]
pub fn rules(configured: &[Monitor]) -> Vec<Rule> {
    let mut rules = Vec::new();
    for monitor in in_force(configured).iter().filter(|monitor| monitor.enabled) {
        let named = |suffix: &str| format!("monitor-{}{suffix}", monitor.name);
        let types = json!(["incident.raised", "incident.resolved"]);
        if !monitor.targets.is_empty() {
            let pattern =
                json!({ "eventType": types, "source": [super::SOURCE], "data": { "monitor": [monitor.name] } });
            rules.push(rule(named(""), pattern, &monitor.targets));
        }
        let last = monitor.escalate.len();
        for (place, target) in monitor.escalate.iter().enumerate() {
            let step = place + 1;
            let steps = if step == last { json!([{ "numeric": [">=", step] }]) } else { json!([step]) };
            let data = json!({ "monitor": [monitor.name], "escalations": steps });
            let pattern = json!({ "eventType": ["incident.escalated"], "source": [super::SOURCE], "data": data });
            rules.push(rule(named(&format!("-escalation-{step}")), pattern, std::slice::from_ref(target)));
        }
    }
    rules
}

/// What to do about a rule that follows from a monitor.
#[must_use]
pub fn how_to_change(rule: &str) -> String {
    let monitor = rule.strip_prefix("monitor-").unwrap_or(rule);
    let monitor = match monitor.rsplit_once("-escalation-") {
        Some((monitor, step)) if step.parse::<usize>().is_ok() => monitor,
        _ => monitor,
    };
    format!(
        "this rule belongs to the monitor `{monitor}`; to change it, write a monitor of that name under [[monitors]] in \
         the configuration file, to switch it off, one with `enabled = false`, and reload"
    )
}

fn rule(name: String, pattern: serde_json::Value, targets: &[Target]) -> Rule {
    Rule {
        name,
        pattern: JsonObject::from_value(pattern),
        targets: targets.to_vec(),
        title: TITLE.to_owned(),
        text: TEXT.to_owned(),
        of_monitor: true,
        ..Rule::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_monitors_are_there_unless_replaced() {
        let names = |monitors: &[Monitor]| monitors.iter().map(|monitor| monitor.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&in_force(&[])), ["dead-letters", "active-messages", "latency-p99", "dead-letters-full"]);
        let off = Monitor { name: "dead-letters".to_owned(), enabled: false, ..Monitor::default() };
        assert_eq!(
            names(&in_force(std::slice::from_ref(&off))),
            ["active-messages", "latency-p99", "dead-letters-full", "dead-letters"]
        );
        assert!(rules(&[off]).iter().all(|rule| rule.name != "monitor-dead-letters"));
    }

    #[test]
    fn a_path_has_a_rule_for_each_step() {
        let to = |user: &str| inbox(user);
        let monitor = Monitor {
            name: "m".to_owned(),
            metric: Some(Metric::DeadLetters),
            targets: vec![to("a")],
            escalate: vec![to("b"), to("c")],
            ..Monitor::default()
        };
        let names: Vec<_> = rules(&[monitor]).into_iter().map(|rule| rule.name).collect();
        assert!(names.ends_with(&[
            "monitor-m".into(),
            "monitor-m-escalation-1".into(),
            "monitor-m-escalation-2".into()
        ]));
    }
}
