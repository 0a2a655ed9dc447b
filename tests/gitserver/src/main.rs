//! Serves a folder of Git repositories over HTTPS or HTTP, for the demo.
//!
//! `gitserver --root DIR --listen 127.0.0.1:8443 --ca-dir DIR --user demo --password-file FILE --publish app.git=DIR`

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Parser;
use roadstead_test_gitserver::{Commit, GitServer, Options, Repository, init_bare, install_crypto};

/// A Git server with a certificate authority of its own.
#[derive(Debug, Parser)]
#[command(name = "gitserver")]
struct Arguments {
    /// The folder of bare repositories; each is served by its name. Made if there is none.
    #[arg(long)]
    root: PathBuf,
    /// Address and port.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Serve over plain HTTP.
    #[arg(long)]
    http: bool,
    /// The folder where the authority is kept: `ca.pem` for clients to trust, `ca.key`. Made if there is none.
    #[arg(long, required_unless_present = "http")]
    ca_dir: Option<PathBuf>,
    /// Further names in the server's certificate.
    #[arg(long = "name")]
    names: Vec<String>,
    /// Who may read and push.
    #[arg(long, requires = "password_file")]
    user: Option<String>,
    /// The file that holds the password: arguments can be seen by everyone on the machine.
    #[arg(long, requires = "user")]
    password_file: Option<PathBuf>,
    /// `NAME=FOLDER`: a repository made from a folder's files, if it does not exist yet.
    #[arg(long = "publish", value_parser = name_and_folder)]
    publish: Vec<(String, PathBuf)>,
}

fn name_and_folder(text: &str) -> Result<(String, PathBuf), String> {
    let (name, folder) = text.split_once('=').ok_or("want NAME=FOLDER")?;
    if name.is_empty() || name.contains('/') || name.starts_with('.') {
        return Err(format!("`{name}` is not a plain name"));
    }
    Ok((name.to_owned(), PathBuf::from(folder)))
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    install_crypto();
    std::fs::create_dir_all(&arguments.root)?;
    let root = arguments.root.canonicalize().with_context(|| format!("{}", arguments.root.display()))?;
    for (name, folder) in &arguments.publish {
        let path = root.join(name);
        if path.exists() {
            continue;
        }
        let repository: Repository = init_bare(&path)?;
        repository.commit("main", "Publish", &Commit::new().folder(folder)?)?;
    }
    let login = match (arguments.user, arguments.password_file) {
        (Some(user), Some(file)) => {
            let password = std::fs::read_to_string(&file).with_context(|| format!("{}", file.display()))?;
            Some((user, password.trim_end().to_owned()))
        }
        _ => None,
    };
    let mut names = arguments.names;
    names.push("localhost".to_owned());
    let options = Options {
        listen: arguments.listen,
        root: Some(root),
        tls: !arguments.http,
        authority: arguments.ca_dir,
        names,
        login,
        ..Options::default()
    };
    let server = GitServer::start(options).await?;
    // Not println!, which panics when nobody reads.
    let _ = writeln!(std::io::stdout(), "serving {}", server.base_url());
    server.serve().await
}
