//! When a schedule is due: cron in a time zone, a steady interval, or one instant. Pure.

use std::time::Duration;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::SignedDuration;
use jiff::tz::TimeZone;
use tidings_core::envelope::FieldError;
use tidings_core::time::{self, Timestamp};

use super::calendar::Calendar;
use crate::config::{duration, values};

/// The longest interval.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

const ZONE: &str = "must be an IANA time zone like \"Europe/Berlin\"";

/// When a schedule runs.
#[derive(Debug, Clone)]
pub enum Timing {
    Cron(Calendar),
    /// Every so many milliseconds, counted from an instant in both directions: if the clock was ahead when the schedule was
    /// made, it goes on at its pace once that is set right.
    Every {
        millis: i64,
        anchor: Timestamp,
    },
    At(Timestamp),
}

/// How somebody says it: exactly one of `cron`, `every` and `at`.
#[derive(Debug, Clone, Copy)]
pub struct Said<'a> {
    pub cron: Option<&'a str>,
    pub timezone: &'a str,
    pub every: Option<&'a str>,
    pub at: Option<&'a str>,
}

impl Timing {
    /// Reads what somebody says; `anchor` is where intervals are counted from.
    pub fn read(said: Said<'_>, anchor: Timestamp) -> Result<Self, Vec<FieldError>> {
        let refuse = |field: &str, why: String| Err(vec![FieldError::new(field, why)]);
        // Intervals and instants need no zone, but one that is named is shown, and must be one.
        if said.cron.is_none() && TimeZone::get(said.timezone).is_err() {
            let mut errors = vec![FieldError::new("timezone", ZONE)];
            let utc = Said { timezone: "UTC", ..said };
            errors.extend(Self::read(utc, anchor).err().into_iter().flatten());
            return Err(errors);
        }
        match (said.cron, said.every, said.at) {
            (Some(cron), None, None) => read_cron(cron, said.timezone),
            (None, Some(every), None) => match duration::parse(every) {
                Ok(every) if every < Duration::from_secs(1) || every > LONGEST => {
                    refuse("every", "must be from 1s to 366d".to_owned())
                }
                Ok(every) => {
                    let millis = i64::try_from(every.as_millis()).unwrap_or(i64::MAX);
                    Ok(Self::Every { millis, anchor })
                }
                Err(error) => refuse("every", format!("must be a duration: {error}")),
            },
            (None, None, Some(at)) => match values::instant(at) {
                Ok(at) => Ok(Self::At(in_millis(at))),
                Err(why) => refuse("at", why),
            },
            _ => refuse("", "needs exactly one of `cron`, `every` and `at`".to_owned()),
        }
    }

    /// The first run after an instant.
    #[must_use]
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Cron(calendar) => calendar.next_after(after),
            Self::Every { millis, anchor } => {
                let passed = after.as_millisecond().saturating_sub(anchor.as_millisecond()).div_euclid(*millis);
                at_count(*anchor, *millis, passed.saturating_add(1))
            }
            Self::At(at) => (*at > after).then_some(*at),
        }
    }

    /// The last run at or before an instant.
    #[must_use]
    pub fn last_until(&self, until: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Cron(calendar) => calendar.last_until(until),
            Self::Every { millis, anchor } => {
                let passed = until.as_millisecond().saturating_sub(anchor.as_millisecond()).div_euclid(*millis);
                at_count(*anchor, *millis, passed)
            }
            Self::At(at) => (*at <= until).then_some(*at),
        }
    }

    /// The latest runs after `from` and not after `until`, at most so many, in order.
    #[must_use]
    pub fn latest(&self, from: Timestamp, until: Timestamp, most: usize) -> Vec<Timestamp> {
        let mut runs = Vec::new();
        let mut until = until;
        while runs.len() < most
            && let Some(last) = self.last_until(until).filter(|last| *last > from)
        {
            runs.push(last);
            match last.checked_sub(SignedDuration::from_nanos(1)) {
                Ok(before) => until = before,
                Err(_) => break,
            }
        }
        runs.reverse();
        runs
    }

    /// The next so many runs.
    #[must_use]
    pub fn upcoming(&self, after: Timestamp, most: usize) -> Vec<Timestamp> {
        std::iter::successors(self.next_after(after), |at| self.next_after(*at)).take(most).collect()
    }
}

/// The instant as the runs and the ids of their messages have it.
fn in_millis(at: Timestamp) -> Timestamp {
    let beyond = i64::from(at.subsec_nanosecond().rem_euclid(1_000_000));
    at.checked_sub(SignedDuration::from_nanos(beyond)).unwrap_or(at)
}

/// What somebody says of an instant, without the digits that no run has: how far a schedule has come is kept with fewer,
/// and one that is never reached would run again and again.
#[must_use]
pub fn kept_instant(text: String) -> String {
    match time::read(&text) {
        Some(at) if in_millis(at) != at => time::iso_millis(at),
        _ => text,
    }
}

fn read_cron(text: &str, timezone: &str) -> Result<Timing, Vec<FieldError>> {
    let mut errors = Vec::new();
    // Five fields, or six with seconds first; a seventh would be the year.
    let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
    let fields = text.split_whitespace().count();
    // The library takes nothing between two commas for nothing at all.
    let has_gap = text.split_whitespace().any(|field| field.split(',').any(str::is_empty));
    let parsed = if has_gap { Err("a list has an empty place".to_owned()) } else { parsed(&parser, text) };
    let cron = parsed.map_err(|error| {
        let why = if (5..=6).contains(&fields) || text.starts_with('@') {
            format!("must be a cron expression: {error}")
        } else {
            format!("must have 5 fields, or 6 with seconds, not {fields}")
        };
        errors.push(FieldError::new("cron", why));
    });
    let zone = TimeZone::get(timezone).map_err(|_| {
        errors.push(FieldError::new("timezone", ZONE));
    });
    match (cron, zone) {
        (Ok(cron), Ok(zone)) => Ok(Timing::Cron(Calendar::new(cron, zone))),
        _ => Err(errors),
    }
}

fn parsed(parser: &CronParser, text: &str) -> Result<Cron, String> {
    parser.parse(text).map_err(|error| error.to_string())
}

fn at_count(anchor: Timestamp, millis: i64, count: i64) -> Option<Timestamp> {
    let at = anchor.as_millisecond().checked_add(millis.checked_mul(count)?)?;
    Timestamp::from_millisecond(at).ok()
}

#[cfg(test)]
#[path = "timing_tests.rs"]
mod tests;
