//! Query parameters: known ones only, each at most once, every failing one named.

use std::ops::RangeInclusive;

use jiff::civil::Date;
use tidings_core::envelope::FieldError;
use tidings_core::time::Timestamp;

use super::problem::Problem;

/// The parameters of one request.
#[derive(Debug, Clone, Default)]
pub struct Params {
    pairs: Vec<(String, String)>,
    errors: Vec<FieldError>,
}

impl Params {
    /// Reads a query string and refuses parameters that the route does not know, or that come twice.
    pub fn read(query: Option<&str>, known: &[&str]) -> Result<Self, Problem> {
        let params = Self::gather(query, known);
        params.refusal().map_or(Ok(params), Err)
    }

    /// The same for who looks at the others before it says what is wrong: `finish` says it of all.
    #[must_use]
    pub fn gather(query: Option<&str>, known: &[&str]) -> Self {
        let Some(query) = query.filter(|query| !query.is_empty()) else { return Self::default() };
        let pairs: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes())
            .map(|(name, value)| (name.into_owned(), value.into_owned()))
            .collect();
        let mut errors = not_text(query.as_bytes());
        for (place, (name, _)) in pairs.iter().enumerate() {
            if !known.contains(&name.as_str()) {
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                errors.push(FieldError::new(name, format!("is no parameter of this call (known: {known})")));
            } else if pairs.iter().take(place).any(|(earlier, _)| earlier == name) {
                errors.push(FieldError::new(name, "is given more than once"));
            }
        }
        Self { pairs, errors }
    }

    /// The problem with what is known to be wrong so far, if anything is.
    #[must_use]
    pub fn refusal(&self) -> Option<Problem> {
        if self.errors.is_empty() { None } else { Some(Problem::invalid(self.errors.clone())) }
    }

    /// The same from fields of a body that mean what parameters of another call do.
    #[must_use]
    pub fn of(fields: Vec<(&str, &str)>) -> Self {
        let pairs = fields.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self { pairs: pairs.collect(), errors: Vec::new() }
    }

    /// Every parameter that was wrong.
    #[must_use]
    pub fn into_errors(self) -> Vec<FieldError> {
        self.errors
    }

    /// A parameter's text; an empty one counts as absent.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.pairs
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }

    /// A whole number within `range`, or `default`.
    pub fn number(&mut self, name: &str, range: RangeInclusive<usize>, default: usize) -> usize {
        // An empty number is a mistake rather than an absent one: limits are validated, never guessed (SX-10).
        let Some((_, text)) = self.pairs.iter().find(|(known, _)| known == name) else { return default };
        match text.parse::<usize>().ok().filter(|number| range.contains(number)) {
            Some(number) => number,
            None => {
                let message = format!("must be a whole number from {} to {}", range.start(), range.end());
                self.errors.push(FieldError::new(name, message));
                default
            }
        }
    }

    /// A moment: ISO 8601; or a day, a month or a year (`2026-01-31`, `2026-01`, `2026`; S002-20), which means its first
    /// instant (`End::Start`) or its last (`End::Finish`).
    pub fn time(&mut self, name: &str, end: End) -> Option<Timestamp> {
        let read = self.text(name).map(|text| read_time(text, end));
        match read? {
            Some(at) => Some(at),
            None => {
                self.errors.push(FieldError::new(
                    name,
                    "must be a date or a time as in 2026-01-31, 2026-01, 2026 or 2026-01-31T12:00:00Z",
                ));
                None
            }
        }
    }

    /// Notes that a parameter is wrong.
    pub fn refuse(&mut self, name: &str, message: impl Into<String>) {
        self.errors.push(FieldError::new(name, message));
    }

    /// The problem with every parameter that was wrong, if any was.
    pub fn finish(self) -> Result<(), Problem> {
        if self.errors.is_empty() { Ok(()) } else { Err(Problem::invalid(self.errors)) }
    }
}

/// Parameters that are no text: what stands for the bytes that are none would be another name.
pub fn not_text(query: &[u8]) -> Vec<FieldError> {
    let is_text = |part: &[u8]| percent_encoding::percent_decode(part).decode_utf8().is_ok();
    let bad = query.split(|byte| *byte == b'&').filter(|pair| !is_text(pair));
    let names = bad.map(|pair| pair.split(|byte| *byte == b'=').next().unwrap_or_default());
    names
        .map(|name| {
            let name = percent_encoding::percent_decode(name).decode_utf8_lossy();
            FieldError::new(name, "must be text in UTF-8")
        })
        .collect()
}

