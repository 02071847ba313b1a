//! A mail server that says what a test wants it to say.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// What is said instead of the ordinary answer, by what it is the answer to (`connection`, a command's name, `mail`) and
/// the last recipient: pieces that are written one after the other.
type Answer = dyn Fn(&str, &str) -> Option<Vec<Vec<u8>>> + Send + Sync;

pub struct Talker {
    pub port: u16,
    heard: Arc<Mutex<Vec<Vec<String>>>>,
}

impl Talker {
    pub async fn start(answer: impl Fn(&str, &str) -> Option<Vec<Vec<u8>>> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let heard = Arc::new(Mutex::new(Vec::<Vec<String>>::new()));
        let (answer, hears): (Arc<Answer>, _) = (Arc::new(answer), Arc::clone(&heard));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let number = {
                    let mut heard = hears.lock().unwrap();
                    heard.push(Vec::new());
                    heard.len() - 1
                };
                tokio::spawn(talk(stream, Arc::clone(&answer), Arc::clone(&hears), number));
            }
        });
        Self { port, heard }
    }

    /// The same in a word for each answer that is not the ordinary one.
    pub async fn saying(to: &'static str, answer: &'static [u8]) -> Self {
        Self::start(move |what, _| (what == to).then(|| vec![answer.to_vec()])).await
    }

    pub fn url(&self) -> String {
        format!("smtp://127.0.0.1:{}?tls=none", self.port)
    }

    /// What each connection was told: commands by their lines, mails as `mail`.
    pub fn heard(&self) -> Vec<Vec<String>> {
        self.heard.lock().unwrap().clone()
    }
}

async fn talk(stream: TcpStream, answer: Arc<Answer>, heard: Arc<Mutex<Vec<Vec<String>>>>, number: usize) {
    stream.set_nodelay(true).unwrap();
    let mut stream = BufReader::new(stream);
    let (mut what, mut to) = ("connection".to_owned(), String::new());
    loop {
        let ordinary = match what.as_str() {
            "connection" => "220 here\r\n",
            "EHLO" => "250-here\r\n250 AUTH PLAIN LOGIN\r\n",
            "AUTH" => "235 in\r\n",
            "DATA" => "354 go\r\n",
            _ => "250 ok\r\n",
        };
        let said = answer(&what, &to).unwrap_or_else(|| vec![ordinary.as_bytes().to_vec()]);
        for piece in &said {
            if stream.write_all(piece).await.is_err() {
                return;
            }
        }
        // Whoever did not ask for a mail hears its lines as commands.
        let is_mail = what == "DATA" && said.concat().starts_with(b"354");
        let mut line = String::new();
        while stream.read_line(&mut line).await.is_ok_and(|read| read > 0) && is_mail && line != ".\r\n" {
            line.clear();
        }
        if line.is_empty() {
            return;
        }
        what = if is_mail { "mail".to_owned() } else { line.trim_end().split([' ', ':']).next().unwrap().to_owned() };
        if what == "RCPT" {
            line.trim_end().clone_into(&mut to);
        }
        heard.lock().unwrap()[number].push(if is_mail { what.clone() } else { line.trim_end().to_owned() });
    }
}
