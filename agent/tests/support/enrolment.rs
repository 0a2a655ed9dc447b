//! The hub's enrolment endpoint for tests: just enough HTTP over real TLS.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use roadstead_model::ClusterUid;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::Pki;

/// An endpoint that takes one token, once.
pub struct Enrolment {
    pub address: SocketAddr,
    pub cluster: ClusterUid,
    /// The bodies that came.
    pub requests: Arc<Mutex<Vec<Value>>>,
}

impl Enrolment {
    /// Gives certificates for a new cluster, with `link` as the way to the hub.
    pub async fn start(pki: Arc<Pki>, token: &'static str, link: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let (certificate, key) = pki.servers.server_pem();
        let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).expect("a certificate")];
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
        let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).expect("TLS");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let cluster = ClusterUid::random();
        let requests: Arc<Mutex<Vec<Value>>> = Arc::default();
        let seen = Arc::clone(&requests);
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let answer = |request: &Value| {
                    let mut seen = seen.lock().expect("no panic");
                    seen.push(request.clone());
                    let is_used = seen.iter().filter(|request| request["token"] == token).count() > 1;
                    if request["token"] != token || is_used {
                        return (
                            401,
                            json!({"kind": "Status", "message": "the token is not known, used or expired"}),
                        );
                    }
                    let csr = request["csr"].as_str().expect("a request for a certificate");
                    let answer = json!({
                        "certificate": pki.agents.sign(csr, cluster),
                        "link": link.to_string(),
                        "clusterUid": cluster,
                        "clusterName": "edge-1",
                        "ca": pki.servers.pem(),
                    });
                    (200, answer)
                };
                serve(&acceptor, socket, answer).await;
            }
        });
        Self { address, cluster, requests }
    }
}

/// One request, one answer. What goes wrong here shows on the agent's side.
async fn serve(acceptor: &TlsAcceptor, socket: TcpStream, answer: impl Fn(&Value) -> (u16, Value)) {
    let Ok(mut stream) = acceptor.accept(socket).await else { return };
    let mut bytes = Vec::new();
    let body = loop {
        let mut part = [0; 4096];
        let Ok(length @ 1..) = stream.read(&mut part).await else { return };
        bytes.extend_from_slice(&part[..length]);
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        assert!(head.starts_with("post /fleet/v1/enrol http/1.1"), "{head}");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
        let length: usize = length.trim().parse().expect("a number");
        if bytes.len() >= end + 4 + length {
            break serde_json::from_slice::<Value>(&bytes[end + 4..]).expect("JSON");
        }
    };
    let (status, answer) = answer(&body);
    let answer = answer.to_string();
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        answer.len()
    );
    let _ = stream.write_all(head.as_bytes()).await;
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
}
