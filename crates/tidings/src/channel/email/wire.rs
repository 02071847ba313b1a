//! A connection that holds a mail server to its turn.
//!
//! Whoever speaks before it is asked could be taken for having answered what was asked later: a stranger on the way before
//! the handshake of STARTTLS, or a server that has a line too many, of which the next recipient's mail would be judged. So
//! nothing is said while anything is unread, here or with the system, and an answer has an end within a limit.

use std::future::poll_fn;
use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::answer::{Answer, Unreadable};

/// Bytes of one answer, all its lines together. RFC 5321 has 512 for a line, and nobody has that many lines.
const ANSWER_BYTES: usize = 16 * 1024;
const READ_AT_ONCE: usize = 4096;

/// Why a conversation cannot go on. It may go better another time.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error("Connection error: {0}")]
    Connecting(io::Error),
    #[error("network error: {0}")]
    Network(#[from] io::Error),
    #[error("the mail server hung up")]
    HungUp,
    #[error("the mail server speaks before it is asked")]
    OutOfTurn,
    #[error("the mail server's answer has no end within 16 KiB")]
    Endless,
    #[error("the mail server's answer is none of SMTP: {0}")]
    Unreadable(String),
}

trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin + std::fmt::Debug {
    fn socket(&self) -> &TcpStream;

    fn into_socket(self: Box<Self>) -> TcpStream;
}

impl Stream for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }

    fn into_socket(self: Box<Self>) -> TcpStream {
        *self
    }
}

impl Stream for TlsStream<TcpStream> {
    fn socket(&self) -> &TcpStream {
        self.get_ref().0
    }

    fn into_socket(self: Box<Self>) -> TcpStream {
        self.into_inner().0
    }
}

#[derive(Debug)]
pub(super) struct Wire(BufReader<Box<dyn Stream>>);

impl Wire {
    pub(super) async fn connect(host: &str, port: u16) -> Result<Self, Fault> {
        let connecting = async {
            let socket = TcpStream::connect((host, port)).await?;
            // The end of a mail is a few bytes of their own, which are not to wait for more.
            socket.set_nodelay(true)?;
            Ok(socket)
        };
        Ok(Self::over(Box::new(connecting.await.map_err(Fault::Connecting)?)))
    }

    fn over(stream: Box<dyn Stream>) -> Self {
        Self(BufReader::with_capacity(READ_AT_ONCE, stream))
    }

    /// The same, encrypted from here on, by the certificates that the operating system trusts.
    pub(super) async fn encrypted(mut self, host: &str) -> Result<Self, Fault> {
        self.check_turn().await?;
        let config = ClientConfig::builder().with_platform_verifier().map_err(io::Error::other)?.with_no_client_auth();
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let socket = self.0.into_inner().into_socket();
        Ok(Self::over(Box::new(TlsConnector::from(Arc::new(config)).connect(name, socket).await?)))
    }

    /// Says something, if it is our turn: the server has said all it had to.
    pub(super) async fn say(&mut self, said: &[u8]) -> Result<(), Fault> {
        self.check_turn().await?;
        self.0.write_all(said).await?;
        Ok(self.0.flush().await?)
    }

    /// The next answer, all its lines.
    pub(super) async fn answer(&mut self) -> Result<Answer, Fault> {
        let mut answer = Answer::default();
        let mut left = ANSWER_BYTES;
        loop {
            let mut line = Vec::new();
            let most = u64::try_from(left).unwrap_or(u64::MAX);
            left -= (&mut self.0).take(most).read_until(b'\n', &mut line).await?;
            match line.strip_suffix(b"\n") {
                Some(line) => {
                    let line = line.strip_suffix(b"\r").unwrap_or(line);
                    if answer.add(line).map_err(|Unreadable(line)| Fault::Unreadable(line))? {
                        return Ok(answer);
                    }
                }
                None if left == 0 => return Err(Fault::Endless),
                None => return Err(Fault::HungUp),
            }
        }
    }

    /// Fails if the server has said more than it was asked for, or has hung up.
    pub(super) async fn check_turn(&mut self) -> Result<(), Fault> {
        loop {
            let unread = poll_fn(|cx| Poll::Ready(Pin::new(&mut self.0).poll_fill_buf(cx).map_ok(<[u8]>::len))).await;
            match unread {
                Poll::Ready(Ok(0)) => return Err(Fault::HungUp),
                Poll::Ready(Ok(_)) => return Err(Fault::OutOfTurn),
                Poll::Ready(Err(error)) => return Err(error.into()),
                Poll::Pending => {}
            }
            let socket = self.0.get_ref().socket();
            if !has_unread(socket)? {
                return Ok(());
            }
            // Part of the encryption, or it came in this moment: it is read in the next round.
            socket.readable().await?;
        }
    }
}

