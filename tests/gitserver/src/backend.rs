//! `git http-backend` as what it is: a CGI program.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use hyper::http::request::Parts;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// What the program answered.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// Runs `git http-backend` on the repositories in `root` for one request.
pub(crate) async fn run(root: &Path, parts: &Parts, user: Option<&str>, body: Vec<u8>) -> Result<Answer> {
    let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
    let mut command = Command::new("git");
    command.arg("http-backend").env_clear();
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    crate::repository::isolate(root, |name, value| {
        command.env(name, value);
    });
    command
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("REQUEST_METHOD", parts.method.as_str())
        .env("PATH_INFO", parts.uri.path())
        .env("QUERY_STRING", parts.uri.query().unwrap_or_default())
        .env("CONTENT_TYPE", header("content-type").unwrap_or_default())
        .env("CONTENT_LENGTH", body.len().to_string())
        .env("REMOTE_ADDR", "127.0.0.1");
    for (from, to) in [
        ("git-protocol", "GIT_PROTOCOL"),
        ("git-protocol", "HTTP_GIT_PROTOCOL"),
        ("content-encoding", "HTTP_CONTENT_ENCODING"),
    ] {
        if let Some(value) = header(from) {
            command.env(to, value);
        }
    }
    if let Some(user) = user {
        // Who is logged in may push.
        command.env("REMOTE_USER", user);
    }
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("running `git http-backend`")?;
    let mut stdin = child.stdin.take().context("no stdin")?;
    let write = async move {
        // It may end without reading everything, which is its right.
        let _ = stdin.write_all(&body).await;
        drop(stdin);
    };
    let ((), output) = tokio::join!(write, child.wait_with_output());
    let output = output?;
    if output.stdout.is_empty() {
        bail!("git http-backend: {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    parse(&output.stdout)
}

fn parse(output: &[u8]) -> Result<Answer> {
    let end =
        output.windows(4).position(|window| window == b"\r\n\r\n").context("no headers in a CGI answer")?;
    let mut answer = Answer { status: 200, headers: Vec::new(), body: output[end + 4..].to_vec() };
    for line in std::str::from_utf8(&output[..end])?.lines() {
        let (name, value) = line.split_once(": ").with_context(|| format!("a CGI header `{line}`"))?;
        if name.eq_ignore_ascii_case("status") {
            answer.status = value.split(' ').next().unwrap_or_default().parse()?;
        } else {
            answer.headers.push((name.to_owned(), value.to_owned()));
        }
    }
    Ok(answer)
}
