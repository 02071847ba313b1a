//! Digits of other scripts, and the signs that people write between them, as ASCII has them. Who looks for numbers must
//! find them however they are written (S004-37, S004-38).

/// The zeros of the scripts' digits; nine more follow each.
const ZEROS: [u32; 44] = [
    0x30, 0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66, 0xde6, 0xe50, 0xed0,
    0xf20, 0x1040, 0x1090, 0x17e0, 0x1810, 0x1946, 0x19d0, 0x1a80, 0x1a90, 0x1b50, 0x1bb0, 0x1c40, 0x1c50, 0xa620,
    0xa8d0, 0xa900, 0xa9d0, 0xa9f0, 0xaa50, 0xabf0, 0xff10, 0x104a0, 0x11066, 0x1d7ce, 0x1d7d8, 0x1d7e2, 0x1d7ec,
    0x1d7f6,
];

/// What a digit counts, of whatever script.
pub fn value(c: char) -> Option<u32> {
    let code = u32::from(c);
    ZEROS.into_iter().find_map(|zero| code.checked_sub(zero).filter(|value| *value < 10))
}

/// The text with ASCII's digits and signs, and without marks that nobody sees.
pub fn folded(text: &str) -> String {
    text.chars().filter(|c| !is_unseen(*c)).map(ascii).collect()
}

fn ascii(c: char) -> char {
    match c {
        '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{fe58}' | '\u{fe63}' | '\u{ff0d}' => '-',
        '\u{ff0b}' | '\u{fe62}' => '+',
        '\u{ff08}' => '(',
        '\u{ff09}' => ')',
        '\u{ff0e}' | '\u{b7}' => '.',
        '\u{ff0f}' | '\u{2215}' => '/',
        '\u{ff1a}' => ':',
        c if c.is_whitespace() && c != '\n' => ' ',
        c => value(c).and_then(|value| char::from_digit(value, 10)).unwrap_or(c),
    }
}

/// Marks of direction and joints of no width.
const fn is_unseen(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_of_every_script_count_the_same() {
        assert!(ZEROS.is_sorted());
        for zero in ZEROS {
            for place in 0..10 {
                assert_eq!(char::from_u32(zero + place).and_then(value), Some(place), "{zero:x}");
            }
        }
        // The regular expressions' digits and ours are the same.
        let digit = regex::Regex::new(r"^\d$").unwrap();
        assert!(ZEROS.into_iter().all(|zero| digit.is_match(&char::from_u32(zero).unwrap().to_string())));
        for other in ['a', '\u{b2}', '\u{2460}', '\u{3007}', '/', ':'] {
            assert_eq!(value(other), None);
        }
    }

    #[test]
    fn a_text_is_folded() {
        assert_eq!(folded("\u{200f}\u{ff0b}\u{664}\u{669}\u{a0}\u{ff08}\u{966}\u{ff09}\u{2011}7"), "+49 (0)-7");
        assert_eq!(folded("na\u{ef}ve \u{1f600}"), "na\u{ef}ve \u{1f600}");
    }
}
