//! The way through a SOCKS5 proxy (RFC 1928), with a name and a password where there are some (RFC 1929). The proxy looks names up, as by
//! CONNECT.

use std::net::IpAddr;

use roadstead_model::Secret;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::host::{Authority, Host};

const VERSION: u8 = 5;
/// Of the sub-negotiation of a name and a password.
const LOGIN_VERSION: u8 = 1;
const CONNECT: u8 = 1;

const NO_LOGIN: u8 = 0;
const NAME_AND_PASSWORD: u8 = 2;

const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// How to log in. Each of the two has at most 255 bytes.
#[derive(Clone)]
pub(crate) struct Login {
    username: String,
    password: Secret,
}

impl Login {
    /// None where the protocol has no place for them.
    pub(crate) fn new(username: String, password: Secret) -> Option<Self> {
        let most = usize::from(u8::MAX);
        let fits = !username.is_empty() && username.len() <= most && password.expose().len() <= most;
        fits.then_some(Self { username, password })
    }
}

/// A text with its length before it.
fn put(to: &mut Vec<u8>, text: &str) -> Result<(), String> {
    let length = u8::try_from(text.len()).map_err(|_| "a text is too long for it".to_owned())?;
    to.push(length);
    to.extend_from_slice(text.as_bytes());
    Ok(())
}

/// Asks the proxy for a connection. The error says what it answered. Of what comes after the answer not a byte is read.
pub(crate) async fn ask_for(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    to: &Authority,
    login: Option<&Login>,
) -> Result<(), String> {
    greet(stream, login).await?;
    let mut request = vec![VERSION, CONNECT, 0];
    match &to.host {
        Host::Ip(IpAddr::V4(address)) => {
            request.push(IPV4);
            request.extend_from_slice(&address.octets());
        }
        Host::Ip(IpAddr::V6(address)) => {
            request.push(IPV6);
            request.extend_from_slice(&address.octets());
        }
        Host::Name(name) => {
            request.push(NAME);
            put(&mut request, name)?;
        }
    }
    request.extend_from_slice(&to.port.to_be_bytes());
    send(stream, &request).await?;
    let [version, answer, _, kind] = receive(stream).await?;
    if version != VERSION {
        return Err("its answer is not SOCKS5".to_owned());
    }
    if answer != 0 {
        return Err(format!("it answered {answer}: {}", meaning(answer)));
    }
    // The address that it connects from, which is of no account.
    let length = match kind {
        IPV4 => 4,
        IPV6 => 16,
        NAME => {
            let [length] = receive(stream).await?;
            usize::from(length)
        }
        _ => return Err("its answer is not SOCKS5".to_owned()),
    };
    let mut rest = vec![0; length + 2];
    stream.read_exact(&mut rest).await.map(drop).map_err(|_| closed())
}

/// Agrees on how to log in, and does.
async fn greet(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    login: Option<&Login>,
) -> Result<(), String> {
    let offered: &[u8] = match login {
        Some(_) => &[VERSION, 2, NO_LOGIN, NAME_AND_PASSWORD],
        None => &[VERSION, 1, NO_LOGIN],
    };
    send(stream, offered).await?;
    let [version, chosen] = receive(stream).await?;
    if version != VERSION {
        return Err("its answer is not SOCKS5".to_owned());
    }
    match (chosen, login) {
        (NO_LOGIN, _) => Ok(()),
        (NAME_AND_PASSWORD, Some(Login { username, password })) => {
            let mut request = vec![LOGIN_VERSION];
            put(&mut request, username)?;
            // The proxy that it is for asks for it.
            put(&mut request, password.expose())?;
            send(stream, &request).await?;
            match receive(stream).await? {
                [LOGIN_VERSION, 0] => Ok(()),
                [LOGIN_VERSION, _] => Err("it does not take the user name and password".to_owned()),
                _ => Err("its answer is not SOCKS5".to_owned()),
            }
        }
        (u8::MAX, None) => Err("it wants a user name and a password".to_owned()),
        (u8::MAX, Some(_)) => {
            Err("it wants another way to log in than a user name and a password".to_owned())
        }
        _ => Err("it wants a way to log in that it was not offered".to_owned()),
    }
}

fn meaning(answer: u8) -> &'static str {
    match answer {
        1 => "it failed",
        2 => "its rules do not allow it",
        3 => "the network cannot be reached",
        4 => "the host cannot be reached",
        5 => "the connection was refused",
        6 => "the packets lived too short",
        7 => "it does not connect",
        8 => "it does not know such addresses",
        _ => "which has no meaning",
    }
}

