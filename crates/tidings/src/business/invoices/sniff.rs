//! What a file is, by its content and never by its name, and how large a picture says it is: a bomb is small until it is
//! unpacked.

/// A kind of file that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileType {
    Pdf,
    Png,
    Jpeg,
    Tiff,
}

/// Pixels of a picture at the most: an A4 page at 600 dpi has 35 million.
pub const PIXELS: u64 = 60_000_000;
/// Pixels of one side.
pub const SIDE: u64 = 20_000;
/// A PDF may have a little before its beginning.
const PDF_WITHIN: usize = 1024;

impl FileType {
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Self> {
        if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
            Some(Self::Png)
        } else if bytes.starts_with(b"\xff\xd8\xff") {
            Some(Self::Jpeg)
        } else if bytes.starts_with(b"II*\0") || bytes.starts_with(b"MM\0*") {
            Some(Self::Tiff)
        } else if bytes.get(..bytes.len().min(PDF_WITHIN))?.windows(5).any(|five| five == b"%PDF-") {
            Some(Self::Pdf)
        } else {
            None
        }
    }

    #[must_use]
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Pdf => "application/pdf",
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Tiff => "image/tiff",
        }
    }

    /// What the tools want a file of this kind to be called.
    #[must_use]
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Pdf => "pdf",
            Self::Png => "png",
            Self::Jpeg => "jpg",
            Self::Tiff => "tif",
        }
    }
}

/// Width and height that a picture claims, or what is wrong with it.
pub fn dimensions(file_type: FileType, bytes: &[u8]) -> Result<(u64, u64), String> {
    let found = match file_type {
        FileType::Png => png(bytes),
        FileType::Jpeg => jpeg(bytes),
        FileType::Tiff => tiff(bytes),
        FileType::Pdf => None,
    };
    found.ok_or_else(|| "the picture is damaged: its size cannot be read".to_owned())
}

/// Whether a picture is small enough to be unpacked.
pub fn check_size((width, height): (u64, u64)) -> Result<(), String> {
    if width == 0 || height == 0 {
        return Err("the picture is empty".to_owned());
    }
    if width > SIDE || height > SIDE || width * height > PIXELS {
        return Err(format!(
            "the picture has {width} x {height} pixels; at most {PIXELS}, and {SIDE} a side, are read"
        ));
    }
    Ok(())
}

fn number(bytes: &[u8], at: usize, length: usize, big_endian: bool) -> Option<u64> {
    let digits = bytes.get(at..at.checked_add(length)?)?;
    let fold = |value: u64, byte: &u8| (value << 8) | u64::from(*byte);
    Some(if big_endian { digits.iter().fold(0, fold) } else { digits.iter().rev().fold(0, fold) })
}

/// The first chunk must be the header.
fn png(bytes: &[u8]) -> Option<(u64, u64)> {
    (bytes.get(12..16)? == b"IHDR").then_some(())?;
    Some((number(bytes, 16, 4, true)?, number(bytes, 20, 4, true)?))
}

/// The first start-of-frame segment.
fn jpeg(bytes: &[u8]) -> Option<(u64, u64)> {
    let mut at = 2;
    // Every segment has a length of at least 2, so this ends.
    loop {
        while bytes.get(at)? == &0xff && bytes.get(at + 1)? == &0xff {
            at += 1;
        }
        let (mark, kind) = (bytes.get(at)?, bytes.get(at + 1)?);
        if *mark != 0xff {
            return None;
        }
        match kind {
            0xc0..=0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf => {
                return Some((number(bytes, at + 7, 2, true)?, number(bytes, at + 5, 2, true)?));
            }
            0x01 | 0xd0..=0xd8 => at += 2,
            0xd9 | 0xda => return None,
            _ => {
                let length = usize::try_from(number(bytes, at + 2, 2, true)?).ok()?;
                at += 2 + length.max(2);
            }
        }
    }
}

