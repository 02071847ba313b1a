//! What stands for a value that not everybody may see.

use reqwest::Url;

use crate::outbound::origin;

/// Stands for a secret wherever one is shown; in what is written, it keeps the secret that is there.
pub const HIDDEN: &str = "***";

/// A URL without what may be a token in it: scheme, host and port, and `/***` for the rest, if there is any.
#[must_use]
pub fn url(text: &str) -> String {
    // A template begins after the host at the earliest, and is no part of a URL.
    let fixed = text.split("{{").next().unwrap_or_default();
    let Ok(url) = Url::parse(fixed) else { return HIDDEN.to_owned() };
    if !url.has_host() {
        return HIDDEN.to_owned();
    }
    let origin = origin(&url);
    let more = fixed.len() < text.len() || url.path() != "/" || url.query().is_some() || url.fragment().is_some();
    if more { format!("{origin}/{HIDDEN}") } else { origin + "/" }
}

/// Whether a URL is one that [`url`] gave: it leads nowhere.
#[must_use]
pub fn is_url(text: &str) -> bool {
    text.ends_with("/***")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_url_only_scheme_host_and_port_are_seen() {
        for (whole, shown) in [
            ("https://h.example/services/T0/B1/token", "https://h.example/***"),
            ("https://h.example:8443?key=token", "https://h.example:8443/***"),
            ("https://h.example/#token", "https://h.example/***"),
            ("https://h.example/{{ data.token }}", "https://h.example/***"),
            ("http://[::1]:80/x", "http://[::1]/***"),
            ("https://H.example", "https://h.example/"),
            ("https://user:token@h.example/", "https://h.example/"),
            ("no url with a token", "***"),
        ] {
            assert_eq!(url(whole), shown);
            assert_eq!(url(&url(whole)), shown, "what is masked stays as it is");
            assert_eq!(is_url(&url(whole)), shown.ends_with("/***"));
        }
    }
}
