//! What a checked SQL text means.

use crate::filter::like::Like;
use crate::filter::value::Value;
use crate::filter::view::System;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expr {
    Constant(Value<'static>),
    Property(Property),
    /// `property(name)`, where the name is computed.
    Named(Box<Expr>),
    /// The nth `newid()` of its text.
    NewId(usize),
    Sign {
        minus: bool,
        of: Box<Expr>,
    },
    Compute(Sum, Box<Expr>, Box<Expr>),
    Not(Box<Expr>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Compare(Comparison, Box<Expr>, Box<Expr>),
    IsNull {
        of: Box<Expr>,
        not: bool,
    },
    In {
        value: Box<Expr>,
        list: Vec<Expr>,
        not: bool,
    },
    Like {
        text: Box<Expr>,
        pattern: Wanted,
        not: bool,
    },
    Exists(Box<Expr>),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Property {
    System(System),
    User(Box<str>),
}

/// What LIKE is asked for: known from the text, or found out from each message.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Wanted {
    Known(Like),
    Computed { pattern: Box<Expr>, escape: Option<Box<Expr>> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sum {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Expr {
    /// Whether this is a condition by its form.
    pub(super) fn is_condition(&self) -> bool {
        match self {
            Expr::Not(_)
            | Expr::And(_)
            | Expr::Or(_)
            | Expr::Compare(..)
            | Expr::IsNull { .. }
            | Expr::In { .. }
            | Expr::Like { .. }
            | Expr::Exists(_) => true,
            Expr::Constant(_)
            | Expr::Property(_)
            | Expr::Named(_)
            | Expr::NewId(_)
            | Expr::Sign { .. }
            | Expr::Compute(..) => false,
        }
    }

    /// Whether this is a condition or may turn out to be a boolean.
    pub(super) fn may_be_condition(&self) -> bool {
        let boolean = matches!(self, Expr::Constant(Value::Bool(_) | Value::Null) | Expr::Property(_) | Expr::Named(_));
        boolean || self.is_condition()
    }

    pub(super) fn is_property(&self) -> bool {
        matches!(self, Expr::Property(_) | Expr::Named(_))
    }
}
