//! Who may publish to a topic, and who may listen to it. Pure.

use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::prelude::{BASE64_STANDARD, Engine};

use crate::config::push::{Grant, Right};
use crate::tokens::{Scope, Token};

/// A token may publish with one of these scopes …
const MAY_PUBLISH: [Scope; 2] = [Scope::Ingest, Scope::Operate];
/// … and listen with one of these.
const MAY_SUBSCRIBE: [Scope; 2] = [Scope::Read, Scope::Consume];
/// A user's own topic begins so and ends with the user's id.
const USER_TOPIC: &str = "user-";

/// What somebody wants of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    Publish,
    Subscribe,
}

/// Whether `token` (or somebody without one) may have that wish fulfilled.
#[must_use]
pub fn may(wish: Wish, topic: &str, token: Option<&Token>, open_topics: &[String], grants: &[Grant]) -> bool {
    if open_topics.iter().any(|pattern| fits(pattern, topic)) {
        return true;
    }
    let Some(token) = token else { return false };
    if token.scopes.contains(&Scope::Admin) {
        return true;
    }
    let mut own = grants.iter().filter(|grant| grant.token == token.id || grant.token == token.name).peekable();
    if own.peek().is_some() {
        // Grants replace what the scopes would allow: a token can be made for one topic.
        return own.any(|grant| allows(grant.allow, wish) && grant.topics.iter().any(|pattern| fits(pattern, topic)));
    }
    token.scopes.iter().any(|scope| match wish {
        Wish::Publish => MAY_PUBLISH.contains(scope),
        Wish::Subscribe => MAY_SUBSCRIBE.contains(scope) || is_own_topic(scope, topic),
    })
}

fn allows(right: Right, wish: Wish) -> bool {
    match right {
        Right::Both => true,
        Right::Read => wish == Wish::Subscribe,
        Right::Write => wish == Wish::Publish,
    }
}

fn is_own_topic(scope: &Scope, topic: &str) -> bool {
    matches!(scope, Scope::User(user) if topic.strip_prefix(USER_TOPIC) == Some(user))
}

/// A name, or the start of one followed by `*`.
fn fits(pattern: &str, topic: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => topic.starts_with(start),
        None => pattern == topic,
    }
}

/// The token in `Authorization`, or in `?auth=`, which is the same value in base64. `None`: nobody says who they are;
/// `Some(None)`: somebody tries, in a way nobody understands.
#[must_use]
pub fn token_of(header: Option<&[u8]>, auth: Option<&str>) -> Option<Option<String>> {
    // ntfy's clients leave the padding out; others may not.
    let lenient = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let url_safe = GeneralPurpose::new(&base64::alphabet::URL_SAFE, lenient);
    let value = match (header, auth) {
        (Some(header), _) => String::from_utf8(header.to_vec()).ok(),
        (None, Some(auth)) => url_safe.decode(auth).ok().and_then(|bytes| String::from_utf8(bytes).ok()),
        (None, None) => return None,
    };
    Some(value.as_deref().and_then(token_in))
}

/// `Bearer TOKEN`, or `Basic` with the token as the password (or alone, as the name).
fn token_in(value: &str) -> Option<String> {
    let (scheme, rest) = value.trim().split_once(' ')?;
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(rest.to_owned());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let pair = String::from_utf8(BASE64_STANDARD.decode(rest).ok()?).ok()?;
    let (name, password) = pair.split_once(':')?;
    Some(if password.is_empty() { name } else { password }.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(name: &str, scopes: &[&str]) -> Token {
        Token {
            id: format!("id-of-{name}"),
            name: name.to_owned(),
            scopes: scopes.iter().map(|scope| scope.parse().unwrap()).collect(),
            hash: Vec::new(),
            created_at: tidings_core::time::Timestamp::UNIX_EPOCH,
            created_by: String::new(),
            expires_at: None,
        }
    }

    #[test]
    fn scopes_decide_unless_there_are_grants() {
        let grants = [
            Grant { token: "phone".to_owned(), topics: vec!["ops".to_owned(), "a-*".to_owned()], allow: Right::Read },
            Grant { token: "id-of-job".to_owned(), topics: vec!["jobs".to_owned()], allow: Right::Both },
        ];
        let open = ["lobby".to_owned(), "pub-*".to_owned()];
        let both = |topic: &str, token: Option<&Token>| {
            [Wish::Subscribe, Wish::Publish].map(|wish| may(wish, topic, token, &open, &grants))
        };
        assert_eq!([both("lobby", None), both("pub-1", None)], [[true; 2]; 2]);
        assert_eq!([both("lobby2", None), both("ops", None)], [[false; 2]; 2]);
        for (scope, rights) in [
            ("admin", [true, true]),
            ("read", [true, false]),
            ("consume", [true, false]),
            ("ingest", [false, true]),
            ("operate", [false, true]),
            ("tickets", [false, false]),
            ("user:u1", [false, false]),
        ] {
            assert_eq!(both("ops", Some(&token("t", &[scope]))), rights, "{scope}");
        }
        let user = token("t", &["user:u1"]);
        assert_eq!([both("user-u1", Some(&user)), both("user-u2", Some(&user))], [[true, false], [false, false]]);

        let phone = token("phone", &["ingest", "read"]);
        assert_eq!([both("ops", Some(&phone)), both("a-1", Some(&phone))], [[true, false]; 2]);
        assert_eq!(both("jobs", Some(&phone)), [false; 2]);
        assert_eq!(both("jobs", Some(&token("job", &["tickets"]))), [true; 2]);
        assert_eq!(both("jobs", Some(&token("phone", &["admin"]))), [true; 2]);
    }

    #[test]
    fn a_token_comes_in_ntfys_ways() {
        let header = |text: &str| token_of(Some(text.as_bytes()), None);
        let found = || Some(Some("tdg_1".to_owned()));
        assert_eq!(token_of(None, None), None);
        assert_eq!(header("Bearer tdg_1"), found());
        assert_eq!(header(&format!("Basic {}", BASE64_STANDARD.encode("u:tdg_1"))), found());
        assert_eq!(header(&format!("basic {}", BASE64_STANDARD.encode("tdg_1:"))), found());
        assert_eq!(token_of(None, Some("QmVhcmVyIHRkZ18x")), found());
        let basic = base64::prelude::BASE64_URL_SAFE.encode(format!("Basic {}", BASE64_STANDARD.encode(":tdg_1")));
        assert_eq!(token_of(None, Some(&basic)), found());
        assert_eq!(token_of(None, Some(basic.trim_end_matches('='))), found());
        for bad in ["", "Digest x", "Basic !!", "tdg_1"] {
            assert_eq!(header(bad), Some(None), "{bad}");
        }
    }
}
