//! Servers that are not what they should be.

use std::time::{Duration, Instant};

use roadstead_nats::{Login, PublishError, Refusal};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::To;

const INFO: &str = "INFO {\"max_payload\":1000,\"headers\":true}\r\n";

/// What a server does with a connection.
#[derive(Clone, Copy)]
enum Does {
    /// It says this at once, and nothing more.
    Says(&'static str),
    /// It says this and goes.
    Goes(&'static str),
    /// It says one thing without an end.
    Floods(&'static [u8]),
    /// It takes the login and then says this for each message.
    Takes(&'static str),
}

async fn server(does: Does) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("nats://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // Whoever goes away ends it.
            tokio::spawn(async move { serve(stream, does).await.ok() });
        }
    });
    address
}

async fn serve(mut stream: TcpStream, does: Does) -> std::io::Result<()> {
    match does {
        Does::Says(text) => {
            stream.write_all(text.as_bytes()).await?;
            std::future::pending::<()>().await;
        }
        Does::Goes(text) => stream.write_all(text.as_bytes()).await?,
        Does::Floods(piece) => loop {
            stream.write_all(piece).await?;
        },
        Does::Takes(answer) => {
            stream.write_all(INFO.as_bytes()).await?;
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            let mut pings = 0;
            while stream.read_line(&mut line).await? > 0 {
                if line.starts_with("PING") {
                    pings += 1;
                    let said = if pings == 1 { "PING\r\nPONG\r\n" } else { answer };
                    stream.get_mut().write_all(said.as_bytes()).await?;
                    if said.is_empty() {
                        return Ok(());
                    }
                }
                line.clear();
            }
        }
    }
    Ok(())
}

async fn told(does: Does) -> (Result<(), PublishError>, Duration) {
    let address = server(does).await;
    let to = To { patience: Duration::from_millis(700), ..To::new(&address) };
    let began = Instant::now();
    (to.publish("a", b"{}").await, began.elapsed())
}

#[tokio::test]
async fn what_hangs_floods_or_goes_costs_its_time_and_no_memory() {
    for (does, expected) in [
        (Does::Says(""), PublishError::Slow),
        (Does::Says("INFO {\"max_payload\""), PublishError::Slow),
        (Does::Says(INFO), PublishError::Slow),
        // An address of this machine is not public: what is there is told once it has said that it is a NATS server.
        (Does::Goes(""), PublishError::Unreachable),
        (Does::Goes("INFO {"), PublishError::Unreachable),
        (Does::Goes(INFO), PublishError::Closed),
        (Does::Says("HTTP/1.1 400 Bad Request\r\n\r\n"), PublishError::Unreachable),
        (Does::Says("PONG\r\n"), PublishError::Unreachable),
        (Does::Floods(&[b'x'; 16 << 10]), PublishError::Unreachable),
        (Does::Floods(b"INFO {}\r\n"), PublishError::NotNats),
        (Does::Takes("MSG a 1 5\r\n"), PublishError::NotNats),
        (Does::Takes(""), PublishError::Closed),
        (Does::Takes("+OK\r\n"), PublishError::Slow),
        (
            Does::Takes("-ERR 'Permissions Violation for Publish to \"canary\"'\r\nPONG\r\n"),
            PublishError::Refused(Refusal::Subject),
        ),
        (Does::Takes("-ERR 'Maximum Payload Violation'\r\n"), PublishError::Refused(Refusal::Size)),
    ] {
        let (came, took) = told(does).await;
        let why = came.unwrap_err();
        assert_eq!(why.to_string(), expected.to_string());
        assert!(took < Duration::from_secs(5), "{why}: {took:?}");
    }
    let (came, _) = told(Does::Takes("INFO {}\r\n+OK\r\nPING\r\nPONG\r\n")).await;
    came.unwrap();
}

#[tokio::test]
async fn a_message_larger_than_the_server_takes_is_not_sent() {
    let address = server(Does::Takes("PONG\r\n")).await;
    let why = To::new(&address).publish("a", &[b'x'; 2_000]).await.unwrap_err();
    assert!(why.is_of_message() && why.to_string().contains("the server takes 1000"), "{why}");
}

#[tokio::test]
async fn what_is_secret_is_not_said_in_the_clear() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("nats://{}", listener.local_addr().unwrap());
    let heard = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(INFO.as_bytes()).await.unwrap();
        let mut heard = String::new();
        stream.read_to_string(&mut heard).await.unwrap();
        heard
    });
    let login = Login::Token("canary".into());
    let why = To { login, ..To::new(&address) }.publish("a", b"{}").await.unwrap_err();
    assert!(why.to_string().contains("--allow-plain-http-credentials"), "{why}");
    assert_eq!(heard.await.unwrap(), "");
}

#[tokio::test]
async fn who_asks_for_tls_says_nothing_to_a_server_that_has_none() {
    let address = server(Does::Takes("PONG\r\n")).await.replace("nats://", "tls://");
    let why = To::new(&address).publish("a", b"{}").await.unwrap_err();
    assert!(matches!(why, PublishError::NoTls), "{why}");
    // What was said in the clear after INFO would be taken for something that was said over TLS.
    let injects = server(Does::Says("INFO {\"tls_required\":true}\r\nPONG\r\n")).await;
    let why = To::new(&injects).publish("a", b"{}").await.unwrap_err();
    assert!(matches!(why, PublishError::NotNats), "{why}");
}

#[tokio::test]
async fn an_address_that_is_not_allowed_is_not_connected_to() {
    let why = To::new("nats://127.0.0.2:4222").publish("a", b"{}").await.unwrap_err();
    assert!(why.to_string().contains("--allow-network notify="), "{why}");
}

#[tokio::test]
async fn the_next_server_is_asked_where_one_does_not_take_the_login() {
    let (away, takes) = (server(Does::Goes(INFO)).await, server(Does::Takes("PONG\r\n")).await);
    To::new(&format!("{away},{takes}")).publish("a", b"{}").await.unwrap();
    // But not for a message that may have been taken.
    let cuts = server(Does::Takes("")).await;
    let why = To::new(&format!("{cuts},{takes}")).publish("a", b"{}").await.unwrap_err();
    assert!(matches!(why, PublishError::Closed), "{why}");
}