/// Which instant of a day a bare date stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Start,
    Finish,
}

fn read_time(text: &str, end: End) -> Option<Timestamp> {
    let Some((first, last)) = days_of(text) else { return tidings_core::time::read(text) };
    let instant = match end {
        End::Start => first.at(0, 0, 0, 0),
        End::Finish => last.at(23, 59, 59, 999_999_999),
    };
    instant.to_zoned(jiff::tz::TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
}

/// The first and the last day of a date that is written as `2026-01-31`, `2026-01` or `2026`.
fn days_of(text: &str) -> Option<(Date, Date)> {
    let digits =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<i16>().ok()).flatten();
    match text.len() {
        4 => {
            let first = Date::new(digits(text)?, 1, 1).ok()?;
            Some((first, first.last_of_year()))
        }
        7 => {
            let (year, month) = text.split_once('-').filter(|(year, _)| year.len() == 4)?;
            let first = Date::new(digits(year)?, i8::try_from(digits(month)?).ok()?, 1).ok()?;
            Some((first, first.last_of_month()))
        }
        10 => text.parse::<Date>().ok().map(|day| (day, day)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_and_repeated_parameters_are_all_named() {
        let problem = Params::read(Some("limit=1&lmit=2&x=3&limit=4"), &["limit"]).unwrap_err();
        let fields: Vec<_> = problem.errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields, ["lmit", "x", "limit"]);
    }

    #[test]
    fn what_is_gathered_is_told_with_the_rest() {
        let mut params = Params::gather(Some("limit=0&x=3"), &["limit"]);
        params.number("limit", 1..=100, 50);
        let problem = params.finish().unwrap_err();
        let fields: Vec<_> = problem.errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields, ["x", "limit"]);
    }

    #[test]
    fn what_is_no_text_is_refused() {
        for (query, fields) in
            [("a=%ff", &["a"][..]), ("a=x&b=%C3%A4", &[]), ("a=%C3&b=%A4", &["a", "b"]), ("a=%", &[])]
        {
            let problem = Params::read(Some(query), &["a", "b"]);
            let named: Vec<_> = problem.err().into_iter().flat_map(|problem| problem.errors).collect();
            let named: Vec<_> = named.iter().map(|error| error.field.as_str()).collect();
            assert_eq!(named, fields, "{query}");
        }
    }

    // SX-10: validated, never clamped.
    #[test]
    fn numbers_are_checked_at_their_limits() {
        for (text, good) in [
            ("1", true),
            ("100", true),
            ("0", false),
            ("101", false),
            ("-1", false),
            ("abc", false),
            ("", false),
            ("1.5", false),
        ] {
            let mut params = Params::read(Some(&format!("limit={text}")), &["limit"]).unwrap();
            params.number("limit", 1..=100, 50);
            assert_eq!(params.finish().is_ok(), good, "{text:?}");
        }
    }

    #[test]
    fn a_date_is_a_whole_day() {
        let mut params = Params::read(Some("from=2026-01-31&to=2026-01-31"), &["from", "to"]).unwrap();
        assert_eq!(params.time("from", End::Start).unwrap().to_string(), "2026-01-31T00:00:00Z");
        assert_eq!(params.time("to", End::Finish).unwrap().to_string(), "2026-01-31T23:59:59.999999999Z");
        let mut params = Params::read(Some("from=2026-02-31"), &["from"]).unwrap();
        params.time("from", End::Start);
        assert!(params.finish().is_err());
    }

    // S002-20: a prefix of the date is a whole month or year.
    #[test]
    fn a_month_or_a_year_is_all_of_it() {
        let ends = |text: &str| [End::Start, End::Finish].map(|end| read_time(text, end).map(|at| at.to_string()));
        let all = |from: &str, to: &str| [Some(from.to_owned()), Some(to.to_owned())];
        assert_eq!(ends("2025"), all("2025-01-01T00:00:00Z", "2025-12-31T23:59:59.999999999Z"));
        assert_eq!(ends("2024-02"), all("2024-02-01T00:00:00Z", "2024-02-29T23:59:59.999999999Z"));
        for nonsense in ["25", "20250", "2025-1", "2025-13", "2025-00", "-025", "+025", "2025-", "202503", "２０２５"]
        {
            assert_eq!(ends(nonsense), [None, None], "{nonsense}");
        }
    }
}
