//! Wildcards: `*` stands for any run of characters, `\*` and `\\` for themselves.

/// A wildcard cut at its stars. Always at least one piece; pieces may be empty.
#[derive(Debug)]
pub(super) struct Wildcard {
    pieces: Box<[Box<str>]>,
}

/// What of a wildcard can be looked up: the literal that every matching text has, and where.
pub(super) enum Anchor<'a> {
    Whole(&'a str),
    Start(&'a str),
    End(&'a str),
    Inside(&'a str),
    Nowhere,
}

impl Wildcard {
    pub(super) fn parse(text: &str) -> Result<Wildcard, &'static str> {
        let mut pieces = Vec::new();
        let mut piece = String::new();
        let mut after_star = false;
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            match c {
                '*' if after_star => return Err("consecutive `*` in a wildcard are not allowed"),
                '*' => pieces.push(std::mem::take(&mut piece).into_boxed_str()),
                '\\' => match chars.next() {
                    Some(escaped @ ('*' | '\\')) => piece.push(escaped),
                    _ => return Err("a backslash in a wildcard must be followed by `*` or another backslash"),
                },
                other => piece.push(other),
            }
            after_star = c == '*';
        }
        pieces.push(piece.into_boxed_str());
        Ok(Wildcard { pieces: pieces.into_boxed_slice() })
    }

    pub(super) fn stars(&self) -> usize {
        self.pieces.len().saturating_sub(1)
    }

    /// Each inner piece is taken at its first place after the one before it. If any choice of places works, the first
    /// ones do, so there is no going back and the text is read once.
    pub(super) fn matches(&self, text: &str) -> bool {
        let [first, middle @ .., last] = &*self.pieces else {
            return self.pieces.first().is_some_and(|only| &**only == text);
        };
        let Some(mut rest) = text.strip_prefix(&**first).and_then(|rest| rest.strip_suffix(&**last)) else {
            return false;
        };
        for piece in middle {
            let Some((_, after)) = rest.split_once(&**piece) else { return false };
            rest = after;
        }
        true
    }

    pub(super) fn anchor(&self) -> Anchor<'_> {
        let [first, middle @ .., last] = &*self.pieces else {
            return self.pieces.first().map_or(Anchor::Nowhere, |only| Anchor::Whole(only));
        };
        if !first.is_empty() && first.len() >= last.len() {
            return Anchor::Start(first);
        }
        if !last.is_empty() {
            return Anchor::End(last);
        }
        middle.iter().max_by_key(|piece| piece.len()).map_or(Anchor::Nowhere, |piece| Anchor::Inside(piece))
    }
}
