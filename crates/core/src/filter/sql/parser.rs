//! Checks an SQL text and builds what it means, by descent: a function for each strength of binding.

use super::action::Statement;
use super::expr::{Comparison, Expr, Property, Sum, Wanted};
use super::lexer::{Placed, Token, error, tokens};
use super::{Parameters, SqlError};
use crate::filter::like::Like;
use crate::filter::limits::{MAX_NAME_CHARS, MAX_SQL_CHARS, MAX_SQL_DEPTH};
use crate::filter::value::Value;
use crate::filter::view::System;

/// Words that cannot be plain names. Between brackets they can.
const RESERVED: [&str; 11] = ["AND", "OR", "NOT", "IN", "LIKE", "ESCAPE", "IS", "NULL", "EXISTS", "TRUE", "FALSE"];

pub(super) struct Parser<'p> {
    tokens: Vec<Placed>,
    next: usize,
    parameters: &'p Parameters,
    depth: usize,
    new_ids: usize,
    /// In an action, SET and REMOVE begin the next statement.
    action: bool,
}

type Parsed<T> = Result<T, SqlError>;

impl<'p> Parser<'p> {
    pub(super) fn new(text: &str, parameters: &'p Parameters) -> Parsed<Parser<'p>> {
        if text.chars().count() > MAX_SQL_CHARS {
            return Err(error(MAX_SQL_CHARS + 1, format!("the text is longer than {MAX_SQL_CHARS} characters")));
        }
        Ok(Parser { tokens: tokens(text)?, next: 0, parameters, depth: 0, new_ids: 0, action: false })
    }

    pub(super) fn filter(mut self) -> Parsed<Expr> {
        if *self.peek() == Token::End {
            return Err(error(self.at(), "the filter is empty; `1=1` takes every message"));
        }
        let at = self.at();
        let condition = self.condition()?;
        if *self.peek() != Token::End {
            return Err(self.unexpected("AND, OR or the end"));
        }
        must_be_condition(&condition, at)?;
        Ok(condition)
    }

    pub(super) fn statements(mut self) -> Parsed<Vec<Statement>> {
        self.action = true;
        let mut statements = Vec::new();
        loop {
            while self.symbol(";") {}
            if *self.peek() == Token::End {
                break;
            }
            statements.push(self.statement()?);
        }
        if statements.is_empty() {
            return Err(error(self.at(), "the action is empty"));
        }
        Ok(statements)
    }

    fn statement(&mut self) -> Parsed<Statement> {
        if self.keyword("REMOVE") {
            let at = self.at();
            let property = self.plain_property()?;
            if property == Property::System(System::MessageId) {
                return Err(error(at, "sys.MessageId cannot be removed: every message has one"));
            }
            writable(&property, at)?;
            return Ok(Statement::Remove(property));
        }
        if !self.keyword("SET") {
            return Err(self.unexpected("SET or REMOVE"));
        }
        let at = self.at();
        let property = self.plain_property()?;
        writable(&property, at)?;
        if !self.symbol("=") {
            return Err(self.unexpected("`=`"));
        }
        let value = self.operand(Parser::sum)?;
        Ok(Statement::Set(property, value))
    }

    /// A property that is named, not computed.
    fn plain_property(&mut self) -> Parsed<Property> {
        let at = self.at();
        match self.primary()? {
            Expr::Property(property) => Ok(property),
            _ => Err(error(at, "the name of a property is expected here")),
        }
    }

    fn condition(&mut self) -> Parsed<Expr> {
        self.chain("OR", Expr::Or, |parser| parser.chain("AND", Expr::And, Parser::negation))
    }

    fn chain(
        &mut self,
        word: &str,
        build: fn(Vec<Expr>) -> Expr,
        part: impl Fn(&mut Self) -> Parsed<Expr>,
    ) -> Parsed<Expr> {
        let mut at = self.at();
        let first = part(self)?;
        if !self.is_keyword(word) {
            return Ok(first);
        }
        must_be_condition(&first, at)?;
        let mut parts = vec![first];
        while self.keyword(word) {
            at = self.at();
            let next = part(self)?;
            must_be_condition(&next, at)?;
            parts.push(next);
        }
        Ok(build(parts))
    }

    fn negation(&mut self) -> Parsed<Expr> {
        if !self.keyword("NOT") {
            return self.comparison();
        }
        let at = self.at();
        let inner = self.deeper(Parser::negation)?;
        must_be_condition(&inner, at)?;
        Ok(Expr::Not(Box::new(inner)))
    }

    fn comparison(&mut self) -> Parsed<Expr> {
        let at = self.at();
        let left = self.sum()?;
        if let Some(comparison) = self.comparison_sign() {
            must_be_value(&left, at)?;
            let right = self.operand(Parser::sum)?;
            if self.comparison_sign().is_some() {
                self.next -= 1;
                return Err(error(self.at(), "comparisons cannot be chained; join them with AND"));
            }
            return Ok(Expr::Compare(comparison, Box::new(left), Box::new(right)));
        }
        if self.keyword("IS") {
            let not = self.keyword("NOT");
            if !self.keyword("NULL") {
                return Err(self.unexpected(if not { "NULL" } else { "NULL or NOT NULL" }));
            }
            if !left.is_property() {
                return Err(error(at, "IS NULL is asked of a property"));
            }
            return Ok(Expr::IsNull { of: Box::new(left), not });
        }
        let not = self.keyword("NOT");
        if self.keyword("IN") {
            must_be_value(&left, at)?;
            let list = self.list()?;
            return Ok(Expr::In { value: Box::new(left), list, not });
        }
        if self.keyword("LIKE") {
            must_be_value(&left, at)?;
            let pattern = self.like_pattern()?;
            return Ok(Expr::Like { text: Box::new(left), pattern, not });
        }
        if not { Err(self.unexpected("IN or LIKE")) } else { Ok(left) }
    }

    fn comparison_sign(&mut self) -> Option<Comparison> {
        let comparison = match self.peek() {
            Token::Symbol("=") => Comparison::Equal,
            Token::Symbol("<>" | "!=") => Comparison::NotEqual,
            Token::Symbol("<") => Comparison::Less,
            Token::Symbol("<=") => Comparison::LessOrEqual,
            Token::Symbol(">") => Comparison::Greater,
            Token::Symbol(">=") => Comparison::GreaterOrEqual,
            _ => return None,
        };
        self.next += 1;
        Some(comparison)
    }

    fn list(&mut self) -> Parsed<Vec<Expr>> {
        if !self.symbol("(") {
            return Err(self.unexpected("`(` and a list"));
        }
        let mut list = Vec::new();
        loop {
            list.push(self.operand(Parser::sum)?);
            if self.symbol(")") {
                return Ok(list);
            }
            if !self.symbol(",") {
                return Err(self.unexpected("`,` or `)`"));
            }
        }
    }

    fn like_pattern(&mut self) -> Parsed<Wanted> {
        let at = self.at();
        let pattern = self.operand(Parser::sum)?;
        if let Expr::Constant(value) = &pattern
            && !matches!(value, Value::Text(_) | Value::Null)
        {
            return Err(error(at, format!("a LIKE pattern is a string, not {}", value.kind())));
        }
        let escape_at = self.at();
        let escape = if self.keyword("ESCAPE") { Some(self.operand(Parser::sum)?) } else { None };
        let known_escape = match &escape {
            None => Some(None),
            Some(Expr::Constant(value)) => Some(Some(
                single_char(value)
                    .ok_or_else(|| error(escape_at, "ESCAPE must be followed by a string of one character"))?,
            )),
            Some(_) => None,
        };
        match (&pattern, known_escape) {
            (Expr::Constant(Value::Text(text)), Some(escape)) => {
                Like::parse(text, escape).map(Wanted::Known).map_err(|problem| error(at, problem.to_string()))
            }
            _ => Ok(Wanted::Computed { pattern: Box::new(pattern), escape: escape.map(Box::new) }),
        }
    }

    fn sum(&mut self) -> Parsed<Expr> {
        self.arithmetic(term_sign, |parser| parser.arithmetic(factor_sign, Parser::signed))
    }

    fn arithmetic(&mut self, sign: fn(&str) -> Option<Sum>, part: impl Fn(&mut Self) -> Parsed<Expr>) -> Parsed<Expr> {
        let at = self.at();
        let mut left = part(self)?;
        while let Token::Symbol(symbol) = self.peek()
            && let Some(sum) = sign(symbol)
        {
            must_be_value(&left, at)?;
            self.next += 1;
            let right = self.operand(&part)?;
            left = Expr::Compute(sum, Box::new(left), Box::new(right));
        }
        Ok(left)
    }

    fn signed(&mut self) -> Parsed<Expr> {
        let minus = self.symbol("-");
        if !minus && !self.symbol("+") {
            return self.primary();
        }
        // The least integer has no positive counterpart, so it is read together with its sign.
        if let (true, Token::Integer(integer)) = (minus, self.peek()) {
            let negative = 0i64.checked_sub_unsigned(*integer);
            self.next += 1;
            return Ok(Expr::Constant(Value::Integer(negative.unwrap_or(i64::MIN))));
        }
        let of = self.operand(|parser| parser.deeper(Parser::signed))?;
        Ok(Expr::Sign { minus, of: Box::new(of) })
    }

    fn primary(&mut self) -> Parsed<Expr> {
        let at = self.at();
        match self.take() {
            Token::Text(text) => Ok(Expr::Constant(Value::Text(text.into()))),
            Token::Float(number) => Ok(Expr::Constant(Value::Float(number))),
            Token::Integer(integer) => match i64::try_from(integer) {
                Ok(integer) => Ok(Expr::Constant(Value::Integer(integer))),
                Err(_) => Err(error(at, "this integer does not fit 64 bits")),
            },
            Token::Parameter(name) => match self.parameters.get(&name) {
                Some(value) => Ok(Expr::Constant(value.clone())),
                None => Err(error(at, format!("the parameter `@{name}` is not given"))),
            },
            Token::Name(name) => user(name, at),
            Token::Symbol("(") => {
                let inner = self.deeper(Parser::condition)?;
                if self.symbol(")") { Ok(inner) } else { Err(self.unexpected("`)`")) }
            }
            Token::Word(word) => self.word(word, at),
            Token::Symbol(_) | Token::End => {
                self.next -= 1;
                Err(self.unexpected("a value"))
            }
        }
    }

    fn word(&mut self, word: String, at: usize) -> Parsed<Expr> {
        let upper = word.to_ascii_uppercase();
        match upper.as_str() {
            "TRUE" => return Ok(Expr::Constant(Value::Bool(true))),
            "FALSE" => return Ok(Expr::Constant(Value::Bool(false))),
            "NULL" => return Ok(Expr::Constant(Value::Null)),
            "EXISTS" => {
                let at = self.at();
                let property = self.argument()?;
                return match property.is_property() {
                    true => Ok(Expr::Exists(Box::new(property))),
                    false => Err(error(at, "EXISTS is asked of a property")),
                };
            }
            _ => {}
        }
        let reserved = RESERVED.contains(&upper.as_str()) || (self.action && matches!(&*upper, "SET" | "REMOVE"));
        if reserved {
            self.next -= 1;
            return Err(error(
                at,
                format!("a value is expected, not the keyword {upper}; as a name it is written [{word}]"),
            ));
        }
        match (upper.as_str(), self.peek()) {
            ("NEWID", Token::Symbol("(")) => {
                self.next += 1;
                if !self.symbol(")") {
                    return Err(self.unexpected("`)`"));
                }
                self.new_ids += 1;
                Ok(Expr::NewId(self.new_ids))
            }
            ("P" | "PROPERTY", Token::Symbol("(")) => {
                let at = self.at();
                let name = self.argument()?;
                must_be_value(&name, at)?;
                Ok(Expr::Named(Box::new(name)))
            }
            (_, Token::Symbol("(")) => {
                Err(error(at, format!("there is no function `{word}`; there are newid, property, p and EXISTS")))
            }
            (scope, Token::Symbol(".")) => {
                self.next += 1;
                let name_at = self.at();
                match (scope, self.take()) {
                    ("SYS", Token::Word(name) | Token::Name(name)) => match System::named(&name) {
                        Some(property) => Ok(Expr::Property(Property::System(property))),
                        None => {
                            let known = System::names();
                            Err(error(name_at, format!("there is no system property `{name}`; there are {known}")))
                        }
                    },
                    ("USER", Token::Word(name) | Token::Name(name)) => user(name, name_at),
                    ("SYS" | "USER", _) => {
                        self.next -= 1;
                        Err(self.unexpected("the name of a property"))
                    }
                    _ => Err(error(
                        at,
                        format!(
                            "there is no scope `{word}`; there are sys and user. A name with a dot in it is written [{word}.name]"
                        ),
                    )),
                }
            }
            _ => user(word, at),
        }
    }

    /// What stands between the parentheses of a function.
    fn argument(&mut self) -> Parsed<Expr> {
        if !self.symbol("(") {
            return Err(self.unexpected("`(`"));
        }
        let argument = self.deeper(Parser::sum)?;
        if self.symbol(")") { Ok(argument) } else { Err(self.unexpected("`)`")) }
    }

    /// A part that must be a value and not a condition.
    fn operand(&mut self, part: impl FnOnce(&mut Self) -> Parsed<Expr>) -> Parsed<Expr> {
        let at = self.at();
        let operand = part(self)?;
        must_be_value(&operand, at)?;
        Ok(operand)
    }

    fn deeper<T>(&mut self, part: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth >= MAX_SQL_DEPTH {
            return Err(error(self.at(), format!("the text is nested deeper than {MAX_SQL_DEPTH} levels")));
        }
        self.depth += 1;
        let parsed = part(self);
        self.depth -= 1;
        parsed
    }

    fn peek(&self) -> &Token {
        self.tokens.get(self.next).map_or(&Token::End, |placed| &placed.token)
    }

    fn take(&mut self) -> Token {
        let token = self.peek().clone();
        self.next += 1;
        token
    }

    /// Where the next token stands.
    fn at(&self) -> usize {
        self.tokens.get(self.next).or(self.tokens.last()).map_or(1, |placed| placed.at)
    }

    fn symbol(&mut self, symbol: &str) -> bool {
        let found = matches!(self.peek(), Token::Symbol(next) if *next == symbol);
        self.next += usize::from(found);
        found
    }

    fn is_keyword(&self, keyword: &str) -> bool {
        matches!(self.peek(), Token::Word(word) if word.eq_ignore_ascii_case(keyword))
    }

    fn keyword(&mut self, keyword: &str) -> bool {
        let found = self.is_keyword(keyword);
        self.next += usize::from(found);
        found
    }

    fn unexpected(&self, wanted: &str) -> SqlError {
        let found = match self.peek() {
            Token::Word(word) | Token::Name(word) => format!("`{word}`"),
            Token::Text(text) => format!("the string '{text}'"),
            Token::Integer(number) => format!("{number}"),
            Token::Float(number) => format!("{number}"),
            Token::Parameter(name) => format!("`@{name}`"),
            Token::Symbol(symbol) => format!("`{symbol}`"),
            Token::End => "the end".to_owned(),
        };
        error(self.at(), format!("expected {wanted}, found {found}"))
    }
}

fn term_sign(symbol: &str) -> Option<Sum> {
    match symbol {
        "+" => Some(Sum::Add),
        "-" => Some(Sum::Subtract),
        _ => None,
    }
}

fn factor_sign(symbol: &str) -> Option<Sum> {
    match symbol {
        "*" => Some(Sum::Multiply),
        "/" => Some(Sum::Divide),
        "%" => Some(Sum::Remainder),
        _ => None,
    }
}

fn user(name: String, at: usize) -> Parsed<Expr> {
    if name.chars().count() > MAX_NAME_CHARS {
        return Err(error(at, format!("the name of a property is longer than {MAX_NAME_CHARS} characters")));
    }
    Ok(Expr::Property(Property::User(name.into())))
}

fn writable(property: &Property, at: usize) -> Parsed<()> {
    match property {
        Property::System(system) if !system.writable() => {
            Err(error(at, format!("sys.{} is the broker's own and cannot be changed", system.name())))
        }
        Property::System(_) | Property::User(_) => Ok(()),
    }
}

fn must_be_condition(expr: &Expr, at: usize) -> Parsed<()> {
    match expr.may_be_condition() {
        true => Ok(()),
        false => Err(error(at, "a condition is expected here, not a value")),
    }
}

fn must_be_value(expr: &Expr, at: usize) -> Parsed<()> {
    match expr.is_condition() {
        true => Err(error(at, "a value is expected here, not a condition")),
        false => Ok(()),
    }
}

pub(super) fn single_char(value: &Value<'_>) -> Option<char> {
    let Value::Text(text) = value else { return None };
    let mut chars = text.chars();
    chars.next().filter(|_| chars.next().is_none())
}
