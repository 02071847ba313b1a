//! What lettre speaks SMTP over: a connection that holds a mail server to its turn.
//!
//! lettre reads ahead, keeps what it has read across STARTTLS, and looks at the length of a line when it has all of it. So a
//! stranger on the way could say something before the handshake that is taken for said inside it, and a server that never
//! ends a line would fill the memory. Here a server says one line at a time before it encrypts, nothing beyond its
//! answers, and no more than an answer may have.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use lettre::transport::smtp::client::AsyncTokioStream;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Bytes of one answer; lettre takes half as many.
const ANSWER_BYTES: usize = 200_000;
const READ_AT_ONCE: usize = 4096;
const STARTTLS: &[u8] = b"STARTTLS\r\n";

pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin + std::fmt::Debug {
    fn peer(&self) -> io::Result<SocketAddr>;
}

impl Stream for TcpStream {
    fn peer(&self) -> io::Result<SocketAddr> {
        self.peer_addr()
    }
}

impl Stream for TlsStream<TcpStream> {
    fn peer(&self) -> io::Result<SocketAddr> {
        self.get_ref().0.peer_addr()
    }
}

#[derive(Debug)]
pub(super) struct Wire<S> {
    stream: S,
    phase: Phase,
    /// Read and not passed on.
    ahead: Vec<u8>,
    /// Bytes that were passed on since we last said something.
    answered: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Both take turns, line by line.
    Plain,
    /// We have asked for encryption: whatever we say next is the handshake.
    Asked,
    /// What passes is encrypted, or never will be.
    Through,
}

impl Wire<TcpStream> {
    pub(super) async fn plain(host: &str, port: u16, may_encrypt: bool) -> io::Result<Self> {
        let phase = if may_encrypt { Phase::Plain } else { Phase::Through };
        Ok(Self::new(TcpStream::connect((host, port)).await?, phase))
    }
}

impl Wire<TlsStream<TcpStream>> {
    /// One that is encrypted from the first byte, by the certificates that the operating system trusts.
    pub(super) async fn encrypted(host: &str, port: u16) -> io::Result<Self> {
        let config = ClientConfig::builder().with_platform_verifier().map_err(io::Error::other)?.with_no_client_auth();
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let stream = TcpStream::connect((host, port)).await?;
        Ok(Self::new(TlsConnector::from(Arc::new(config)).connect(name, stream).await?, Phase::Through))
    }
}

impl<S: Stream> Wire<S> {
    const fn new(stream: S, phase: Phase) -> Self {
        Self { stream, phase, ahead: Vec::new(), answered: 0 }
    }

    /// The next line, as far as it has come.
    fn pass_on(&mut self, most: usize) -> Vec<u8> {
        let line = self.ahead.iter().position(|byte| *byte == b'\n').map_or(self.ahead.len(), |end| end + 1);
        self.ahead.drain(..line.min(most)).collect()
    }

    fn count(&mut self, bytes: usize) -> io::Result<()> {
        self.answered += bytes;
        if self.answered > ANSWER_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the mail server's answer has no end"));
        }
        Ok(())
    }

    /// Whether it is our turn: the server has said all it has to.
    fn check_turn(&self) -> io::Result<()> {
        if self.ahead.is_empty() {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "the mail server speaks before it is asked"))
    }

    /// After we have said something.
    fn end_turn(&mut self, said: &[u8]) {
        self.answered = 0;
        self.phase = match self.phase {
            Phase::Plain if said.starts_with(STARTTLS) => Phase::Asked,
            Phase::Plain => Phase::Plain,
            Phase::Asked | Phase::Through => Phase::Through,
        };
    }
}

impl<S: Stream> AsyncRead for Wire<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let wire = self.get_mut();
        if wire.phase == Phase::Through {
            let before = buf.filled().len();
            ready!(Pin::new(&mut wire.stream).poll_read(cx, buf))?;
            return Poll::Ready(wire.count(buf.filled().len() - before));
        }
        if wire.ahead.is_empty() {
            let mut piece = [0; READ_AT_ONCE];
            let mut piece = ReadBuf::new(&mut piece);
            ready!(Pin::new(&mut wire.stream).poll_read(cx, &mut piece))?;
            wire.ahead.extend_from_slice(piece.filled());
        }
        let line = wire.pass_on(buf.remaining());
        buf.put_slice(&line);
        Poll::Ready(wire.count(line.len()))
    }
}

impl<S: Stream> AsyncWrite for Wire<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, said: &[u8]) -> Poll<io::Result<usize>> {
        let wire = self.get_mut();
        wire.check_turn()?;
        let written = ready!(Pin::new(&mut wire.stream).poll_write(cx, said))?;
        wire.end_turn(said);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

impl<S: Stream> AsyncTokioStream for Wire<S> {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.stream.peer()
    }
}