async fn send(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> Result<(), String> {
    stream.write_all(bytes).await.map_err(|error| error.to_string())
}

async fn receive<const N: usize>(stream: &mut (impl AsyncRead + Unpin)) -> Result<[u8; N], String> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).await.map_err(|_| closed())?;
    Ok(bytes)
}

fn closed() -> String {
    "it closed the connection".to_owned()
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;
    use crate::host::Scheme;

    fn to(host: &str) -> Authority {
        Authority { scheme: Scheme::Other, host: Host::parse(host).unwrap(), port: 0x1234 }
    }

    fn login() -> Login {
        Login::new("user".to_owned(), "hunter2".into()).unwrap()
    }

    /// What is sent to a proxy that says this, and what comes of it with what follows on the connection.
    async fn talk(host: &str, login: Option<&Login>, says: &[u8]) -> (Vec<u8>, Result<String, String>) {
        let (mut ours, mut theirs) = duplex(1 << 12);
        theirs.write_all(says).await.unwrap();
        theirs.shutdown().await.unwrap();
        let asked = ask_for(&mut ours, &to(host), login).await;
        let mut rest = String::new();
        if asked.is_ok() {
            ours.read_to_string(&mut rest).await.unwrap();
        }
        drop(ours);
        let mut sent = Vec::new();
        theirs.read_to_end(&mut sent).await.unwrap();
        (sent, asked.map(|()| rest))
    }

    #[tokio::test]
    async fn hosts_are_named_as_they_are_and_what_follows_is_kept() {
        for (host, named) in [
            ("git.example", [&[3, 11][..], b"git.example"].concat()),
            ("192.0.2.7", vec![1, 192, 0, 2, 7]),
            ("[2001:db8::1]", [&[4, 0x20, 1, 0x0d, 0xb8][..], &[0; 11], &[1]].concat()),
        ] {
            for from in [
                &[1, 0, 0, 0, 0, 0, 0][..],
                &[3, 2, b'a', b'b', 0, 0],
                &[4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            ] {
                let says = [&[5, 0, 5, 0, 0][..], from, b"SSH-2.0-x"].concat();
                let (sent, asked) = talk(host, None, &says).await;
                assert_eq!(asked.as_deref(), Ok("SSH-2.0-x"));
                assert_eq!(sent, [&[5, 1, 0, 5, 1, 0][..], &named, &[0x12, 0x34]].concat());
            }
        }
    }

    #[tokio::test]
    async fn a_password_is_shown_to_a_proxy_that_asks_for_it() {
        let granted = [5, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        let (sent, asked) = talk("h", Some(&login()), &[&[5, 2, 1, 0][..], &granted].concat()).await;
        assert_eq!(asked.as_deref(), Ok(""));
        assert_eq!(sent[..4], [5, 2, 0, 2]);
        assert_eq!(sent[4..18], *b"\x01\x04user\x07hunter2");
        let (sent, asked) = talk("h", Some(&login()), &[&[5, 0][..], &granted].concat()).await;
        assert!(asked.is_ok() && !String::from_utf8_lossy(&sent).contains("hunter2"), "{sent:?}");
        let long = "x".repeat(256);
        assert!(
            Login::new(long.clone(), "".into()).is_none()
                && Login::new("a".to_owned(), long.into()).is_none()
        );
        assert!(Login::new(String::new(), "a".into()).is_none());
    }

    #[tokio::test]
    async fn what_a_proxy_refuses_or_babbles_is_said() {
        let own = login();
        for (login, says, why) in [
            (None, &[5, 255][..], "it wants a user name and a password"),
            (None, &[5, 2], "it was not offered"),
            (Some(&own), &[5, 255], "another way to log in"),
            (Some(&own), &[5, 1], "it was not offered"),
            (Some(&own), &[5, 2, 1, 1], "does not take the user name"),
            (Some(&own), &[5, 2, 5, 0], "not SOCKS5"),
            (None, b"HTTP/1.1 400 Bad Request\r\n", "not SOCKS5"),
            (None, &[5, 0, 5, 2, 0, 1], "it answered 2: its rules do not allow it"),
            (None, &[5, 0, 5, 99, 0, 1], "it answered 99"),
            (None, &[5, 0, 4, 0, 0, 1, 0, 0, 0, 0, 0, 0], "not SOCKS5"),
            (None, &[5, 0, 5, 0, 0, 9], "not SOCKS5"),
            (None, &[5, 0, 5, 0, 0, 3, 200, 1], "closed"),
            (None, &[5], "closed"),
            (None, &[], "closed"),
        ] {
            let (_, asked) = talk("git.example", login, says).await;
            let told = asked.unwrap_err();
            assert!(told.contains(why) && !told.contains("hunter2"), "{says:?}: {told}");
        }
    }
}
