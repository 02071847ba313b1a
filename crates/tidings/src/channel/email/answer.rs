//! What a mail server answers (RFC 5321, 4.2), read as it is meant: a code may stand alone, and a text be of any script.

/// One answer, its lines together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    pub code: u16,
    /// The text of each line.
    pub lines: Vec<String>,
}

/// A line that is no part of an answer, as far as it can be shown.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unreadable(pub String);

impl Answer {
    /// Takes the next line, without what ends it; tells whether it is the last one.
    pub(super) fn add(&mut self, line: &[u8]) -> Result<bool, Unreadable> {
        let shown = String::from_utf8_lossy(line);
        let Some((code, is_last, text)) = read(&shown).filter(|(code, ..)| self.lines.is_empty() || *code == self.code)
        else {
            return Err(Unreadable(shown.into_owned()));
        };
        self.code = code;
        self.lines.push(text.to_owned());
        Ok(is_last)
    }

    /// All of it on one line. Many servers repeat the enhanced code (RFC 2034) in each; once is enough.
    pub(super) fn text(&self) -> String {
        let mut lines = self.lines.iter().map(String::as_str);
        let mut text = lines.next().unwrap_or_default().to_owned();
        let enhanced = text.split(' ').next().filter(|word| is_enhanced(word)).map(|word| format!("{word} "));
        for line in lines {
            let line = enhanced.as_deref().and_then(|code| line.strip_prefix(code)).unwrap_or(line);
            text.push(' ');
            text.push_str(line);
        }
        text
    }
}

/// Code, whether it is the last line, and text.
fn read(line: &str) -> Option<(u16, bool, &str)> {
    let (code, rest) = line.split_at_checked(3)?;
    let code = code.bytes().all(|byte| byte.is_ascii_digit()).then(|| code.parse().ok())??;
    if !(200..600).contains(&code) {
        return None;
    }
    let mut rest = rest.chars();
    match rest.next() {
        None | Some(' ' | '\t') => Some((code, true, rest.as_str())),
        Some('-') => Some((code, false, rest.as_str())),
        Some(_) => None,
    }
}

fn is_enhanced(word: &str) -> bool {
    let parts = word.split('.').map(|part| (1..=3).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit()));
    word.starts_with(['2', '4', '5']) && parts.clone().count() == 3 && parts.into_iter().all(|is_right| is_right)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(lines: &[&[u8]]) -> Result<(u16, String), Unreadable> {
        let mut answer = Answer::default();
        for (index, line) in lines.iter().enumerate() {
            assert_eq!(answer.add(line)?, index + 1 == lines.len(), "{line:?}");
        }
        Ok((answer.code, answer.text()))
    }

    #[test]
    fn answers_are_read_as_they_are_meant() {
        for (lines, code, text) in [
            (&[&b"250"[..]][..], 250, ""),
            (&[b"250 "], 250, ""),
            (&[b"250\tok"], 250, "ok"),
            (&[b"550 5.1.1 no such user"], 550, "5.1.1 no such user"),
            (&[b"250-", b"250"], 250, " "),
            (&[b"250-one", b"250-two", b"250 three"], 250, "one two three"),
            (&[b"550-5.1.1 who", b"550 5.1.1 is that"], 550, "5.1.1 who is that"),
            (&[b"550-5.1.1. who", b"550 5.1.1. is"], 550, "5.1.1. who 5.1.1. is"),
            (&[b"250 Gr\xfc\xdfe"], 250, "Gr\u{fffd}\u{fffd}e"),
            (&["250 Grüße".as_bytes()], 250, "Grüße"),
        ] {
            assert_eq!(read_all(lines), Ok((code, text.to_owned())), "{lines:?}");
        }
    }

    #[test]
    fn what_is_no_answer_is_none() {
        for lines in [
            &[&b""[..]][..],
            &[b"25"],
            &[b"25\xfc ok"],
            &[b"199 more"],
            &[b"600 odd"],
            &[b"+25 ok"],
            &[b"2500"],
            &[b"250ok"],
            &[b"ok"],
            &[b"250-a", b"550 b"],
        ] {
            assert!(read_all(lines).is_err(), "{lines:?}");
        }
    }
}
