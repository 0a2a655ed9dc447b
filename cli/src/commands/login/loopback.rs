//! Where a provider sends the browser back to: a port of this machine, for one answer.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use roadstead_oidc::code;
use zeroize::Zeroizing;

const PATH: &str = "/callback";
/// The longest head of a request.
const MAX_HEAD: usize = 16 * 1024;
/// So long a browser may take to send one.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked whether the time is over.
const PAUSE: Duration = Duration::from_millis(50);

pub(super) struct Loopback {
    listener: TcpListener,
    port: u16,
}

/// What a request asks for, where it is the provider's answer.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Code(String),
    Refused(String),
    Other,
}

impl Loopback {
    pub(super) fn listen() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listen on 127.0.0.1")?;
        listener.set_nonblocking(true).context("listen on 127.0.0.1")?;
        let port = listener.local_addr().context("listen on 127.0.0.1")?.port();
        Ok(Self { listener, port })
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}{PATH}", self.port)
    }

    /// Waits for the answer to a sign-in, and gives the code. What else comes is told that nothing is there: anybody on this machine may
    /// send something.
    pub(super) fn wait(&self, state: &str, issuer: &str, end: Instant) -> Result<Zeroizing<String>> {
        while Instant::now() < end {
            match self.listener.accept() {
                Ok((stream, _)) => match answer(stream, state, issuer) {
                    Ok(Asked::Code(code)) => return Ok(Zeroizing::new(code)),
                    Ok(Asked::Refused(why)) => bail!("the provider did not sign you in: {why}"),
                    Ok(Asked::Other) | Err(_) => {}
                },
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => std::thread::sleep(PAUSE),
                Err(error) => return Err(error).context("wait for the browser"),
            }
        }
        bail!("timed out waiting for you to sign in")
    }
}

fn answer(mut stream: TcpStream, state: &str, issuer: &str) -> Result<Asked> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let (mut head, end) = (Vec::new(), Instant::now() + PATIENCE);
    while !head.windows(4).any(|part| part == b"\r\n\r\n") {
        let mut part = [0; 2048];
        let read = stream.read(&mut part)?;
        if read == 0 || head.len() + read > MAX_HEAD || Instant::now() > end {
            bail!("no request");
        }
        head.extend_from_slice(&part[..read]);
    }
    let asked = read(&head, state, issuer);
    let (status, text) = match &asked {
        Asked::Code(_) => ("200 OK", "You are signed in. Go back to the command line."),
        Asked::Refused(_) => ("200 OK", "You are not signed in. The command line says why."),
        Asked::Other => ("404 Not Found", "Nothing is here."),
    };
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\nx-content-type-options: nosniff\r\n\
         referrer-policy: no-referrer\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{text}",
        text.len()
    );
    // The browser may be gone: the code is what counts.
    let _ = stream.write_all(answer.as_bytes());
    Ok(asked)
}

fn read(head: &[u8], state: &str, issuer: &str) -> Asked {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let target = std::str::from_utf8(line).ok().and_then(|line| line.strip_prefix("GET "));
    let Some(target) = target.and_then(|rest| rest.strip_suffix(" HTTP/1.1")) else { return Asked::Other };
    let Some(query) = target.strip_prefix(PATH).and_then(|rest| rest.strip_prefix('?')) else {
        return Asked::Other;
    };
    let Ok(url) = reqwest::Url::parse(&format!("http://127.0.0.1{PATH}?{query}")) else {
        return Asked::Other;
    };
    let get =
        |wanted: &str| url.query_pairs().find(|(key, _)| key == wanted).map(|(_, value)| value.into_owned());
    if get("state").as_deref() != Some(state) || get("iss").is_some_and(|iss| iss != issuer) {
        return Asked::Other;
    }
    match (get("error"), get("code")) {
        (Some(error), _) => Asked::Refused(code::told(&error, get("error_description").as_deref())),
        (None, Some(code)) if !code.is_empty() => Asked::Code(code),
        _ => Asked::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_answer_to_this_sign_in_is_taken() {
        let of =
            |line: &str| read(format!("{line}\r\nHost: x\r\n\r\n").as_bytes(), "s", "https://login.test");
        assert_eq!(of("GET /callback?state=s&code=a%20b HTTP/1.1"), Asked::Code("a b".to_owned()));
        let iss = "GET /callback?code=c&state=s&iss=https%3A%2F%2Flogin.test HTTP/1.1";
        assert_eq!(of(iss), Asked::Code("c".to_owned()));
        let refused = "GET /callback?state=s&error=access_denied&error_description=%1b%5b31mno HTTP/1.1";
        assert_eq!(of(refused), Asked::Refused("?[31mno (access_denied)".to_owned()));
        for other in [
            "GET / HTTP/1.1",
            "GET /favicon.ico HTTP/1.1",
            "GET /callback HTTP/1.1",
            "GET /callback?state=t&code=c HTTP/1.1",
            "GET /callback?code=c HTTP/1.1",
            "GET /callback?state=s&code= HTTP/1.1",
            "GET /callback?state=s&code=c&iss=https://evil.test HTTP/1.1",
            "GET /callbacks?state=s&code=c HTTP/1.1",
            "POST /callback?state=s&code=c HTTP/1.1",
            "",
        ] {
            assert_eq!(of(other), Asked::Other, "{other}");
        }
        assert_eq!(read(b"GET /callback?state=s&code=\xff HTTP/1.1\r\n\r\n", "s", ""), Asked::Other);
    }

    #[test]
    fn who_says_nothing_or_something_else_does_not_end_the_wait() {
        let loopback = Loopback::listen().unwrap();
        let port = loopback.port;
        let send = move |text: &str| {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
            stream.write_all(text.as_bytes()).unwrap();
            let mut answer = String::new();
            let _ = stream.read_to_string(&mut answer);
            answer
        };
        let sender = std::thread::spawn(move || {
            let large = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(MAX_HEAD));
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
            let _ = stream.write_all(large.as_bytes());
            drop(stream);
            assert!(send("GET /callback?state=x&code=c HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
            send("GET /callback?state=s&code=c HTTP/1.1\r\n\r\n")
        });
        let code = loopback.wait("s", "i", Instant::now() + Duration::from_secs(20)).unwrap();
        assert_eq!(*code, "c");
        assert!(sender.join().unwrap().contains("You are signed in"));
        assert!(loopback.wait("s", "i", Instant::now()).is_err());
    }
}
