//! Cuts an SQL text into words, each with its place.

use std::iter::Peekable;
use std::vec::IntoIter;

use super::SqlError;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    /// A keyword, a function, a scope or a plain name.
    Word(String),
    /// A name between brackets or double quotes: never a keyword.
    Name(String),
    Text(String),
    /// Up to 2^63, which only a minus sign makes an integer of 64 bits.
    Integer(u64),
    Float(f64),
    Parameter(String),
    Symbol(&'static str),
    End,
}

/// A token and the character it starts at, counted from 1.
#[derive(Debug, Clone)]
pub(super) struct Placed {
    pub(super) token: Token,
    pub(super) at: usize,
}

/// Longer ones first.
const SYMBOLS: [&str; 17] = ["<>", "!=", "<=", ">=", "=", "<", ">", "+", "-", "*", "/", "%", "(", ")", ",", ".", ";"];

pub(super) fn tokens(text: &str) -> Result<Vec<Placed>, SqlError> {
    let chars: Vec<char> = text.chars().collect();
    let end = chars.len() + 1;
    let mut lexer = Lexer { chars: chars.into_iter().peekable(), at: 1 };
    let mut tokens = Vec::new();
    loop {
        while lexer.eat(char::is_whitespace).is_some() {}
        let at = lexer.at;
        let Some(first) = lexer.chars.peek().copied() else {
            tokens.push(Placed { token: Token::End, at: end });
            return Ok(tokens);
        };
        tokens.push(Placed { token: lexer.token(first)?, at });
    }
}

struct Lexer {
    chars: Peekable<IntoIter<char>>,
    at: usize,
}

impl Lexer {
    fn token(&mut self, first: char) -> Result<Token, SqlError> {
        let start = self.at;
        match first {
            '\'' => self.quoted('\'').map(Token::Text).ok_or_else(|| unclosed(start, "string", "'")),
            '"' => self.name('"', "\""),
            '[' => self.name(']', "]"),
            '@' => {
                self.next();
                match self.word() {
                    name if name.is_empty() => Err(error(start, "`@` must be followed by the name of a parameter")),
                    name => Ok(Token::Parameter(name)),
                }
            }
            _ if first.is_ascii_digit() => self.number(),
            _ if first.is_alphabetic() => Ok(Token::Word(self.word())),
            _ => self.symbol(first),
        }
    }

    fn next(&mut self) -> Option<char> {
        self.at += 1;
        self.chars.next()
    }

    fn eat(&mut self, wanted: impl Fn(char) -> bool) -> Option<char> {
        let c = self.chars.next_if(|c| wanted(*c))?;
        self.at += 1;
        Some(c)
    }

    fn word(&mut self) -> String {
        let mut word = String::new();
        while let Some(c) = self.eat(|c| c.is_alphanumeric() || c == '_') {
            word.push(c);
        }
        word
    }

    /// What stands up to the closing mark, which is written twice to stand for itself. `None` if it never closes.
    fn quoted(&mut self, close: char) -> Option<String> {
        self.next();
        let mut text = String::new();
        loop {
            let c = self.next()?;
            if c == close && self.eat(|next| next == close).is_none() {
                return Some(text);
            }
            text.push(c);
        }
    }

    fn name(&mut self, close: char, shown: &str) -> Result<Token, SqlError> {
        let start = self.at;
        match self.quoted(close) {
            None => Err(unclosed(start, "name", shown)),
            Some(name) if name.is_empty() => Err(error(start, "a name must not be empty")),
            Some(name) => Ok(Token::Name(name)),
        }
    }

    fn digits(&mut self, into: &mut String) -> usize {
        let before = into.len();
        while let Some(c) = self.eat(|c| c.is_ascii_digit()) {
            into.push(c);
        }
        into.len() - before
    }

    fn number(&mut self) -> Result<Token, SqlError> {
        let start = self.at;
        let mut text = String::new();
        self.digits(&mut text);
        let mut float = false;
        if self.eat(|c| c == '.').is_some() {
            float = true;
            text.push('.');
            if self.digits(&mut text) == 0 {
                return Err(error(self.at, "digits must follow the decimal point"));
            }
        }
        if self.eat(|c| matches!(c, 'e' | 'E')).is_some() {
            float = true;
            text.push('e');
            text.extend(self.eat(|c| matches!(c, '+' | '-')));
            if self.digits(&mut text) == 0 {
                return Err(error(self.at, "digits must follow the exponent's `E`"));
            }
        }
        if self.chars.peek().is_some_and(|c| c.is_alphabetic() || *c == '_') {
            return Err(error(self.at, "a number must not run into a name"));
        }
        if !float {
            let integer = text.parse().ok().filter(|integer| *integer <= 1 << 63);
            return integer.map(Token::Integer).ok_or_else(|| error(start, "this integer does not fit 64 bits"));
        }
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
        number.map(Token::Float).ok_or_else(|| error(start, "this number is too large for a double"))
    }

    fn symbol(&mut self, first: char) -> Result<Token, SqlError> {
        let start = self.at;
        self.next();
        let second = self.chars.peek().copied();
        for symbol in SYMBOLS {
            let mut chars = symbol.chars();
            if chars.next() != Some(first) {
                continue;
            }
            match chars.next() {
                None => return Ok(Token::Symbol(symbol)),
                wanted if wanted == second => {
                    self.next();
                    return Ok(Token::Symbol(symbol));
                }
                Some(_) => {}
            }
        }
        Err(error(start, format!("`{}` has no meaning here", first.escape_debug())))
    }
}

fn unclosed(at: usize, what: &str, close: &str) -> SqlError {
    error(at, format!("this {what} never ends: `{close}` is missing"))
}

pub(super) fn error(at: usize, message: impl Into<String>) -> SqlError {
    SqlError { at, message: message.into() }
}
