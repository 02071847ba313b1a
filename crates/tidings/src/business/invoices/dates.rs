//! Dates as invoices write them.

use std::sync::LazyLock;

use jiff::civil::Date;
use regex::Regex;

const MONTHS: [(&str, i8); 32] = [
    ("jan", 1),
    ("feb", 2),
    ("mar", 3),
    ("m\u{e4}r", 3),
    ("mrz", 3),
    ("apr", 4),
    ("may", 5),
    ("mai", 5),
    ("jun", 6),
    ("jul", 7),
    ("aug", 8),
    ("sep", 9),
    ("oct", 10),
    ("okt", 10),
    ("nov", 11),
    ("dec", 12),
    ("dez", 12),
    ("ene", 1),
    ("abr", 4),
    ("ago", 8),
    ("dic", 12),
    ("f\u{e9}v", 2),
    ("avr", 4),
    ("juin", 6),
    ("juil", 7),
    ("ao\u{fb}", 8),
    ("d\u{e9}c", 12),
    ("set", 9),
    ("out", 10),
    ("dez", 12),
    ("fev", 2),
    ("mag", 5),
];

/// The first date in a text. Of two numbers that could both be the month, the second is; in American texts the first.
#[must_use]
pub fn find(text: &str, american: bool) -> Option<Date> {
    static FORMS: LazyLock<[Regex; 4]> = LazyLock::new(|| {
        [
            r"\b(\d{4})\s?[-/.]\s?(\d{1,2})\s?[-/.]\s?(\d{1,2})\b",
            r"\b(\d{1,2})\s?([-/.])\s?(\d{1,2})\s?[-/.]\s?(\d{4}|\d{2})\b",
            r"(?i)\b(\d{1,2})(?:st|nd|rd|th)?[.\s-]+(?:of\s+)?(\p{L}{3,10})\.?[,\s-]+(\d{4})\b",
            r"(?i)\b(\p{L}{3,10})\.?\s+(\d{1,2})(?:st|nd|rd|th)?\s*[.,]?\s+(\d{4})\b",
        ]
        .map(|form| Regex::new(form).expect("the patterns are constant"))
    });
    let [iso, numeric, day_first, month_first] = &*FORMS;
    let number = |text: &str| text.parse::<i16>().ok();
    let small = |text: &str| text.parse::<i8>().ok();
    let candidates = [
        iso.captures_iter(text)
            .find_map(|g| Some((g.get(0)?.start(), Date::new(number(&g[1])?, small(&g[2])?, small(&g[3])?).ok()?))),
        numeric.captures_iter(text).find_map(|g| {
            let (first, second, year) = (small(&g[1])?, small(&g[3])?, number(&g[4])?);
            let year = if year < 100 { 2000 + year } else { year };
            // Points are never American.
            let month_first = american && &g[2] == "/";
            let (day, month) = if month_first { (second, first) } else { (first, second) };
            let date = Date::new(year, month, day).or_else(|_| Date::new(year, day, month)).ok()?;
            Some((g.get(0)?.start(), date))
        }),
        day_first
            .captures_iter(text)
            .find_map(|g| Some((g.get(0)?.start(), Date::new(number(&g[3])?, month(&g[2])?, small(&g[1])?).ok()?))),
        month_first
            .captures_iter(text)
            .find_map(|g| Some((g.get(0)?.start(), Date::new(number(&g[3])?, month(&g[1])?, small(&g[2])?).ok()?))),
    ];
    let found = candidates.into_iter().flatten().filter(|(_, date)| (1970..=2100).contains(&date.year()));
    found.min_by_key(|(at, _)| *at).map(|(_, date)| date)
}

fn month(name: &str) -> Option<i8> {
    let name = name.to_lowercase();
    MONTHS.iter().find(|(start, _)| name.starts_with(start)).map(|(_, number)| *number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read_as_they_are_written() {
        for (text, date) in [
            ("2026-01-31", "2026-01-31"),
            ("2026/1/5", "2026-01-05"),
            ("31.01.2026", "2026-01-31"),
            ("5.1.26", "2026-01-05"),
            ("31/01/2026", "2026-01-31"),
            ("01/31/2026", "2026-01-31"),
            ("15 March 2026", "2026-03-15"),
            ("15. M\u{e4}rz 2026", "2026-03-15"),
            ("15-Mar-2026", "2026-03-15"),
            ("March 15, 2026", "2026-03-15"),
            ("Sept. 3rd, 2026", "2026-09-03"),
            ("on the 1st of December 2025.", "2025-12-01"),
            ("x 2026-01-02 y 2025-01-01", "2026-01-02"),
        ] {
            assert_eq!(find(text, false).map(|date| date.to_string()).as_deref(), Some(date), "{text}");
        }
        assert_eq!(find("03/04/2026", true).unwrap().to_string(), "2026-03-04");
        assert_eq!(find("03/04/2026", false).unwrap().to_string(), "2026-04-03");
        assert_eq!(find("03.04.2026", true).unwrap().to_string(), "2026-04-03");
        for none in ["", "32.13.2026", "12345", "2026", "1.234,56", "10 pieces 2026", "99/99/9999"] {
            assert_eq!(find(none, false), None, "{none}");
        }
    }
}
