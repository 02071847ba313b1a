//! Reads JSON text token by token, and past whole values where nobody looks.
//!
//! What is read is read strictly. What is skipped is only checked for closed strings, matching brackets and depth:
//! an event is checked in full when it is accepted, and not again for every look at it.

use super::EventError;
use super::limits::MAX_EVENT_DEPTH;
use crate::json::find_stop;

pub(super) struct Scanner<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    depth: usize,
}

/// The inside of a string in the text, without its quotes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) escaped: bool,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Scanner<'a> {
        Scanner { text, bytes: text.as_bytes(), at: 0, depth: 0 }
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn error(&self, reason: &'static str) -> EventError {
        EventError { at: self.at, reason }
    }

    #[inline]
    pub(super) fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// The next byte that is no white space, not yet taken.
    #[inline]
    pub(super) fn next_token(&mut self) -> Result<u8, EventError> {
        loop {
            match self.peek() {
                Some(b' ' | b'\n' | b'\t' | b'\r') => self.at += 1,
                Some(byte) => return Ok(byte),
                None => return Err(self.error("the text ends too soon")),
            }
        }
    }

    #[inline]
    pub(super) fn take(&mut self) {
        self.at += 1;
    }

    #[inline]
    pub(super) fn expect(&mut self, byte: u8, reason: &'static str) -> Result<(), EventError> {
        if self.next_token()? != byte {
            return Err(self.error(reason));
        }
        self.at += 1;
        Ok(())
    }

    /// Takes the bracket that opens an object or array.
    pub(super) fn enter(&mut self) -> Result<(), EventError> {
        self.at += 1;
        self.depth += 1;
        if self.depth > MAX_EVENT_DEPTH {
            return Err(self.error("nested too deeply"));
        }
        Ok(())
    }

    /// Takes the bracket that closes it.
    pub(super) fn leave(&mut self) {
        self.at += 1;
        self.depth -= 1;
    }

    pub(super) fn end(&mut self) -> Result<(), EventError> {
        match self.next_token() {
            Ok(_) => Err(self.error("text after the event")),
            Err(_) => Ok(()),
        }
    }

    pub(super) fn slice(&self, start: usize, end: usize) -> Result<&'a str, EventError> {
        self.text.get(start..end).ok_or_else(|| self.error("broken text"))
    }

    /// Takes a string, standing at its opening quote.
    #[inline]
    pub(super) fn string(&mut self) -> Result<Span, EventError> {
        let start = self.at + 1;
        let mut from = start;
        let mut escaped = false;
        loop {
            let stop = find_stop(self.bytes, from);
            match self.bytes.get(stop) {
                Some(b'"') => {
                    self.at = stop + 1;
                    return Ok(Span { start, end: stop, escaped });
                }
                Some(b'\\') => {
                    escaped = true;
                    from = stop + 2;
                }
                Some(_) => {
                    self.at = stop;
                    return Err(self.error("a control character in a string"));
                }
                None => {
                    self.at = self.bytes.len();
                    return Err(self.error("a string without an end"));
                }
            }
        }
    }

    /// What a string with escapes says.
    pub(super) fn unescape(&self, span: Span) -> Result<String, EventError> {
        // The strict reader decides what an escape means, so that text and tree agree on broken ones too.
        serde_json::from_str(self.slice(span.start - 1, span.end + 1)?).map_err(|_| self.error("a broken escape"))
    }

    /// Takes a number; its value is left to the caller.
    #[inline]
    pub(super) fn number(&mut self) -> Result<&'a str, EventError> {
        let start = self.at;
        while let Some(b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E') = self.peek() {
            self.at += 1;
        }
        self.slice(start, self.at)
    }

    pub(super) fn word(&mut self, word: &'static str) -> Result<(), EventError> {
        let end = self.at + word.len();
        if self.bytes.get(self.at..end) != Some(word.as_bytes()) {
            return Err(self.error("expected a value"));
        }
        self.at = end;
        Ok(())
    }

    /// Takes a whole value without looking into it.
    #[inline]
    pub(super) fn skip(&mut self) -> Result<(), EventError> {
        match self.next_token()? {
            b'"' => self.string().map(drop),
            b'{' | b'[' => self.skip_brackets(),
            b't' => self.word("true"),
            b'f' => self.word("false"),
            b'n' => self.word("null"),
            b'-' | b'0'..=b'9' => self.number().map(drop),
            _ => Err(self.error("expected a value")),
        }
    }

    fn skip_brackets(&mut self) -> Result<(), EventError> {
        // One bit for each open bracket, lowest the innermost: 1 for an object. Depth is at most 127, so 128 bits do.
        let mut kinds = 0u128;
        let outer = self.depth;
        loop {
            match self.peek() {
                Some(b'"') => drop(self.string()?),
                Some(open @ (b'{' | b'[')) => {
                    self.enter()?;
                    kinds = (kinds << 1) | u128::from(open == b'{');
                }
                Some(close @ (b'}' | b']')) => {
                    if (kinds & 1 == 1) != (close == b'}') {
                        return Err(self.error("brackets that do not match"));
                    }
                    kinds >>= 1;
                    self.leave();
                    if self.depth == outer {
                        return Ok(());
                    }
                }
                Some(_) => self.at += 1,
                None => return Err(self.error("the text ends too soon")),
            }
        }
    }
}
