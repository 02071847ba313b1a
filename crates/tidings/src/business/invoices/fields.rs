//! What an invoice's text says: its number, date, total, currency and vendor. Pure, over lines as Tesseract reads them;
//! what is not found is left out, and nothing is guessed that is not there.

use std::sync::LazyLock;

use jiff::civil::Date;
use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{amounts, dates};

/// What was recognised.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fields {
    #[serde(default)]
    pub number: Option<String>,
    /// As in 2026-01-31.
    #[serde(default)]
    pub date: Option<String>,
    /// With a point before the cents, as in 1234.50; of a credit note -1234.50.
    #[serde(default)]
    pub total: Option<String>,
    /// Three letters, as in EUR.
    #[serde(default)]
    pub currency: Option<String>,
    #[serde(default)]
    pub vendor: Option<String>,
}

/// Characters of a vendor's name that are kept.
const VENDOR_CHARS: usize = 120;

#[must_use]
pub fn recognise(text: &str) -> Fields {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let (total, currency) = amounts::total(&lines);
    let american = currency.as_deref() == Some("USD");
    Fields {
        number: number(&lines),
        date: date(&lines, american).map(|date| date.to_string()),
        total,
        currency,
        vendor: vendor(&lines),
    }
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the patterns are constant")
}

/// `Invoice No.`, `Invoice #`, `Rechnungsnummer` and the like, and the number if it follows.
static NUMBER: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"(?i)\b(?:tax\s+)?(?:invoice|inv\.?|bill|rechnungs?|facture|factura|fattura|document)[\s-]*",
        r"(?:(?:no|nr|num|number|nummer|id|ref(?:erence)?)\b\.?|#|n[\x{b0}\x{ba}o]\.?)[\s:.#]*",
        r"([A-Z0-9][A-Z0-9/_.-]*)?"
    ))
});
/// `Invoice INV-7` and `INVOICE: 2026-117`, where nothing says "number".
static BARE_NUMBER: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)\b(?:invoice|rechnung|facture|factura|fattura)\b[\s:#]*([A-Z]{0,6}[-/_]?\d[A-Z0-9/_-]*)")
});
static TOKEN: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)[A-Z0-9][A-Z0-9/_.-]*"));

fn number(lines: &[&str]) -> Option<String> {
    for (place, line) in lines.iter().enumerate() {
        let Some(found) = NUMBER.captures(line) else { continue };
        if let Some(number) = found.get(1).and_then(|number| as_number(number.as_str())) {
            return Some(number);
        }
        // A table: the headings in one line, what they stand for below.
        let below = lines.get(place + 1).copied().unwrap_or_default();
        let before = found.get(0).map_or("", |label| line.get(..label.start()).unwrap_or_default());
        let column = if before.trim().is_empty() { 0 } else { columns(before).len() };
        let cells = columns(below);
        let candidates = cells.get(column).into_iter().chain(&cells);
        let mut tokens = candidates.flat_map(|cell| TOKEN.find_iter(cell)).map(|token| token.as_str());
        if let Some(number) = tokens.find_map(|token| as_number(token).filter(|_| dates::find(token, false).is_none()))
        {
            return Some(number);
        }
    }
    let mut bare = lines.iter().filter_map(|line| BARE_NUMBER.captures(line)?.get(1));
    bare.find_map(|number| as_number(number.as_str()).filter(|_| dates::find(number.as_str(), false).is_none()))
}

/// Cells that more than one blank keeps apart.
fn columns(line: &str) -> Vec<&str> {
    static GAP: LazyLock<Regex> = LazyLock::new(|| pattern(r"\s{2,}|\t|\s*\|\s*"));
    GAP.split(line.trim()).filter(|cell| !cell.is_empty()).collect()
}

/// A number has a digit, and no mark at its end.
fn as_number(text: &str) -> Option<String> {
    let text = text.trim_end_matches(['.', '-', '/', '_', ',']);
    let fits = text.bytes().any(|byte| byte.is_ascii_digit()) && text.len() <= 40;
    fits.then(|| text.to_owned())
}

