//! Amounts of money as invoices write them, and which of them is the total.

use std::sync::LazyLock;

use regex::Regex;

/// Currencies by code and by sign.
const CODES: [&str; 24] = [
    "EUR", "USD", "GBP", "CHF", "JPY", "CNY", "INR", "BRL", "PLN", "SEK", "NOK", "DKK", "CZK", "HUF", "AUD", "CAD",
    "NZD", "SGD", "HKD", "ZAR", "MXN", "TRY", "AED", "KRW",
];
const SIGNS: [(&str, &str); 8] = [
    ("R$", "BRL"),
    ("\u{20ac}", "EUR"),
    ("\u{a3}", "GBP"),
    ("\u{a5}", "JPY"),
    ("\u{20b9}", "INR"),
    ("$", "USD"),
    ("Fr.", "CHF"),
    ("z\u{142}", "PLN"),
];

/// The labels of a total, the surest first.
static LABELS: LazyLock<[Regex; 3]> = LazyLock::new(|| {
    [
        r"(?i)\b(?:grand\s+total|total\s+(?:amount\s+)?due|amount\s+(?:due|payable)|balance\s+due|total\s+to\s+pay|invoice\s+total|total\s+payable|amount\s+to\s+pay|gesamtbetrag|rechnungsbetrag|gesamtsumme|endbetrag|zahlbetrag|zu\s+zahlen|total\s+ttc|total\s+a\s+pagar|net\s+[\xe0a]\s+payer)\b",
        r"(?i)\btotal\s+amount\b|\btotal\s*\((?:incl|gross|eur|usd|gbp|chf)[^)]*\)|\btotal\s+(?:incl|gross|brutto)\b|\bbrutto(?:betrag|summe)?\b",
        r"(?i)\b(?:total|summe|gesamt|totale|importe)\b",
    ]
    .map(|label| Regex::new(label).expect("the patterns are constant"))
});
static NOT_TOTAL: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)\bsub[\s-]?total|\bzwischensumme\b|\btotal\s+(?:net|netto|tax|vat|discount|excl|ht|items|hours|qty|quantity)\b|\bnetto|\bdiscount\b")
        .expect("the pattern is constant")
});
static AMOUNT: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\d{1,3}(?:[.,' \x{a0}\x{2019}]\d{3})+(?:[.,]\d{2})?\b|\d+[.,]\d{2}\b|\d+")
        .expect("the pattern is constant")
});

/// The total with a point before its cents, and its currency.
#[must_use]
pub fn total(lines: &[&str]) -> (Option<String>, Option<String>) {
    for label in &*LABELS {
        // The last that says so: what is carried over stands before what is to be paid.
        let found = lines.iter().enumerate().rev().find_map(|(place, line)| {
            if NOT_TOTAL.is_match(line) {
                return None;
            }
            let after = line.get(label.find_iter(line).last()?.end()..)?;
            let (amount, said) = match last_amount(after) {
                Some(amount) => (amount, *line),
                None => {
                    // The amount stands in the line below its label, if it has no label of its own.
                    let below = lines
                        .get(place + 1)
                        .filter(|below| !below.chars().any(|c| c.is_alphabetic() && !is_money(below)))?;
                    (last_amount(below)?, *below)
                }
            };
            Some((amount, currency(said).or_else(|| currency(line))))
        });
        if let Some((amount, said)) = found {
            return (Some(amount), said.or_else(|| common_currency(lines)));
        }
    }
    (None, common_currency(lines))
}

fn is_money(line: &str) -> bool {
    currency(line).is_some() && line.chars().filter(|c| c.is_alphabetic()).count() <= 4
}

/// The last amount of a line: those before it are tax rates and quantities.
fn last_amount(text: &str) -> Option<String> {
    let amounts: Vec<_> = AMOUNT.find_iter(text).collect();
    // With cents before without: "Total 2 items 30.00" and "Total EUR 1.234,50 (30 days)".
    let with_cents = amounts.iter().rev().find(|amount| has_cents(amount.as_str()));
    let followed_by_percent = |end: usize| text.get(end..).is_some_and(|rest| rest.trim_start().starts_with('%'));
    let amount = with_cents.or_else(|| amounts.iter().rev().find(|amount| !followed_by_percent(amount.end())))?;
    let plain = plain(amount.as_str())?;
    let before = text.get(..amount.start()).unwrap_or_default();
    let after = text.get(amount.end()..).unwrap_or_default();
    let is_nothing = plain.chars().all(|c| matches!(c, '0' | '.'));
    Some(if is_negative(before, after) && !is_nothing { format!("-{plain}") } else { plain })
}

/// Whether what stands around an amount takes it away: `-5.00`, `-$5.00`, `EUR -5.00`, `5.00-`, `(5.00)`. A dash with
/// blanks on both sides only keeps the label and the amount apart.
fn is_negative(before: &str, after: &str) -> bool {
    static AROUND: LazyLock<[Regex; 3]> = LazyLock::new(|| {
        [
            r"(?:^|[\s:=(]|\p{Sc}|[A-Z]{3})[-\x{2212}\x{2013}\x{2014}](?:(?:R?\p{Sc}|[A-Z]{3})\s?)?$",
            r"^[-\x{2212}\x{2013}](?:\s|\p{Sc}|$)",
            r"\((?:\s|R?\p{Sc}|[A-Z]{3})*$",
        ]
        .map(|form| Regex::new(form).expect("the patterns are constant"))
    });
    let [sign, behind, bracket] = &*AROUND;
    let is_closed = after.trim_start().starts_with(')');
    sign.is_match(before) || behind.is_match(after) || (bracket.is_match(before) && is_closed)
}

