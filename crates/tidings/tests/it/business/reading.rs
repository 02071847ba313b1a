//! Reading with the real Tesseract: every layout, and everything that can be wrong with a file.

use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use tidings::business::invoices::fields::{Fields, recognise};
use tidings::business::invoices::ocr::{Failure, Reader};
use tidings::config::invoices::Invoices;

use super::render;

const LIMIT: Duration = Duration::from_secs(300);

fn fields(number: &str, date: &str, total: &str, currency: &str, vendor: &str) -> Fields {
    let some = |text: &str| Some(text.to_owned());
    Fields {
        number: some(number),
        date: some(date),
        total: some(total),
        currency: some(currency),
        vendor: some(vendor),
    }
}

// REQ-DATA-001, S003-11
#[tokio::test]
async fn every_layout_is_read_from_pictures_and_pdfs() {
    let directory = tempfile::tempdir().unwrap();
    render(directory.path());
    let reader = Reader::new(&Invoices::default());
    let plain = fields("INV-2026-0042", "2026-03-15", "30.00", "GBP", "ACME Tools Ltd.");
    let columns = fields("10077", "2026-03-04", "1296.00", "USD", "Northwind Traders Inc.");
    let german = fields("2026-0815", "2026-01-31", "1190.00", "EUR", "Musterfirma GmbH");
    let title = fields("A-1207", "2026-02-09", "35.70", "USD", "Globex Corporation");
    for (file, expected, pages) in [
        ("plain.png", &plain, 1),
        ("plain.jpg", &plain, 1),
        ("plain.tif", &plain, 1),
        ("plain.pdf", &plain, 1),
        ("columns.png", &columns, 1),
        ("columns.pdf", &columns, 1),
        ("german.png", &german, 1),
        ("german.pdf", &german, 1),
        ("title.png", &title, 1),
        ("two-pages.pdf", &title, 2),
    ] {
        let read = reader.read(&directory.path().join(file), LIMIT).await.unwrap();
        assert_eq!((&recognise(&read.text), read.pages), (expected, pages), "{file}: {}", read.text);
    }
}

#[tokio::test]
async fn turned_pictures_are_read_as_they_should_stand() {
    let directory = tempfile::tempdir().unwrap();
    render(directory.path());
    let reader = Reader::new(&Invoices::default());
    for (file, number, total) in [
        ("turned-90.png", "INV-2026-0042", "30.00"),
        ("turned-180.png", "10077", "1296.00"),
        ("turned-270.tif", "INV-2026-0042", "30.00"),
        ("noted.jpg", "A-1207", "35.70"),
        ("turned.pdf", "A-1207", "35.70"),
    ] {
        let read = reader.read(&directory.path().join(file), LIMIT).await.unwrap();
        let found = recognise(&read.text);
        assert_eq!(
            (found.number.as_deref(), found.total.as_deref()),
            (Some(number), Some(total)),
            "{file}: {}",
            read.text
        );
    }
}

#[tokio::test]
async fn a_bad_file_fails_with_a_sentence_and_soon() {
    let directory = tempfile::tempdir().unwrap();
    render(directory.path());
    std::fs::write(directory.path().join("text.pdf"), "hello").unwrap();
    let reader = Reader::new(&Invoices::default());
    for (file, says) in [
        ("bomb.png", "30000 x 30000 pixels"),
        ("damaged.png", "cannot read the picture"),
        ("damaged.pdf", "the PDF is damaged"),
        ("empty.pdf", "the PDF is damaged"),
        ("200-pages.pdf", "more than 50 pages"),
        ("text.pdf", "no PDF, PNG, JPEG or TIFF"),
    ] {
        match reader.read(&directory.path().join(file), LIMIT).await {
            Err(Failure::File(why)) => assert!(why.contains(says), "{file}: {why}"),
            other => panic!("{file}: {other:?}"),
        }
    }
    // The limit itself.
    for (most, good) in [(1, false), (2, true), (3, true)] {
        let reader = Reader::new(&Invoices { max_pages: most, ..Invoices::default() });
        assert_eq!(reader.read(&directory.path().join("two-pages.pdf"), LIMIT).await.is_ok(), good, "{most}");
    }
}

#[tokio::test]
async fn what_is_missing_here_is_not_the_files_fault() {
    let directory = tempfile::tempdir().unwrap();
    render(directory.path());
    for (settings, file, says) in [
        (
            Invoices { tesseract: "no-such-tesseract".to_owned(), ..Invoices::default() },
            "plain.png",
            "no-such-tesseract",
        ),
        (Invoices { pdftoppm: "no-such-pdftoppm".to_owned(), ..Invoices::default() }, "plain.pdf", "no-such-pdftoppm"),
        (Invoices { languages: "xyz".to_owned(), ..Invoices::default() }, "plain.png", "xyz"),
    ] {
        match Reader::new(&settings).read(&directory.path().join(file), LIMIT).await {
            Err(Failure::Here(why)) => assert!(why.contains(says), "{why}"),
            other => panic!("{other:?}"),
        }
    }
}

// S003-14: the time is up, and nothing is left running.
#[tokio::test]
async fn a_program_that_hangs_is_ended_with_all_it_started() {
    let directory = tempfile::tempdir().unwrap();
    render(directory.path());
    let (script, pid) = (directory.path().join("hang"), directory.path().join("pid"));
    let text = format!("#!/bin/sh\nsleep 1000 & echo $! > {}.new; mv {0}.new {0}; wait\n", pid.display());
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let settings = Invoices { tesseract: script.display().to_string(), ..Invoices::default() };
    let read = Reader::new(&settings).read(&directory.path().join("plain.png"), Duration::from_secs(3)).await;
    assert_eq!(read, Err(Failure::Here("reading it took longer than allowed".to_owned())));
    let pid = std::fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    // The signal is on its way; the kernel says when it has come. One that is gone altogether cannot be asked for.
    let Ok(process) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) else { return };
    let patience = Timespec { tv_sec: 60, tv_nsec: 0 };
    let ended = move || rustix::event::poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&patience));
    assert_eq!(tokio::task::spawn_blocking(ended).await.unwrap(), Ok(1), "it ends");
}
