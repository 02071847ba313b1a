//! Reading a picture or a PDF: the real Tesseract, and `pdftoppm` before it for PDFs. Both are foreign programs fed with
//! strangers' files, so each run is bounded in time, memory, processor time and output, and its whole group of
//! processes is ended with it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::time::Instant;

use super::fields;
use super::sniff::{self, FileType};
use crate::config::invoices::Invoices as Settings;

/// Bytes of text that a program may say; what is more is cut.
const OUTPUT_BYTES: u64 = 1024 * 1024;
/// Address space of a program: a picture of the largest size fits several times.
const MEMORY_KB: u64 = 4 * 1024 * 1024;
/// The longer side of a PDF's page once it is a picture: A4 at 300 dpi, whatever size the page claims.
const PAGE_SIDE: u32 = 3508;
/// Tesseract's ways to look at a page: as one block of text, and turned as it finds right.
const UPRIGHT: &str = "6";
const TURNED: &str = "1";
/// From here on its word counts by itself that a page is turned; below, what is read must make more sense.
const SURE: f64 = 2.0;
/// What `pdftoppm` says of a page that is not there.
const BEYOND_LAST_PAGE: i32 = 99;
/// What a shell says of a program that is not there.
const NOT_FOUND: i32 = 127;

/// What a file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    pub text: String,
    pub pages: usize,
}

/// Why a file could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The file is to blame, and will be the next time.
    File(String),
    /// Something here is to blame; another time it may go better.
    Here(String),
}

impl Failure {
    #[must_use]
    pub fn text(&self) -> &str {
        let (Self::File(text) | Self::Here(text)) = self;
        text
    }
}

/// Reads files.
#[derive(Debug, Clone)]
pub struct Reader {
    settings: Settings,
}

impl Reader {
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        Self { settings: settings.clone() }
    }

    /// The text of the file, within `limit`.
    pub async fn read(&self, path: &Path, limit: Duration) -> Result<Read, Failure> {
        let deadline = Instant::now() + limit;
        let bytes = tokio::fs::read(path).await.map_err(|error| here("the file cannot be opened", &error))?;
        let file_type =
            FileType::of(&bytes).ok_or_else(|| Failure::File("the file is no PDF, PNG, JPEG or TIFF".to_owned()))?;
        let desk = tempfile::tempdir().map_err(|error| here("there is no place for temporary files", &error))?;
        // The tools go by the name, the store by the content.
        let named = desk.path().join(format!("invoice.{}", file_type.extension()));
        tokio::fs::write(&named, &bytes)
            .await
            .map_err(|error| here("there is no place for temporary files", &error))?;
        if file_type != FileType::Pdf {
            let size = sniff::dimensions(file_type, &bytes).map_err(Failure::File)?;
            sniff::check_size(size).map_err(Failure::File)?;
            drop(bytes);
            let text = self.recognise(&named, deadline).await?;
            return Ok(Read { text, pages: 1 });
        }
        drop(bytes);
        self.read_pdf(&named, desk.path(), deadline).await
    }

    /// Page by page, so that a long document needs no more room than a short one.
    async fn read_pdf(&self, file: &Path, desk: &Path, deadline: Instant) -> Result<Read, Failure> {
        let most = self.settings.max_pages;
        if self.render(file, desk, most + 1, deadline).await?.is_some() {
            return Err(Failure::File(format!("the PDF has more than {most} pages, which is all that is read")));
        }
        let mut text = String::new();
        for page in 1..=most {
            let Some(picture) = self.render(file, desk, page, deadline).await? else {
                return Ok(Read { text, pages: page - 1 });
            };
            if page > 1 {
                text.push('\n');
            }
            text.push_str(&self.recognise(&picture, deadline).await?);
            let _ = tokio::fs::remove_file(&picture).await;
        }
        Ok(Read { text, pages: most })
    }

    /// One page as a picture; `None` after the last.
    async fn render(
        &self,
        file: &Path,
        desk: &Path,
        page: usize,
        deadline: Instant,
    ) -> Result<Option<PathBuf>, Failure> {
        let (number, side) = (page.to_string(), PAGE_SIDE.to_string());
        let mut command = bounded(&self.settings.pdftoppm);
        command.args(["-gray", "-png", "-singlefile", "-f", &number, "-l", &number, "-scale-to", &side]);
        command.arg(file).arg(desk.join("page"));
        let ran = run(command, &self.settings.pdftoppm, deadline).await?;
        if ran.code == Some(BEYOND_LAST_PAGE) && page > 1 {
            return Ok(None);
        }
        let picture = desk.join("page.png");
        match tokio::fs::read(&picture).await {
            Ok(bytes) if ran.code == Some(0) => {
                let size = sniff::dimensions(FileType::Png, &bytes).map_err(Failure::File)?;
                sniff::check_size(size).map_err(Failure::File)?;
                Ok(Some(picture))
            }
            _ => Err(Failure::File(format!("the PDF is damaged: {}", ran.complaint()))),
        }
    }

    /// The text of a picture. One that makes no sense may be turned, as phones store what they saw: then it is read again
    /// as it should stand.
    async fn recognise(&self, picture: &Path, deadline: Instant) -> Result<String, Failure> {
        let text = self.read_as(UPRIGHT, picture, deadline).await?;
        if tells(&text) {
            return Ok(text);
        }
        match self.turned(picture, deadline).await? {
            None => Ok(text),
            Some(confidence) => {
                let again = self.read_as(TURNED, picture, deadline).await?;
                Ok(if confidence >= SURE || tells(&again) { again } else { text })
            }
        }
    }

    /// How sure Tesseract is that the picture is turned; `None` if it stands upright or there is too little to tell, or if
    /// the data for that (`osd`) are not installed.
    async fn turned(&self, picture: &Path, deadline: Instant) -> Result<Option<f64>, Failure> {
        let mut command = bounded(&self.settings.tesseract);
        command.arg(picture).arg("stdout").args(["--psm", "0"]);
        let ran = run(command, &self.settings.tesseract, deadline).await?;
        Ok(turned(&ran.stdout).filter(|_| ran.code == Some(0)))
    }

    async fn read_as(&self, mode: &str, picture: &Path, deadline: Instant) -> Result<String, Failure> {
        let mut command = bounded(&self.settings.tesseract);
        // Columns keep their distance, which tells headings and values apart.
        command.arg(picture).arg("stdout").args(["-l", &self.settings.languages, "--psm", mode]);
        command.args(["-c", "preserve_interword_spaces=1"]);
        if mode == TURNED {
            // It is known to be turned; without this a short page counts as upright all the same.
            command.args(["-c", "min_orientation_margin=0"]);
        }
        let ran = run(command, &self.settings.tesseract, deadline).await?;
        if ran.code == Some(0) {
            return Ok(ran.stdout.trim_end().replace('\u{c}', "\n"));
        }
        let complaint = ran.complaint();
        // Languages that are not installed are nothing that the file could help.
        if complaint.contains("loading") && complaint.contains("language") {
            return Err(Failure::Here(format!("Tesseract cannot read {:?}: {complaint}", self.settings.languages)));
        }
        Err(Failure::File(format!("Tesseract cannot read the picture: {complaint}")))
    }
}

