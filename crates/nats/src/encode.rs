//! What is said to a server.

use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use crate::decode::Info;
use crate::error::PublishError;
use crate::login::Login;
use crate::publish::Message;
use crate::subject::Subject;

/// Whether one is there.
pub(crate) const PING: &[u8] = b"PING\r\n";
/// That one is.
pub(crate) const PONG: &[u8] = b"PONG\r\n";

/// As whom one comes, and the question whether that is taken. The server answers what it does not take, and else with a pong.
pub(crate) fn connect(
    info: &Info,
    login: &Login,
    is_secure: bool,
) -> Result<Zeroizing<Vec<u8>>, PublishError> {
    let mut options = json!({
        "verbose": false, "pedantic": false, "tls_required": is_secure, "lang": "rust", "name": "roadstead",
        "version": env!("CARGO_PKG_VERSION"), "protocol": 1, "echo": false, "headers": info.headers,
        "no_responders": false,
    });
    let nonce = || info.nonce.as_deref().filter(|nonce| !nonce.is_empty()).ok_or(PublishError::NoNonce);
    if let Value::Object(options) = &mut options {
        let mut put = |name: &str, value: &str| options.insert(name.to_owned(), value.into());
        // Exposed to be sent.
        match login {
            Login::Nobody => {}
            Login::Password { username, password } => {
                put("user", username);
                put("pass", password.expose());
            }
            Login::Token(token) => {
                put("auth_token", token.expose());
            }
            Login::Key(key) => {
                put("nkey", &key.public());
                put("sig", &key.sign(nonce()?));
            }
            Login::Credentials { jwt, key } => {
                put("jwt", jwt.expose());
                put("sig", &key.sign(nonce()?));
            }
        }
    }
    let mut said = Zeroizing::new(Vec::with_capacity(1 << 10));
    said.extend_from_slice(b"CONNECT ");
    // Texts, numbers and maps with texts as keys always have a JSON form.
    said.extend_from_slice(&Zeroizing::new(serde_json::to_vec(&options).unwrap_or_default()));
    wipe(options);
    said.extend_from_slice(b"\r\n");
    said.extend_from_slice(PING);
    Ok(said)
}

/// The texts were copies of what is secret.
fn wipe(options: Value) {
    if let Value::Object(options) = options {
        for (_, value) in <Map<String, Value> as IntoIterator>::into_iter(options) {
            if let Value::String(text) = value {
                drop(Zeroizing::new(text));
            }
        }
    }
}

/// A message, and the question whether it was looked at.
pub(crate) fn publish(
    info: &Info,
    subject: &Subject,
    message: &Message<'_>,
) -> Result<Vec<u8>, PublishError> {
    let head = if info.headers && !message.headers.is_empty() { headers(message) } else { Vec::new() };
    let size = head.len() + message.body.len();
    if let Some(most) = info.max_payload.filter(|most| *most > 0 && size as u64 > *most) {
        return Err(PublishError::TooLarge { bytes: size, most });
    }
    let line = if head.is_empty() {
        format!("PUB {subject} {size}\r\n")
    } else {
        format!("HPUB {subject} {} {size}\r\n", head.len())
    };
    let mut said = Vec::with_capacity(line.len() + size + 2 + PING.len());
    said.extend_from_slice(line.as_bytes());
    said.extend_from_slice(&head);
    said.extend_from_slice(message.body);
    said.extend_from_slice(b"\r\n");
    said.extend_from_slice(PING);
    Ok(said)
}

/// Headers as they stand before a message. What would end one is left out.
fn headers(message: &Message<'_>) -> Vec<u8> {
    let mut head = String::from("NATS/1.0\r\n");
    for (name, value) in message.headers {
        let value: String = value.chars().filter(|c| !c.is_control()).collect();
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    head.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";

    fn said(info: &Info, login: &Login) -> Value {
        let said = connect(info, login, true).unwrap();
        let text = std::str::from_utf8(&said).unwrap();
        let options = text.strip_prefix("CONNECT ").unwrap().strip_suffix("\r\nPING\r\n").unwrap();
        assert!(!options.contains('\n'));
        serde_json::from_str(options).unwrap()
    }

    #[test]
    fn each_login_is_said_in_its_own_way() {
        let info = Info { nonce: Some("nonce".to_owned()), headers: true, ..Info::default() };
        let nobody = said(&info, &Login::Nobody);
        assert!(nobody["headers"] == true && nobody["tls_required"] == true && nobody["user"].is_null());
        let login = Login::Password { username: "u\r\n".to_owned(), password: "p\"".into() };
        let by_name = said(&info, &login);
        assert!(by_name["user"] == "u\r\n" && by_name["pass"] == "p\"");
        assert_eq!(said(&info, &Login::Token("t".into()))["auth_token"], "t");
        let key = said(&info, &Login::of_seed(SEED).unwrap());
        assert!(key["nkey"].as_str().is_some_and(|key| key.starts_with("UDXU4RCS")));
        assert!(key["sig"].as_str().is_some_and(|sig| sig.len() == 86) && !key.to_string().contains("SUACS"));
        for nonce in [None, Some(String::new())] {
            let none = Info { nonce, ..Info::default() };
            let refused = connect(&none, &Login::of_seed(SEED).unwrap(), true);
            assert!(matches!(refused, Err(PublishError::NoNonce)));
        }
    }

    #[test]
    fn a_message_has_headers_where_the_server_knows_them() {
        let subject = Subject::parse("a.b").unwrap();
        let headers = [("Nats-Msg-Id", "1\r\nEvil: x".to_owned())];
        let message = Message { headers: &headers, body: b"{}" };
        let plain = publish(&Info::default(), &subject, &message).unwrap();
        assert_eq!(plain, b"PUB a.b 2\r\n{}\r\nPING\r\n");
        let knows = Info { headers: true, ..Info::default() };
        let with = publish(&knows, &subject, &message).unwrap();
        let expected = "HPUB a.b 35 37\r\nNATS/1.0\r\nNats-Msg-Id: 1Evil: x\r\n\r\n{}\r\nPING\r\n";
        assert_eq!(String::from_utf8(with).unwrap(), expected);
    }

    #[test]
    fn a_message_that_the_server_does_not_take_is_not_sent() {
        let subject = Subject::parse("a").unwrap();
        let message = Message { headers: &[], body: &[b'x'; 11] };
        let info = |most| Info { max_payload: Some(most), ..Info::default() };
        assert!(publish(&info(11), &subject, &message).is_ok());
        let refused = publish(&info(10), &subject, &message);
        assert!(matches!(refused, Err(PublishError::TooLarge { bytes: 11, most: 10 })));
        // None where it does not say.
        assert!(publish(&info(0), &subject, &message).is_ok());
    }
}