/// The date that says it is the invoice's, else the first that does not say it is another.
fn date(lines: &[&str], american: bool) -> Option<Date> {
    static OWN: LazyLock<Regex> = LazyLock::new(|| {
        pattern(
            r"(?i)\b(?:(?:invoice|bill|tax)\s*date|date\s+of\s+(?:issue|invoice)|issue\s*date|date\s+issued|issued(?:\s+on)?|dated|rechnungsdatum|ausstellungsdatum|date\s+de\s+facture|fecha\s+de\s+factura)\b",
        )
    });
    static ANY: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)\b(?:date|datum|fecha|data)\b"));
    static OTHER: LazyLock<Regex> = LazyLock::new(|| {
        pattern(
            r"(?i)\b(?:due|delivery|order|ship\w*|service|payable|f\x{e4}llig\w*|liefer\w*|bestell\w*|period|until|paid)\b",
        )
    });
    let labelled = |label: &Regex, skip_others: bool| {
        lines.iter().enumerate().find_map(|(place, line)| {
            let found = label.find(line)?;
            let before = line.get(..found.start()).unwrap_or_default();
            if skip_others && OTHER.is_match(before.rsplit("  ").next().unwrap_or_default()) {
                return None;
            }
            let after = line.get(found.end()..).unwrap_or_default();
            dates::find(after, american).or_else(|| {
                // Below its heading, unless this line has dates of its own.
                let below = lines.get(place + 1).filter(|_| dates::find(line, american).is_none())?;
                dates::find(below, american)
            })
        })
    };
    labelled(&OWN, false).or_else(|| labelled(&ANY, true)).or_else(|| {
        let mut others = lines.iter().filter(|line| !OTHER.is_match(line));
        others.find_map(|line| dates::find(line, american))
    })
}

/// Who says so, else who stands at the top.
fn vendor(lines: &[&str]) -> Option<String> {
    static LABEL: LazyLock<Regex> = LazyLock::new(|| {
        pattern(
            r"(?i)^(?:vendor|seller|supplier|sold\s+by|billed?\s+from|from|company|firma|anbieter|fournisseur|proveedor|issued\s+by|verk\x{e4}ufer|lieferant|rechnungssteller|absender)\b\s*[:.]?\s*(.*)$",
        )
    });
    for (place, line) in lines.iter().enumerate() {
        // What stands in the next column has a label of its own.
        let label = columns(line).first().copied().unwrap_or_default();
        if let Some(said) = LABEL.captures(label).and_then(|found| found.get(1)) {
            let below = lines.get(place + 1).copied().unwrap_or_default();
            let name = if said.as_str().is_empty() { below } else { said.as_str() };
            let name = columns(name).first().copied().unwrap_or_default();
            if let Some(name) = as_vendor(name) {
                return Some(name);
            }
        }
    }
    let names = |line: &&str| columns(line).into_iter().filter(|cell| !says_else(cell)).find_map(as_vendor);
    lines.iter().take(8).find_map(names)
}

/// Whether it is a sum, a date, a number or anything else with a label of its own, and not a name.
fn says_else(text: &str) -> bool {
    static LABELLED: LazyLock<Regex> = LazyLock::new(|| pattern(r"^[^:]{1,40}:(?:\s|$)"));
    amounts::is_sum(text) || dates::find(text, false).is_some() || NUMBER.is_match(text) || LABELLED.is_match(text)
}

/// A name: letters, and none of the words that stand on every invoice.
fn as_vendor(text: &str) -> Option<String> {
    static TITLE: LazyLock<Regex> = LazyLock::new(|| {
        pattern(
            r"(?i)\b(?:tax\s+invoice|invoice|rechnung|facture|factura|fattura|receipt|original|copy|page\s+\d+.*)\b",
        )
    });
    static LABELS: LazyLock<Regex> = LazyLock::new(|| {
        pattern(
            r"(?i)^(?:date|datum|number|nr|no|from|vendor|seller|supplier|bill(?:ed)?\s+to|ship\s+to|to|an|due|total|amount|tel|phone|fax|e-?mail|www\.|http|vat|ust|tax|iban|page|customer|kunde)\b",
        )
    });
    let name = TITLE.replace_all(text, " ");
    let name = name.trim().trim_matches(|c: char| !c.is_alphanumeric() && !matches!(c, '.' | ')' | '"')).trim();
    let letters = name.chars().filter(|c| c.is_alphabetic()).count();
    let digits = name.chars().filter(char::is_ascii_digit).count();
    let fits = letters >= 3 && digits <= letters && !LABELS.is_match(name);
    fits.then(|| name.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(VENDOR_CHARS).collect())
}

#[cfg(test)]
#[path = "fields_tests.rs"]
mod tests;