/// Whether a line is about money and not a name: it says that a sum follows, or has one.
#[must_use]
pub fn is_sum(line: &str) -> bool {
    let [surest, sure, _] = &*LABELS;
    let is_labelled = surest.is_match(line) || sure.is_match(line) || NOT_TOTAL.is_match(line);
    is_labelled || AMOUNT.find_iter(line).any(|amount| has_cents(amount.as_str()))
}

fn has_cents(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 4 && matches!(bytes.get(bytes.len() - 3), Some(b'.' | b','))
}

/// `1.234,50`, `1,234.50`, `1'234.50` and `1 234,50` are 1234.50.
#[must_use]
pub fn plain(text: &str) -> Option<String> {
    let (whole, cents) = if has_cents(text) { text.split_at_checked(text.len() - 3)? } else { (text, ".00") };
    let whole: String = whole.chars().filter(char::is_ascii_digit).collect();
    let cents: String = cents.chars().filter(char::is_ascii_digit).collect();
    let whole = whole.trim_start_matches('0');
    if whole.len() > 15 {
        return None;
    }
    Some(format!("{}.{cents}", if whole.is_empty() { "0" } else { whole }))
}

/// The currency a line names.
fn currency(line: &str) -> Option<String> {
    let upper = line.to_uppercase();
    let words = upper.split(|c: char| !c.is_alphabetic());
    let code = words.into_iter().find_map(|word| CODES.into_iter().find(|code| *code == word));
    let code = code.or_else(|| SIGNS.into_iter().find(|(sign, _)| line.contains(sign)).map(|(_, code)| code));
    code.map(ToOwned::to_owned)
}

/// The currency that most lines name.
fn common_currency(lines: &[&str]) -> Option<String> {
    let named: Vec<String> = lines.iter().filter_map(|line| currency(line)).collect();
    let count = |wanted: &String| named.iter().filter(|code| *code == wanted).count();
    // Of several that are named equally often, the first.
    named.iter().rev().max_by_key(|code| count(code)).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_as_they_are_written() {
        for (text, amount) in [
            ("1.234,50", "1234.50"),
            ("1,234.50", "1234.50"),
            ("1'234.50", "1234.50"),
            ("1 234,50", "1234.50"),
            ("1234.5", "12345.00"),
            ("0,99", "0.99"),
            ("1,234", "1234.00"),
            ("12", "12.00"),
            ("1.234.567,89", "1234567.89"),
        ] {
            assert_eq!(plain(text).as_deref(), Some(amount), "{text}");
        }
    }

    #[track_caller]
    fn check(lines: &[&str], amount: Option<&str>, currency: Option<&str>) {
        assert_eq!(total(lines), (amount.map(ToOwned::to_owned), currency.map(ToOwned::to_owned)), "{lines:?}");
    }

    #[test]
    fn the_total_is_what_is_to_be_paid() {
        check(&["Subtotal $100.00", "Tax 8% $8.00", "Total $108.00"], Some("108.00"), Some("USD"));
        check(&["Total 100.00 EUR", "Amount due: EUR 1.119,00"], Some("1119.00"), Some("EUR"));
        check(&["Zwischensumme 100,00 \u{20ac}", "Gesamtbetrag 119,00 \u{20ac}"], Some("119.00"), Some("EUR"));
        check(&["TOTAL DUE", "\u{a3}2,500.00"], Some("2500.00"), Some("GBP"));
        check(&["Total (USD) 1,234.56"], Some("1234.56"), Some("USD"));
        check(&["Grand Total CHF 1'080.50"], Some("1080.50"), Some("CHF"));
        check(&["Total net 100.00", "VAT 19% 19.00", "Total 119.00", "All prices in EUR"], Some("119.00"), Some("EUR"));
        check(&["Gesamtsumme 5"], Some("5.00"), None);
        check(&["no money here"], None, None);
        check(&["Total hours 12", "Total 30.00"], Some("30.00"), None);
    }

    // A credit note is no debit.
    #[test]
    fn what_is_taken_away_keeps_its_sign() {
        for line in [
            "Total: -5.00 EUR",
            "Total -5.00 EUR",
            "Total: \u{2212}5,00 EUR",
            "Total: EUR -5.00",
            "Total: -EUR 5.00",
            "Total -\u{20ac}5.00",
            "Total \u{20ac}-5.00",
            "Total \u{20ac} -5.00",
            "Total 5,00- EUR",
            "Total EUR (5.00)",
            "Total (EUR 5.00)",
        ] {
            check(&[line], Some("-5.00"), Some("EUR"));
        }
        check(&["Total: -1.234,50 EUR"], Some("-1234.50"), Some("EUR"));
        check(&["TOTAL DUE", "-$5.00"], Some("-5.00"), Some("USD"));
        for line in ["Total - 5.00 EUR", "Total - EUR 5.00", "Total (incl. VAT) 5.00 EUR", "Total \u{2014} 5.00 EUR"] {
            check(&[line], Some("5.00"), Some("EUR"));
        }
        check(&["Total: -0.00 EUR"], Some("0.00"), Some("EUR"));
    }
}
