//! `[invoices]`: reading uploaded invoices.

use serde::{Deserialize, Serialize};

use super::check::Check;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Invoices {
    /// The program that reads pictures.
    pub tesseract: String,
    /// The program that makes pictures of a PDF's pages.
    pub pdftoppm: String,
    /// Tesseract's languages, joined by `+`.
    pub languages: String,
    /// Pages of a PDF at the most.
    pub max_pages: usize,
}

impl Default for Invoices {
    fn default() -> Self {
        Self {
            tesseract: "tesseract".to_owned(),
            pdftoppm: "pdftoppm".to_owned(),
            languages: "eng".to_owned(),
            max_pages: 50,
        }
    }
}

impl Invoices {
    pub(super) fn check(&self, check: &mut Check<'_>) {
        for (key, value) in [("tesseract", &self.tesseract), ("pdftoppm", &self.pdftoppm)] {
            if value.trim().is_empty() {
                check.key(key).problem("is empty; it names a program");
            }
        }
        let is_language = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !self.languages.split('+').all(is_language) {
            check.key("languages").problem("must be names of Tesseract's languages joined by +, as in \"eng+deu\"");
        }
        check.key("max_pages").range(self.max_pages as u64, 1..=1000);
    }
}
