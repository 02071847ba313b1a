//! Dotted keys with wildcards: one pattern. Many together are in `key_index`.

use super::limits::MAX_KEY_BYTES;

/// A checked key pattern, such as `servicerequest.*.#`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyPattern {
    words: Box<[Word]>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Word {
    Exact(Box<str>),
    /// `*`: exactly one word.
    One,
    /// `#`: any number of words.
    Any,
}

/// Why a text is no key pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("the key pattern is longer than {MAX_KEY_BYTES} bytes")]
    TooLong,
    #[error(
        "word {at} of the key pattern, `{word}`: `*` and `#` stand for whole words and must stand alone between dots"
    )]
    PartOfWord { at: usize, word: String },
}

impl KeyPattern {
    pub fn parse(text: &str) -> Result<KeyPattern, KeyError> {
        if text.len() > MAX_KEY_BYTES {
            return Err(KeyError::TooLong);
        }
        let mut words: Vec<Word> = Vec::new();
        for (i, word) in words_of(text).enumerate() {
            match word {
                "*" => words.push(Word::One),
                // Two in a row stand for no more than one.
                "#" if words.last() == Some(&Word::Any) => {}
                "#" => words.push(Word::Any),
                _ if word.contains(['*', '#']) => {
                    return Err(KeyError::PartOfWord { at: i + 1, word: word.to_owned() });
                }
                _ => words.push(Word::Exact(word.into())),
            }
        }
        Ok(KeyPattern { words: words.into_boxed_slice() })
    }

    pub(super) fn words(&self) -> &[Word] {
        &self.words
    }

    /// Whether a key is one of those meant. After a `#`, the words behind it are tried further and further right; an
    /// earlier `#` need never be tried again, so the cost is at most words times words.
    pub fn matches(&self, key: &str) -> bool {
        let words: Vec<&str> = words_of(key).collect();
        let (mut word, mut part) = (0, 0);
        let mut last_any: Option<(usize, usize)> = None;
        while let Some(text) = words.get(word) {
            match self.words.get(part) {
                Some(Word::Any) => {
                    last_any = Some((part, word));
                    part += 1;
                }
                Some(one) if one.is(text) => {
                    word += 1;
                    part += 1;
                }
                _ => {
                    let Some((any, taken)) = last_any else { return false };
                    last_any = Some((any, taken + 1));
                    (word, part) = (taken + 1, any + 1);
                }
            }
        }
        self.words.get(part..).is_some_and(|rest| rest.iter().all(|part| *part == Word::Any))
    }
}

impl Word {
    fn is(&self, word: &str) -> bool {
        match self {
            Word::Exact(text) => **text == *word,
            Word::One => true,
            Word::Any => false,
        }
    }
}

/// The words of a key: none in the empty one.
pub(super) fn words_of(key: &str) -> impl Iterator<Item = &str> {
    key.split('.').filter(move |_| !key.is_empty())
}