/// The first directory. Every page counts: the largest side of any of them.
fn tiff(bytes: &[u8]) -> Option<(u64, u64)> {
    const WIDTH: u64 = 256;
    const HEIGHT: u64 = 257;
    let big_endian = bytes.starts_with(b"MM");
    let mut directory = usize::try_from(number(bytes, 4, 4, big_endian)?).ok()?;
    let mut largest: Option<(u64, u64)> = None;
    // Directories may lead in a circle.
    for _ in 0..1000 {
        let entries = number(bytes, directory, 2, big_endian)?;
        let (mut width, mut height) = (None, None);
        for entry in 0..usize::try_from(entries).ok()? {
            let at = directory + 2 + entry * 12;
            // A short stands in the first two bytes of its place, a long in all four.
            let length = if number(bytes, at + 2, 2, big_endian)? == 3 { 2 } else { 4 };
            match number(bytes, at, 2, big_endian)? {
                WIDTH => width = number(bytes, at + 8, length, big_endian),
                HEIGHT => height = number(bytes, at + 8, length, big_endian),
                _ => {}
            }
        }
        let size = (width?, height?);
        largest = Some(largest.map_or(size, |known| (known.0.max(size.0), known.1.max(size.1))));
        let next =
            usize::try_from(number(bytes, directory + 2 + usize::try_from(entries).ok()? * 12, 4, big_endian)?).ok()?;
        if next == 0 {
            break;
        }
        directory = next;
    }
    largest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn png_of(width: u32, height: u32) -> Vec<u8> {
        let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".to_vec();
        bytes.extend(width.to_be_bytes());
        bytes.extend(height.to_be_bytes());
        bytes
    }

    #[test]
    fn the_content_decides() {
        assert_eq!(FileType::of(b"%PDF-1.7 ..."), Some(FileType::Pdf));
        assert_eq!(FileType::of(&[b" ".repeat(1000), b"%PDF-1.7".to_vec()].concat()), Some(FileType::Pdf));
        assert_eq!(FileType::of(&[b" ".repeat(1024), b"%PDF-1.7".to_vec()].concat()), None);
        assert_eq!(FileType::of(&png_of(1, 1)), Some(FileType::Png));
        assert_eq!(FileType::of(b"\xff\xd8\xff\xe0"), Some(FileType::Jpeg));
        assert_eq!(FileType::of(b"II*\0"), Some(FileType::Tiff));
        assert_eq!(FileType::of(b"MM\0*"), Some(FileType::Tiff));
        for other in [&b""[..], b"GIF89a", b"<html>", b"PK\x03\x04", b"MZ", b"\x89PNG"] {
            assert_eq!(FileType::of(other), None, "{other:?}");
        }
    }

    #[test]
    fn sizes_are_limited() {
        assert_eq!(dimensions(FileType::Png, &png_of(640, 480)), Ok((640, 480)));
        for ((width, height), good) in [
            ((20_000, 3_000), true),
            ((20_001, 1), false),
            ((1, 20_001), false),
            ((10_000, 6_000), true),
            ((10_000, 6_001), false),
            ((0, 5), false),
            ((u64::from(u32::MAX), u64::from(u32::MAX)), false),
        ] {
            assert_eq!(check_size((width, height)).is_ok(), good, "{width} x {height}");
        }
    }

    #[test]
    fn a_jpeg_says_its_size_after_other_segments() {
        let mut bytes = b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0".to_vec();
        bytes.extend(b"\xff\xc0\0\x11\x08\x01\xe0\x02\x80\x03");
        assert_eq!(dimensions(FileType::Jpeg, &bytes), Ok((640, 480)));
        assert!(dimensions(FileType::Jpeg, &bytes[..22]).is_err());
        assert!(dimensions(FileType::Jpeg, b"\xff\xd8\xff\xd9").is_err());
    }

    #[test]
    fn a_tiff_says_its_size_in_its_directory_and_circles_end() {
        let entry = |tag: u16, value: u16| {
            [&tag.to_le_bytes()[..], &3_u16.to_le_bytes(), &1_u32.to_le_bytes(), &value.to_le_bytes(), &[0, 0]].concat()
        };
        let tiff = |next: u32| {
            [&b"II*\0\x08\0\0\0\x02\0"[..], &entry(256, 640), &entry(257, 480), &next.to_le_bytes()].concat()
        };
        assert_eq!(dimensions(FileType::Tiff, &tiff(0)), Ok((640, 480)));
        assert_eq!(dimensions(FileType::Tiff, &tiff(8)), Ok((640, 480)), "a circle");
        assert!(dimensions(FileType::Tiff, b"II*\0\xff\xff\xff\xff").is_err());
    }

    #[test]
    fn no_bytes_make_it_panic() {
        for file_type in [FileType::Png, FileType::Jpeg, FileType::Tiff] {
            for length in 0..64 {
                for byte in [0, 0xc0, 0xff] {
                    let _ = dimensions(file_type, &vec![byte; length]);
                }
            }
        }
    }
}
