//! Raise once, escalate until acknowledged, resolve by itself.

use super::*;
use crate::config::monitors::Metric;

fn monitor() -> Monitor {
    Monitor {
        name: "dead-letters".to_owned(),
        metric: Some(Metric::DeadLetters),
        for_seconds: 300,
        acknowledge_seconds: 900,
        severity: Severity::Critical,
        ..Monitor::default()
    }
}

/// A monitor's story: readings at seconds, one after the other.
struct Story {
    monitor: Monitor,
    watch: Option<Watch>,
    incident: Option<Incident>,
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

impl Story {
    fn new() -> Self {
        Self { monitor: monitor(), watch: None, incident: None }
    }

    fn reads(&mut self, second: i64, value: f64) -> Option<Turn> {
        let id = || format!("incident at {second}");
        match step(&self.monitor, ("jobs", value), self.watch.as_ref(), self.incident.as_ref(), at(second), id) {
            Step::Nothing => None,
            Step::Watch(watch) => {
                self.watch = Some(watch);
                None
            }
            Step::Forget => {
                self.watch = None;
                None
            }
            Step::Change { turn, incident, watch } => {
                (self.watch, self.incident) = (watch, Some(*incident));
                Some(turn)
            }
        }
    }
}

// S003-105
#[test]
fn it_is_raised_after_the_time_and_not_before() {
    let mut story = Story::new();
    assert_eq!(story.reads(0, 1.0), None);
    assert_eq!(story.reads(299, 1.0), None);
    assert_eq!(story.reads(300, 2.0), Some(Turn::Raised));
    let incident = story.incident.clone().unwrap();
    assert_eq!((incident.above_since, incident.raised_at), (at(0), at(300)));
    assert_eq!(incident.escalate_at, Some(at(1200)));
    assert_eq!(story.reads(301, 2.0), None, "once");
}

#[test]
fn what_is_over_before_the_time_is_forgotten() {
    let mut story = Story::new();
    story.reads(0, 1.0);
    assert_eq!(story.reads(200, 0.0), None);
    assert_eq!(story.reads(310, 1.0), None, "the time starts again");
    assert_eq!(story.reads(609, 1.0), None);
    assert_eq!(story.reads(610, 1.0), Some(Turn::Raised));
}

#[test]
fn the_threshold_itself_is_not_above_it() {
    let mut story = Story::new();
    story.monitor.above = 1000.0;
    story.monitor.for_seconds = 0;
    assert_eq!(story.reads(0, 999.0), None);
    assert_eq!(story.reads(1, 1000.0), None);
    assert_eq!(story.reads(2, 1001.0), Some(Turn::Raised));
}

// SX-18, S003-108
#[test]
fn unacknowledged_it_escalates_again_and_again() {
    let mut story = Story::new();
    story.reads(0, 1.0);
    story.reads(300, 1.0);
    assert_eq!(story.reads(1199, 5.0), None);
    assert_eq!(story.reads(1200, 5.0), Some(Turn::Escalated));
    assert_eq!(story.reads(2099, 1.0), None);
    assert_eq!(story.reads(2100, 1.0), Some(Turn::Escalated));
    let incident = story.incident.unwrap();
    assert_eq!((incident.escalations, incident.peak), (2, 5.0));
}

#[test]
fn acknowledged_it_does_not() {
    let mut story = Story::new();
    story.reads(0, 1.0);
    story.reads(300, 1.0);
    let acknowledged = story.incident.as_ref().unwrap().acknowledged("ana", None, at(400)).unwrap();
    assert_eq!(acknowledged.acknowledged("ben", None, at(401)), None, "the first one has it");
    story.incident = Some(acknowledged);
    assert_eq!(story.reads(5000, 1.0), None);
    assert_eq!(story.reads(5001, 0.0), Some(Turn::Resolved));
    assert_eq!(story.incident.as_ref().unwrap().acknowledged("ben", None, at(5002)), None);
}

#[test]
fn the_next_trouble_is_another_incident() {
    let mut story = Story::new();
    story.reads(0, 1.0);
    story.reads(300, 1.0);
    assert_eq!(story.reads(350, 0.0), Some(Turn::Resolved));
    let first = story.incident.clone().unwrap();
    assert_eq!(first.resolved_at, Some(at(350)));
    story.reads(400, 1.0);
    assert_eq!(story.reads(700, 1.0), Some(Turn::Raised));
    assert_ne!(story.incident.unwrap().id, first.id);
}

#[test]
fn a_clock_that_goes_back_raises_nothing_early() {
    let mut story = Story::new();
    story.reads(0, 1.0);
    assert_eq!(story.reads(-7200, 1.0), None);
    assert_eq!(story.reads(300, 1.0), Some(Turn::Raised));
}

#[test]
fn without_a_time_to_acknowledge_it_never_escalates() {
    let mut story = Story::new();
    story.monitor.acknowledge_seconds = 0;
    story.reads(0, 1.0);
    story.reads(300, 1.0);
    assert_eq!(story.reads(1_000_000, 1.0), None);
}
