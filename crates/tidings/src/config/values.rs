//! Judging single values, for the configuration and for what comes through the API alike.

use http::Uri;
use jiff::fmt::temporal::Pieces;
use tidings_core::time::{self, Timestamp};

use super::problem::quote;
use crate::channel::ntfy;
use crate::mask;
use crate::outbound::MAX_URL_BYTES;

/// A full URL with a host; what is wrong never shows the URL, which may hold a password.
pub fn url(url: &str, schemes: &[&str]) -> Result<(), String> {
    let expected = || schemes.iter().map(|scheme| format!("{scheme}://")).collect::<Vec<_>>().join(" or ");
    if url.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err("must have no blanks or control characters; in a path a blank is written %20".to_owned());
    }
    if !url.is_ascii() {
        let how = "in a host name as xn--…, elsewhere as %C3%A4 for ä";
        return Err(format!("must have ASCII characters only; others are written {how}"));
    }
    let uri: Uri = url.parse().map_err(|_| format!("must be a URL that begins with {}", expected()))?;
    let scheme = uri.scheme_str().unwrap_or_default();
    if !schemes.contains(&scheme) {
        return Err(format!("must be a URL that begins with {}", expected()));
    }
    match uri.authority() {
        Some(authority) if !authority.host().is_empty() => {
            // `Uri` accepts any digits as a port.
            let after_host = authority.as_str().rsplit('@').next().unwrap_or_default();
            let port = after_host.strip_prefix(authority.host()).unwrap_or_default();
            match port.strip_prefix(':').map(str::parse::<u16>) {
                Some(Err(_) | Ok(0)) => Err("must have a port from 1 to 65535".to_owned()),
                _ => Ok(()),
            }
        }
        _ => Err("must name a host".to_owned()),
    }
}

/// A URL that is called, with everything that can be judged without looking its name up.
pub fn callable(text: &str) -> Result<(), String> {
    // As the client measures it.
    if text.len() > MAX_URL_BYTES {
        return Err(format!("must have at most {MAX_URL_BYTES} bytes"));
    }
    url(text, &["http", "https"])?;
    if mask::is_url(text) {
        return Err("is hidden; write the whole URL".to_owned());
    }
    let parsed = reqwest::Url::parse(text).map_err(|_| "must be a URL that can be called".to_owned())?;
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err("must not hold a user or password".to_owned());
    }
    Ok(())
}

/// `ops@example.com` or `Operations <ops@example.com>`. The shape only: the mail server has the last word.
#[must_use]
pub fn is_mailbox(text: &str) -> bool {
    let address = match text.split_once('<') {
        Some((_, rest)) => match rest.strip_suffix('>') {
            Some(address) => address,
            None => return false,
        },
        None => text,
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '<' | '>' | ',' | ';' | '@' | '"');
    !local.is_empty()
        && local.len() <= 64
        && !local.contains(odd)
        && !domain.is_empty()
        && domain.len() <= 255
        && !domain.contains(odd)
        && domain.split('.').all(|label| !label.is_empty())
        // What the channel itself would not send to.
        && crate::channel::email::mailbox(text).is_some()
}

/// An instant: `2027-01-01T08:00:00Z`.
pub fn instant(text: &str) -> Result<Timestamp, String> {
    match time::read(text) {
        Some(at) => Ok(at),
        // It is written as an instant is, and there is none so far off.
        None if text.parse::<Timestamp>().is_ok() => {
            Err(format!("must have an offset from UTC of less than a day, not {text:?}"))
        }
        None if Pieces::parse(text).is_ok_and(|pieces| pieces.offset().is_some()) => {
            Err(format!("must not be after 9999-12-30T22:00:00Z, as {text} is"))
        }
        None => Err(format!("must be an instant like \"2027-01-01T08:00:00Z\", not {}", quote(text))),
    }
}

/// ntfy's own rule for topics.
pub fn topic(topic: &str) -> Result<(), String> {
    if ntfy::RESERVED.contains(&topic) { Err(ntfy::KEPT.to_owned()) } else { topic_start(topic) }
}

/// The beginning of topics, which may be a name that none may have.
pub fn topic_start(topic: &str) -> Result<(), String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if topic.is_empty() || topic.len() > 64 || !topic.chars().all(allowed) {
        return Err(format!("must be 1 to 64 letters, digits, `_` or `-`, not {}", quote(topic)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mailboxes_are_recognised_by_their_shape() {
        for good in ["tidings@localhost", "a@b.c", "Ops Team <ops@example.com>", "a+b@xn--bcher-kva.example"] {
            assert!(is_mailbox(good), "{good}");
        }
        let long = format!("{}@b.c", "a".repeat(65));
        for bad in
            ["", "a", "@b.c", "a@", "a@b..c", "a b@c.d", "x <a@b.c", "a@b.c\r\nBcc: d@e.f", "a@b@c", "a..b@c.d", &long]
        {
            assert!(!is_mailbox(bad), "{bad}");
        }
        assert!(is_mailbox(&format!("{}@b.c", "a".repeat(64))));
    }

    #[test]
    fn what_is_called_holds_no_user_and_can_be_read() {
        for good in ["http://a", "https://a.b:443/x?y=z", "http://[::1]:80/", "https://h.example/x/"] {
            assert_eq!(callable(good), Ok(()), "{good}");
        }
        let path = |bytes: usize| format!("http://a/{}", "x".repeat(bytes - 9));
        assert_eq!((callable(&path(2047)), callable(&path(2048))), (Ok(()), Ok(())));
        assert_eq!(callable(&path(2049)).unwrap_err(), "must have at most 2048 bytes");
        for bad in ["http://u:p@host:1/", "http://u@host/", "http://[::1%25lo]/", "http://a/***", "ftp://a", "a"] {
            assert!(callable(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn urls_need_scheme_host_and_a_real_port() {
        let web = ["http", "https"];
        for good in ["http://a", "https://a.b:443/x?y=z", "http://[::1]:80/", "http://u:p@host:1/", "http://h:65535"] {
            assert_eq!(url(good, &web), Ok(()), "{good}");
        }
        for bad in ["", "a", "/x", "ftp://a", "http://", "http://a:0", "http://a:65536", "http://a b", "http:a"] {
            assert!(url(bad, &web).is_err(), "{bad}");
        }
        for (bad, why) in [
            (" http://a/", "must have no blanks"),
            ("http://a/b c", "must have no blanks"),
            ("http://a/\n", "must have no blanks"),
            ("http://exämple.com/", "must have ASCII characters only"),
            ("http://a/ä", "must have ASCII characters only"),
            ("ftp://a", "must be a URL that begins with http:// or https://"),
        ] {
            assert!(url(bad, &web).unwrap_err().starts_with(why), "{bad}");
        }
    }
}
