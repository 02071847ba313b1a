//! Quiet hours: a message that falls into them waits until they end, unless it is critical (SX-15). Pure.

use jiff::ToSpan;
use jiff::civil::{Date, Time, Weekday};
use jiff::tz::TimeZone;
use serde_json::Value;
use tidings_core::time::Timestamp;

use super::record::Message;
use crate::channel::Priority;
use crate::config::delivery::{Day, QuietHours};
use crate::schedules::calendar;

/// Quiet hours that follow each other without a break are passed in at most so many steps.
const STEPS: usize = 16;

/// All quiet hours of this installation.
#[derive(Debug, Clone, Default)]
pub struct Quiet(Vec<Hours>);

/// One entry, read.
#[derive(Debug, Clone)]
pub struct Hours {
    name: String,
    channels: Vec<String>,
    targets: Vec<String>,
    days: Vec<Weekday>,
    start: Time,
    /// Absent: midnight.
    end: Option<Time>,
    zone: TimeZone,
}

impl Quiet {
    /// A checked configuration has no others than good ones.
    #[must_use]
    pub fn new(configured: &[QuietHours]) -> Self {
        Self(configured.iter().filter_map(|hours| Hours::read(hours).ok()).collect())
    }

    /// Until when a message has to wait, and because of which hours; `None` if it may go.
    #[must_use]
    pub fn until(&self, message: &Message, now: Timestamp) -> Option<(Timestamp, &str)> {
        if self.0.is_empty() || is_critical(message) {
            return None;
        }
        let hours: Vec<&Hours> = self.0.iter().filter(|hours| hours.concerns(message)).collect();
        let mut until = None;
        for _ in 0..STEPS {
            let at = until.map_or(now, |(at, _)| at);
            let Some(later) = hours.iter().find_map(|hours| Some((hours.end_at(at)?, hours.name.as_str()))) else {
                break;
            };
            until = Some(later);
        }
        until
    }
}

impl Hours {
    /// # Errors
    ///
    /// Each key that is wrong, with the rest of a sentence that begins with it.
    pub fn read(configured: &QuietHours) -> Result<Self, Vec<(&'static str, String)>> {
        let mut errors = Vec::new();
        let mut time = |key, text: &str, midnight: bool| match text {
            "24:00" if midnight => None,
            text => {
                let time = text.parse::<Time>().ok().filter(|_| text.len() == 5);
                if time.is_none() {
                    errors.push((key, "must be a time of day like \"22:00\"".to_owned()));
                }
                time
            }
        };
        let start = time("start", &configured.start, false);
        let end = time("end", &configured.end, true);
        if start.is_some() && start == end {
            errors.push(("end", "is the same as `start`; a whole day is from \"00:00\" to \"24:00\"".to_owned()));
        }
        let zone = TimeZone::get(&configured.timezone).ok();
        if zone.is_none() {
            errors.push(("timezone", "must be an IANA time zone like \"Europe/Berlin\"".to_owned()));
        }
        match (start, zone) {
            (Some(start), Some(zone)) if errors.is_empty() => Ok(Self {
                name: configured.name.clone(),
                channels: configured.channels.clone(),
                targets: configured.targets.clone(),
                days: configured.days.iter().map(|day| weekday(*day)).collect(),
                start,
                end,
                zone,
            }),
            _ => Err(errors),
        }
    }

    fn concerns(&self, message: &Message) -> bool {
        (self.channels.is_empty() || self.channels.contains(&message.channel))
            && (self.targets.is_empty() || self.targets.iter().any(|pattern| is_aimed_at(message, pattern)))
    }

    /// When these hours end, if `at` lies in them.
    fn end_at(&self, at: Timestamp) -> Option<Timestamp> {
        let today = at.to_zoned(self.zone.clone()).date();
        let yesterday = today.yesterday().ok();
        [Some(today), yesterday].into_iter().flatten().find_map(|day| {
            let (start, end) = self.on(day)?;
            (start <= at && at < end).then_some(end)
        })
    }

    /// From when to when they are, if they begin on this day. A time that does not exist on it, because clocks are set
    /// forward, is the first one after it.
    fn on(&self, day: Date) -> Option<(Timestamp, Timestamp)> {
        if !self.days.is_empty() && !self.days.contains(&day.weekday()) {
            return None;
        }
        let last = match self.end {
            Some(end) if end > self.start => day,
            _ => day.checked_add(1.day()).ok()?,
        };
        let start = calendar::instant(&self.zone, day.to_datetime(self.start))?;
        let end = calendar::instant(&self.zone, last.to_datetime(self.end.unwrap_or(Time::midnight())))?;
        Some((start, end))
    }
}

/// The highest priority, or a payload that says so of itself.
fn is_critical(message: &Message) -> bool {
    let severity = message.payload.get("severity").and_then(Value::as_str);
    message.priority() == Priority::Max || severity.is_some_and(|severity| severity.eq_ignore_ascii_case("critical"))
}

fn is_aimed_at(message: &Message, pattern: &str) -> bool {
    let fits = |target: &str| match pattern.strip_suffix('*') {
        Some(start) => target.starts_with(start),
        None => target == pattern,
    };
    message.target.values().any(|value| match value {
        Value::String(target) => fits(target),
        Value::Array(targets) => targets.iter().filter_map(Value::as_str).any(fits),
        _ => false,
    })
}

