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

    /// Gives `each` the properties of the broker that are named in it.
    pub(super) fn each_system(&self, each: &mut impl FnMut(System)) {
        match self {
            Expr::Property(Property::System(property)) => each(*property),
            Expr::Constant(_) | Expr::Property(Property::User(_)) | Expr::NewId(_) => {}
            Expr::Named(name) => {
                if let Expr::Constant(Value::Text(name)) = &**name
                    && let Some((scope, name)) = name.split_once('.')
                    && scope.eq_ignore_ascii_case("sys")
                    && let Some(property) = System::named(name)
                {
                    each(property);
                }
                name.each_system(each);
            }
            Expr::Sign { of, .. } | Expr::Not(of) | Expr::IsNull { of, .. } | Expr::Exists(of) => of.each_system(each),
            Expr::Compute(_, left, right) | Expr::Compare(_, left, right) => {
                left.each_system(each);
                right.each_system(each);
            }
            Expr::And(parts) | Expr::Or(parts) => parts.iter().for_each(|part| part.each_system(each)),
            Expr::In { value, list, .. } => {
                value.each_system(each);
                list.iter().for_each(|item| item.each_system(each));
            }
            Expr::Like { text, pattern, .. } => {
                text.each_system(each);
                if let Wanted::Computed { pattern, escape } = pattern {
                    pattern.each_system(each);
                    escape.iter().for_each(|escape| escape.each_system(each));
                }
            }
        }
    }

    pub(super) fn is_property(&self) -> bool {
        matches!(self, Expr::Property(_) | Expr::Named(_))
    }
}