/// Whether a text says anything that only an invoice would.
fn tells(text: &str) -> bool {
    let fields = fields::recognise(text);
    fields.number.is_some() || fields.date.is_some() || fields.total.is_some()
}

/// From what Tesseract says about a page's orientation: how sure it is, if it is turned.
fn turned(said: &str) -> Option<f64> {
    let value = |name: &str| said.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
    let by = value("Rotate:")?;
    (by != 0.0).then(|| value("Orientation confidence:").unwrap_or(0.0))
}

fn here(what: &str, error: &std::io::Error) -> Failure {
    Failure::Here(format!("{what}: {error}"))
}

/// A program behind a shell that sets its limits, in a group of processes of its own.
fn bounded(program: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    let limits = format!("ulimit -v {MEMORY_KB} 2>/dev/null; ulimit -c 0; exec \"$@\"");
    command.arg("-c").arg(limits).arg("sh").arg(program);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // One thread: several would not make a page much faster, and take the cores from everybody else.
    command.env("OMP_THREAD_LIMIT", "1").process_group(0).kill_on_drop(true);
    command
}

/// What a program left.
struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ran {
    /// What it complained about, fit for an error.
    fn complaint(&self) -> String {
        let said = crate::channel::one_line(&self.stderr, 300);
        if said.is_empty() { "it did not say why".to_owned() } else { said }
    }
}

/// Runs a program to its end or the deadline.
async fn run(mut command: Command, program: &str, deadline: Instant) -> Result<Ran, Failure> {
    let mut child = command.spawn().map_err(|error| here("no program can be started", &error))?;
    let group = Group(child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw));
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let ended = async {
        let (out, err) = tokio::join!(listen(stdout), listen(stderr));
        (child.wait().await, out, err)
    };
    let Ok((status, stdout, stderr)) = tokio::time::timeout_at(deadline, ended).await else {
        drop(group);
        // The next attempt may have the machine to itself (S003-82).
        return Err(Failure::Here("reading it took longer than allowed".to_owned()));
    };
    let status = status.map_err(|error| here("a program cannot be waited for", &error))?;
    if status.code() == Some(NOT_FOUND) || status.code() == Some(126) {
        return Err(Failure::Here(format!("the program {program:?} is not installed here, or cannot be run")));
    }
    Ok(Ran { code: status.code(), stdout, stderr })
}

/// What comes out of a pipe, up to the limit; the rest is read and forgotten, so that nobody waits.
async fn listen(pipe: Option<impl tokio::io::AsyncRead + Unpin>) -> String {
    let Some(mut pipe) = pipe else { return String::new() };
    let mut bytes = Vec::new();
    let _ = (&mut pipe).take(OUTPUT_BYTES).read_to_end(&mut bytes).await;
    let _ = tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A group of processes that ends with this value, whatever the programs have started.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(pid) = self.0 {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turned_page_is_told_from_one_that_stands() {
        let said = |by: u32| {
            format!(
                "Page number: 0\nOrientation in degrees: {by}\nRotate: {by}\nOrientation confidence: 3.51\nScript: Latin\n"
            )
        };
        assert_eq!(turned(&said(90)), Some(3.51));
        assert_eq!(turned(&said(180)), Some(3.51));
        assert_eq!(turned(&said(0)), None);
        assert_eq!(turned("Too few characters. Skipping this page\n"), None);
    }
}