const fn weekday(day: Day) -> Weekday {
    match day {
        Day::Mon => Weekday::Monday,
        Day::Tue => Weekday::Tuesday,
        Day::Wed => Weekday::Wednesday,
        Day::Thu => Weekday::Thursday,
        Day::Fri => Weekday::Friday,
        Day::Sat => Weekday::Saturday,
        Day::Sun => Weekday::Sunday,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;
    use crate::messages::NewMessage;

    fn message(channel: &str, target: Value, payload: Value) -> Message {
        let new = NewMessage {
            message_id: Uuid::from_u128(1),
            created_by: "user:a".to_owned(),
            stage: "dev",
            message_type: "reminder",
            payload: payload.as_object().unwrap().clone(),
            correlation_id: "c",
            channel,
            target: target.as_object().unwrap().clone(),
            secret: None,
            event_id: None,
            rule: None,
            deliver_at: None,
            keep_seconds: 1,
        };
        Message::new(new, Timestamp::UNIX_EPOCH)
    }

    fn hours(start: &str, end: &str) -> QuietHours {
        let timezone = "Europe/Berlin".to_owned();
        QuietHours {
            name: "q".to_owned(),
            start: start.to_owned(),
            end: end.to_owned(),
            timezone,
            ..Default::default()
        }
    }

    fn until(hours: &[QuietHours], now: &str) -> Option<String> {
        let message = message("ntfy", json!({ "topic": "ops" }), json!({ "text": "x" }));
        Quiet::new(hours).until(&message, now.parse().unwrap()).map(|(at, _)| at.to_string())
    }

    // SX-15
    #[test]
    fn a_night_ends_in_the_morning() {
        let night = [hours("22:00", "07:00")];
        for (now, end) in [
            ("2026-01-10T20:59:59Z", None),
            ("2026-01-10T21:00:00Z", Some("2026-01-11T06:00:00Z")),
            ("2026-01-11T05:59:59Z", Some("2026-01-11T06:00:00Z")),
            ("2026-01-11T06:00:00Z", None),
            // Clocks go forward on 29 March at 2, and back on 25 October at 3.
            ("2026-03-28T21:30:00Z", Some("2026-03-29T05:00:00Z")),
            ("2026-10-24T20:30:00Z", Some("2026-10-25T06:00:00Z")),
        ] {
            assert_eq!(until(&night, now).as_deref(), end, "{now}");
        }
    }

    // SX-15: clocks go forward on 29 March at 1:00Z, from 2 to 3.
    #[test]
    fn a_time_that_is_left_out_is_the_moment_of_that() {
        for (hours, now, end) in [
            (hours("22:00", "02:30"), "2026-03-29T00:59:59Z", Some("2026-03-29T01:00:00Z")),
            (hours("22:00", "02:30"), "2026-03-29T01:00:00Z", None),
            (hours("02:15", "04:00"), "2026-03-29T00:59:59Z", None),
            (hours("02:15", "04:00"), "2026-03-29T01:00:00Z", Some("2026-03-29T02:00:00Z")),
            (hours("02:15", "02:45"), "2026-03-29T01:00:00Z", None),
        ] {
            assert_eq!(until(std::slice::from_ref(&hours), now).as_deref(), end, "{hours:?} {now}");
        }
    }

    #[test]
    fn days_are_those_on_which_it_begins_and_windows_add_up() {
        let friday = QuietHours { days: vec![Day::Fri], ..hours("18:00", "24:00") };
        let weekend = QuietHours { days: vec![Day::Sat, Day::Sun], ..hours("00:00", "24:00") };
        // 2026-01-09 is a Friday.
        let all = [friday, weekend];
        assert_eq!(until(&all, "2026-01-09T16:59:59Z"), None);
        assert_eq!(until(&all, "2026-01-09T17:00:00Z").as_deref(), Some("2026-01-11T23:00:00Z"));
        assert_eq!(until(&all, "2026-01-11T23:00:00Z"), None);
        let always = [hours("00:00", "12:00"), hours("12:00", "24:00")];
        assert!(until(&always, "2026-01-11T23:00:00Z").is_some(), "it ends, if not the quiet");
    }

    // SX-15: critical bypasses.
    #[test]
    fn what_is_critical_or_elsewhere_goes() {
        let quiet = Quiet::new(&[QuietHours {
            channels: vec!["ntfy".to_owned(), "email".to_owned()],
            targets: vec!["user-*".to_owned(), "a@b.example".to_owned()],
            ..hours("00:00", "24:00")
        }]);
        let now = "2026-01-10T12:00:00Z".parse().unwrap();
        for (channel, target, payload, waits) in [
            ("ntfy", json!({ "topic": "user-u1" }), json!({ "text": "x" }), true),
            ("ntfy", json!({ "topic": "user-u1" }), json!({ "text": "x", "priority": "high" }), true),
            ("ntfy", json!({ "topic": "user-u1" }), json!({ "text": "x", "priority": "urgent" }), false),
            ("ntfy", json!({ "topic": "user-u1" }), json!({ "text": "x", "priority": "max" }), false),
            ("ntfy", json!({ "topic": "user-u1" }), json!({ "text": "x", "priority": 5 }), false),
            ("ntfy", json!({ "topic": "user-u1" }), json!({ "text": "x", "priority": 4 }), true),
            ("ntfy", json!({ "topic": "user-u1" }), json!({ "text": "x", "severity": "Critical" }), false),
            ("ntfy", json!({ "topic": "ops" }), json!({ "text": "x" }), false),
            ("email", json!({ "to": ["c@d.example", "a@b.example"] }), json!({ "text": "x" }), true),
            ("webhook", json!({ "url": "user-x" }), json!({ "text": "x" }), false),
        ] {
            let message = message(channel, target, payload);
            assert_eq!(quiet.until(&message, now).is_some(), waits, "{message:?}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        let bad = QuietHours { timezone: "Mars".to_owned(), ..hours("24:00", "7") };
        let keys: Vec<_> = Hours::read(&bad).unwrap_err().into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["start", "end", "timezone"]);
        assert_eq!(Hours::read(&hours("07:00", "07:00")).unwrap_err()[0].0, "end");
    }
}
