//! CSV as RFC 4180 has it, with cells that no spreadsheet takes for a formula.

/// One row with its line end.
#[must_use]
pub fn row(cells: &[&str]) -> String {
    let mut out = String::new();
    for (place, cell) in cells.iter().enumerate() {
        if place > 0 {
            out.push(',');
        }
        push_cell(&mut out, cell);
    }
    out.push_str("\r\n");
    out
}

/// Appends one cell.
pub fn push_cell(out: &mut String, cell: &str) {
    // A sign behind white space, or in its full-width form, still starts a formula in some programs.
    let first = cell.trim_start().chars().next();
    let guarded = matches!(first, Some('=' | '+' | '-' | '@' | '＝' | '＋' | '－' | '＠'))
        || cell.starts_with(['\t', '\r', '\n']);
    let quoted = cell.bytes().any(|byte| matches!(byte, b',' | b'"' | b'\r' | b'\n'));
    if quoted {
        out.push('"');
    }
    if guarded {
        out.push('\'');
    }
    for (place, part) in cell.split('"').enumerate() {
        if place > 0 {
            out.push_str("\"\"");
        }
        out.push_str(part);
    }
    if quoted {
        out.push('"');
    }
}

#[cfg(test)]
mod tests {
    use super::row;

    // S000-74
    #[test]
    fn cells_are_quoted_and_guarded() {
        assert_eq!(row(&["a", "b,c", "d\"e", "f\ng", ""]), "a,\"b,c\",\"d\"\"e\",\"f\ng\",\r\n");
        for cell in ["=1+1", "+1", "-1", "@x", "\t=1", " =1", "＝1", "\r1"] {
            assert!(row(&[cell]).trim_start_matches('"').starts_with('\''), "{cell:?}");
        }
        assert_eq!(row(&["a=b", "1-2"]), "a=b,1-2\r\n");
    }
}
