//! SQL's LIKE: `%` stands for any run of characters, `_` for one; after the escape character both stand for themselves.

/// A LIKE pattern cut at its `%`. Always at least one piece; pieces may be empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Like {
    pieces: Box<[Piece]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the pattern ends with the escape character, which then escapes nothing")]
pub struct LikeError;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Literal(Box<str>),
    /// `None` where `_` stands.
    Holes(Box<[Option<char>]>),
}

impl Like {
    pub fn parse(text: &str, escape: Option<char>) -> Result<Like, LikeError> {
        let mut pieces = Vec::new();
        let mut piece = Vec::new();
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            match c {
                _ if Some(c) == escape => piece.push(Some(chars.next().ok_or(LikeError)?)),
                '%' => pieces.push(Piece::new(std::mem::take(&mut piece))),
                '_' => piece.push(None),
                other => piece.push(Some(other)),
            }
        }
        pieces.push(Piece::new(piece));
        Ok(Like { pieces: pieces.into_boxed_slice() })
    }

    /// Each inner piece is taken at its first place after the one before it. If any choice of places works, the first
    /// ones do, so there is no going back: the cost is at most text times pattern.
    pub fn matches(&self, text: &str) -> bool {
        let [first, middle @ .., last] = &*self.pieces else {
            return self.pieces.first().is_some_and(|only| only.strip_from(text) == Some(""));
        };
        let Some(mut rest) = first.strip_from(text).and_then(|rest| last.strip_from_end(rest)) else {
            return false;
        };
        for piece in middle {
            let Some(after) = piece.find_in(rest) else { return false };
            rest = after;
        }
        true
    }
}

impl Piece {
    fn new(chars: Vec<Option<char>>) -> Piece {
        match chars.iter().copied().collect::<Option<String>>() {
            Some(literal) => Piece::Literal(literal.into_boxed_str()),
            None => Piece::Holes(chars.into_boxed_slice()),
        }
    }

    /// What is left of a text that starts with this piece.
    fn strip_from<'t>(&self, text: &'t str) -> Option<&'t str> {
        match self {
            Piece::Literal(literal) => text.strip_prefix(&**literal),
            Piece::Holes(holes) => {
                let mut rest = text.chars();
                holes.iter().all(|hole| rest.next().is_some_and(|c| fits(*hole, c))).then_some(rest.as_str())
            }
        }
    }

    fn strip_from_end<'t>(&self, text: &'t str) -> Option<&'t str> {
        match self {
            Piece::Literal(literal) => text.strip_suffix(&**literal),
            Piece::Holes(holes) => {
                let mut rest = text.chars();
                let fit = holes.iter().rev().all(|hole| rest.next_back().is_some_and(|c| fits(*hole, c)));
                fit.then_some(rest.as_str())
            }
        }
    }

    /// What is left after the first place where this piece stands.
    fn find_in<'t>(&self, text: &'t str) -> Option<&'t str> {
        match self {
            Piece::Literal(literal) => text.split_once(&**literal).map(|(_, after)| after),
            Piece::Holes(holes) => {
                let mut start = text.chars();
                let mut left = text.chars().count();
                while left >= holes.len() {
                    if let Some(after) = self.strip_from(start.as_str()) {
                        return Some(after);
                    }
                    start.next();
                    left -= 1;
                }
                None
            }
        }
    }
}

fn fits(hole: Option<char>, c: char) -> bool {
    hole.is_none_or(|wanted| wanted == c)
}
