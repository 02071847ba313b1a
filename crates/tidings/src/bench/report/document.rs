//! The document that holds the figures: everything between two marker comments is replaced, the rest stays.

use std::path::Path;

use crate::bench::error::Error;

const BEGIN: &str = "<!-- measured: begin (written by `tidings bench report`) -->";
const END: &str = "<!-- measured: end -->";
/// What a document starts with that is not there yet.
const NEW: &str = "# Performance\n\n";

/// Puts `section` between the markers of the document at `path`, which is created if it does not exist.
pub fn replace_section(path: &Path, section: &str) -> Result<(), Error> {
    let old = match std::fs::read_to_string(path) {
        Ok(old) => old,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => format!("{NEW}{BEGIN}\n{END}\n"),
        Err(error) => return Err(Error::file(path)(error)),
    };
    let new = replaced(&old, section).ok_or_else(|| Error::File {
        path: path.to_owned(),
        source: std::io::Error::other(format!("it lacks the lines `{BEGIN}` and `{END}`")),
    })?;
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(Error::file(parent))?;
    }
    std::fs::write(path, new).map_err(Error::file(path))
}

fn replaced(old: &str, section: &str) -> Option<String> {
    let (before, rest) = old.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n\n{}\n\n{END}{after}", section.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_section_changes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("docs/performance.md");
        replace_section(&path, "one\n").unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, format!("# Performance\n\n{BEGIN}\n\none\n\n{END}\n"));
        std::fs::write(&path, format!("before\n{text}after\n")).unwrap();
        replace_section(&path, "two").unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, format!("before\n# Performance\n\n{BEGIN}\n\ntwo\n\n{END}\nafter\n"));
    }

    #[test]
    fn a_document_without_markers_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("performance.md");
        std::fs::write(&path, "mine").unwrap();
        let error = replace_section(&path, "one").unwrap_err().to_string();
        assert!(error.contains("measured: begin"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    }

    #[test]
    fn the_document_of_this_repository_has_the_markers() {
        let text = include_str!("../../../../../docs/performance.md");
        assert!(replaced(text, "new").is_some());
    }
}
