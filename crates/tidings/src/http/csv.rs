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
    // All bytes are looked at, whatever the first of them were: the processor compares many at a time.
    let special = |byte: u8| byte == b',' || byte == b'"' || byte == b'\r' || byte == b'\n';
    let quoted = cell.bytes().fold(false, |found, byte| found | special(byte));
    if quoted {
        out.push('"');
    }
    if starts_formula(cell) {
        out.push('\'');
    }
    let mut copied = 0;
    if quoted {
        for (place, _) in cell.bytes().enumerate().filter(|(_, byte)| *byte == b'"') {
            out.push_str(cell.get(copied..=place).unwrap_or_default());
            copied = place;
        }
    }
    out.push_str(cell.get(copied..).unwrap_or_default());
    if quoted {
        out.push('"');
    }
}

/// Whether a program may take the cell for a formula. A sign behind white space, or in its full-width form, still starts
/// one in some programs.
fn starts_formula(cell: &str) -> bool {
    if cell.as_bytes().first().is_none_or(|first| first.is_ascii_alphanumeric() || *first == b'{') {
        return false;
    }
    let first = cell.trim_start().chars().next();
    matches!(first, Some('=' | '+' | '-' | '@' | '＝' | '＋' | '－' | '＠')) || cell.starts_with(['\t', '\r', '\n'])
}

#[cfg(test)]
mod tests {
    use super::row;

    // S000-74
    #[test]
    fn cells_are_quoted_and_guarded() {
        assert_eq!(row(&["a", "b,c", "d\"e", "f\ng", ""]), "a,\"b,c\",\"d\"\"e\",\"f\ng\",\r\n");
        assert_eq!(row(&["\"\"", "\"é\",", "{\"a\":1}"]), "\"\"\"\"\"\",\"\"\"é\"\",\",\"{\"\"a\"\":1}\"\r\n");
        for cell in ["=1+1", "+1", "-1", "@x", "\t=1", " =1", "＝1", "\r1"] {
            assert!(row(&[cell]).trim_start_matches('"').starts_with('\''), "{cell:?}");
        }
        assert_eq!(row(&["a=b", "1-2"]), "a=b,1-2\r\n");
    }
}
