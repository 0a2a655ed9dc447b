//! What a server says.

use serde::Deserialize;

/// Bytes of a line: `INFO` names all servers of a cluster.
pub const MAX_LINE: usize = 64 << 10;

/// Something a server says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Who it is, and what it wants.
    Info(Info),
    /// It wants to know whether one is there.
    Ping,
    /// All that was sent before the ping was looked at.
    Pong,
    /// It took something.
    Ok,
    /// It did not.
    Err(Refusal),
}

/// Who a server is, as far as it counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Info {
    /// Bytes of a message.
    pub max_payload: Option<u64>,
    /// Whether messages may have headers.
    pub headers: bool,
    /// Whether it goes on over TLS.
    pub tls_required: bool,
    /// Whether it may go on over TLS.
    pub tls_available: bool,
    /// What a key is to sign.
    pub nonce: Option<String>,
}

/// What a server does not take. It is known by its first words; what follows them may repeat what was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The login.
    Login,
    /// That something is published to the subject.
    Subject,
    /// A message of that size.
    Size,
    /// A connection that is not over TLS.
    Clear,
    /// One more connection.
    Connection,
    /// Something else.
    Other,
}

/// It is not what a NATS server says to who publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not what a NATS server says")]
pub struct Unreadable;

/// Reads what a server says, in whichever pieces it comes.
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: Vec<u8>,
    /// Up to there no line ends.
    searched: usize,
}

impl Decoder {
    /// Adds what was read.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Whether all that was added was read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The next thing that the server says; none where that is not whole yet.
    ///
    /// # Errors
    /// It is something else, or longer than [`MAX_LINE`].
    pub fn next_op(&mut self) -> Result<Option<Op>, Unreadable> {
        let Some(length) = self.bytes[self.searched..].iter().position(|byte| *byte == b'\n') else {
            self.searched = self.bytes.len();
            return if self.bytes.len() > MAX_LINE { Err(Unreadable) } else { Ok(None) };
        };
        let end = self.searched + length;
        if end > MAX_LINE {
            return Err(Unreadable);
        }
        let op = read(&self.bytes[..end])?;
        self.bytes.drain(..=end);
        self.searched = 0;
        Ok(Some(op))
    }
}

fn read(line: &[u8]) -> Result<Op, Unreadable> {
    let line = std::str::from_utf8(line).map_err(|_| Unreadable)?.trim_matches([' ', '\t', '\r']);
    let (name, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
    let is = |wanted: &str| name.eq_ignore_ascii_case(wanted);
    if is("INFO") {
        return serde_json::from_str(rest).map(Op::Info).map_err(|_| Unreadable);
    }
    if is("-ERR") {
        return Ok(Op::Err(Refusal::read(rest)));
    }
    match rest {
        "" if is("PING") => Ok(Op::Ping),
        "" if is("PONG") => Ok(Op::Pong),
        "" if is("+OK") => Ok(Op::Ok),
        // Messages are for who subscribes.
        _ => Err(Unreadable),
    }
}

impl Refusal {
    fn read(text: &str) -> Self {
        let text = text.trim().trim_matches('\'').to_ascii_lowercase();
        let begins = |words: &[&str]| words.iter().any(|words| text.starts_with(words));
        if begins(&[
            "authorization violation",
            "authentication",
            "user authentication",
            "account authentication",
        ]) {
            Self::Login
        } else if begins(&["permissions violation", "invalid publish subject", "invalid subject"]) {
            Self::Subject
        } else if begins(&["maximum payload"]) {
            Self::Size
        } else if begins(&["secure connection", "tls"]) {
            Self::Clear
        } else if begins(&["maximum connections", "maximum account"]) {
            Self::Connection
        } else {
            Self::Other
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All that is said, as far as it can be read.
    fn all(pieces: &[&[u8]]) -> (Vec<Op>, bool) {
        let (mut decoder, mut ops) = (Decoder::default(), Vec::new());
        for piece in pieces {
            decoder.push(piece);
            loop {
                match decoder.next_op() {
                    Ok(Some(op)) => ops.push(op),
                    Ok(None) => break,
                    Err(Unreadable) => return (ops, false),
                }
            }
        }
        (ops, true)
    }

    #[test]
    fn what_a_server_says_is_read() {
        let said = b"INFO {\"server_id\":\"x\",\"max_payload\":1048576,\"headers\":true,\"nonce\":\"n\",\"connect_urls\":[\"a:1\"]} \r\n\
            +OK\r\nping\r\n-ERR 'Authorization Violation'\r\nPONG\n";
        let (ops, readable) = all(&[said]);
        assert!(readable);
        let info = Info {
            max_payload: Some(1 << 20),
            headers: true,
            nonce: Some("n".to_owned()),
            ..Info::default()
        };
        assert_eq!(ops, [Op::Info(info), Op::Ok, Op::Ping, Op::Err(Refusal::Login), Op::Pong]);
    }

    #[test]
    fn refusals_are_known_by_their_first_words() {
        for (text, expected) in [
            ("'User Authentication Expired'", Refusal::Login),
            ("'Permissions Violation for Publish to \"a\"'", Refusal::Subject),
            ("'Maximum Payload Violation'", Refusal::Size),
            ("'Secure Connection - TLS Required'", Refusal::Clear),
            ("'maximum connections exceeded'", Refusal::Connection),
            ("'Stale Connection'", Refusal::Other),
            ("", Refusal::Other),
        ] {
            assert_eq!(Refusal::read(text), expected, "{text}");
        }
    }

    #[test]
    fn what_no_server_says_is_not_read() {
        for bad in [
            "HTTP/1.1 400 Bad Request\r\n",
            "\r\n",
            "INFO\r\n",
            "INFO {]\r\n",
            "INFO {\"max_payload\":-1}\r\n",
            "MSG a 1 5\r\n",
            "PONG 1\r\n",
            "SSH-2.0-OpenSSH\r\n",
        ] {
            assert!(!all(&[bad.as_bytes()]).1, "{bad:?}");
        }
        assert!(!all(&[b"PING\xff\n"]).1);
        let long = vec![b'x'; MAX_LINE];
        assert!(all(&[&long]).1);
        assert!(!all(&[&long, b"yz"]).1);
        assert!(!all(&[&long, b"y\n"]).1);
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(bytes: Vec<u8>, said in "(PING\r\n|PONG\n|\\+OK\r\n|-ERR 'x'\r\n|INFO \\{\\}\r\n){0,6}", at in 0..64_usize) {
            let mut whole = said.into_bytes();
            whole.extend_from_slice(&bytes);
            let at = at.min(whole.len());
            let one = all(&[&whole]);
            prop_assert_eq!(&one, &all(&[&whole[..at], &whole[at..]]));
            let single: Vec<&[u8]> = whole.chunks(1).collect();
            prop_assert_eq!(&one, &all(&single));
        }
    }
}