/// Whether the system has something for us. The runtime learns of it only when it looks.
fn has_unread(socket: &TcpStream) -> io::Result<bool> {
    let copy = std::net::TcpStream::from(socket.as_fd().try_clone_to_owned()?);
    match copy.peek(&mut [0]) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// A connection on which this was said.
    async fn hearing(said: &[u8]) -> (Wire, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let wire = Wire::connect("127.0.0.1", listener.local_addr().unwrap().port()).await.unwrap();
        let mut server = listener.accept().await.unwrap().0;
        server.set_nodelay(true).unwrap();
        server.write_all(said).await.unwrap();
        (wire, server)
    }

    #[tokio::test]
    async fn an_answer_has_16_kib() {
        let with_text = |bytes: usize| format!("250 {}\r\n", "x".repeat(bytes - 6)).into_bytes();
        // Lines of seven bytes.
        let in_lines = |bytes: usize| {
            let last = with_text(bytes % 7 + 7);
            [&b"250-x\r\n".repeat(bytes / 7 - 1)[..], &last[..]].concat()
        };
        for bytes in [16_383, 16_384, 16_385] {
            for said in [with_text(bytes), in_lines(bytes)] {
                assert_eq!(said.len(), bytes);
                let (mut wire, _server) = hearing(&said).await;
                let answer = wire.answer().await;
                match bytes {
                    ..=16_384 => assert_eq!(answer.unwrap().code, 250),
                    _ => assert!(matches!(answer, Err(Fault::Endless)), "{answer:?}"),
                }
            }
        }
    }

    #[tokio::test]
    async fn nothing_is_said_while_something_is_unread() {
        let (mut wire, server) = hearing(b"250 ok\r\n250 twice\r\n").await;
        assert_eq!(wire.answer().await.unwrap().text(), "ok");
        assert!(matches!(wire.say(b"NOOP\r\n").await, Err(Fault::OutOfTurn)));
        drop(server);

        let (mut wire, mut server) = hearing(b"250 ok\r\n").await;
        wire.answer().await.unwrap();
        wire.check_turn().await.unwrap();
        // With the system only, and nobody has looked since.
        server.write_all(b"250 twice\r\n").await.unwrap();
        assert!(matches!(wire.say(b"NOOP\r\n").await, Err(Fault::OutOfTurn)));

        let (mut wire, server) = hearing(b"250 ok\r\n").await;
        wire.answer().await.unwrap();
        drop(server);
        assert!(matches!(wire.say(b"NOOP\r\n").await, Err(Fault::HungUp)));
    }

    // Most say it inside the encryption, which has messages of its own (tickets) that are nobody's turn.
    #[tokio::test]
    async fn nothing_is_said_while_something_is_unread_in_the_encryption() {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let mut trusted = rustls::RootCertStore::empty();
        trusted.add(made.cert.der().clone()).unwrap();
        let ours = ClientConfig::builder().with_root_certificates(trusted).with_no_client_auth();
        let key = made.signing_key.serialize_der().try_into().unwrap();
        let theirs = rustls::ServerConfig::builder().with_no_client_auth();
        let theirs = theirs.with_single_cert(vec![made.cert.der().clone()], key).unwrap();

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let accepted = listener.accept().await.unwrap().0;
        accepted.set_nodelay(true).unwrap();
        let (client, server) = tokio::join!(
            TlsConnector::from(Arc::new(ours)).connect("localhost".try_into().unwrap(), socket),
            tokio_rustls::TlsAcceptor::from(Arc::new(theirs)).accept(accepted),
        );
        let (mut wire, mut server) = (Wire::over(Box::new(client.unwrap())), server.unwrap());
        server.flush().await.unwrap();
        wire.say(b"EHLO x\r\n").await.unwrap();
        server.write_all(b"250 ok\r\n").await.unwrap();
        wire.answer().await.unwrap();
        wire.check_turn().await.unwrap();
        server.write_all(b"250 twice\r\n").await.unwrap();
        server.flush().await.unwrap();
        let said = wire.say(b"NOOP\r\n").await;
        assert!(matches!(said, Err(Fault::OutOfTurn)), "{said:?}");
    }
}
