//! The context in a kubeconfig, beside whatever else is there.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::cache::replace;

const MAX_FILE: u64 = 4 << 20;
const LISTS: [&str; 3] = ["clusters", "users", "contexts"];

fn read(path: &Path) -> Result<Value> {
    let what = || format!("read the kubeconfig {}", path.display());
    match fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(json!({ "apiVersion": "v1", "kind": "Config" }));
        }
        Err(error) => return Err(error).with_context(what),
        Ok(file) if file.len() > MAX_FILE => bail!("{} is too large for a kubeconfig", path.display()),
        Ok(_) => {}
    }
    let text = fs::read_to_string(path).with_context(what)?;
    if text.trim().is_empty() {
        return Ok(json!({ "apiVersion": "v1", "kind": "Config" }));
    }
    // The parser's message may quote credentials.
    let config: Value = serde_saphyr::from_str(&text)
        .map_err(|_| anyhow::anyhow!("{} is not a readable kubeconfig", path.display()))?;
    let is_list = |name: &str| config[name].is_null() || config[name].is_array();
    if !config.is_object() || !LISTS.into_iter().all(is_list) {
        bail!("{} is not a kubeconfig", path.display());
    }
    Ok(config)
}

fn write(path: &Path, config: &Value) -> Result<()> {
    // A link stays one.
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if let Some(folder) = real.parent() {
        fs::create_dir_all(folder).with_context(|| format!("make the folder {}", folder.display()))?;
    }
    // JSON is YAML, and reads the same to every program that reads kubeconfigs.
    let text = serde_json::to_vec_pretty(config).context("write a kubeconfig")?;
    replace(&real, &text)
}

/// Puts something under its name into one of the lists.
fn put(config: &mut Value, list: &str, name: &str, field: &str, value: &Value) -> Result<()> {
    if config[list].is_null() {
        config[list] = json!([]);
    }
    let entries = config[list].as_array_mut().context("a list")?;
    entries.retain(|entry| entry["name"] != name);
    entries.push(json!({ "name": name, field: value }));
    Ok(())
}

/// Adds the context, and makes it the current one where there is none.
pub(super) fn add(path: &Path, name: &str, server: &str, ca: Option<&str>, cache: &Path) -> Result<()> {
    let mut config = read(path)?;
    // What somebody else made under this name is not ours to replace.
    let has = |list: &&str| config[*list].as_array().into_iter().flatten().any(|entry| entry["name"] == name);
    let is_foreign = cache_of(&config, name).is_none();
    if let Some(list) = LISTS.iter().find(|list| is_foreign && has(list)) {
        bail!(
            "{} has {name:?} among its {list}, and roadstead login did not make it: choose another --context",
            path.display()
        );
    }
    let mut cluster = json!({ "server": server });
    if let Some(ca) = ca {
        cluster["certificate-authority-data"] = STANDARD.encode(ca).into();
    }
    let program = std::env::current_exe().context("find this program")?;
    let exec = json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": program,
        "args": ["login", "token", "--cache", cache],
        "interactiveMode": "Never",
        "installHint": "install roadstead, and sign in with roadstead login",
    });
    put(&mut config, "clusters", name, "cluster", &cluster)?;
    put(&mut config, "users", name, "user", &json!({ "exec": exec }))?;
    put(&mut config, "contexts", name, "context", &json!({ "cluster": name, "user": name }))?;
    if config["current-context"].as_str().is_none_or(str::is_empty) {
        config["current-context"] = name.into();
    }
    write(path, &config)
}

/// Removes the context, and gives where its sign-in is kept; none where `roadstead login` made no such.
pub(super) fn remove(path: &Path, name: &str) -> Result<Option<PathBuf>> {
    let mut config = read(path)?;
    let Some(cache) = cache_of(&config, name) else { return Ok(None) };
    for list in LISTS {
        if let Some(entries) = config[list].as_array_mut() {
            entries.retain(|entry| entry["name"] != name);
        }
    }
    if config["current-context"] == name {
        config["current-context"] = "".into();
    }
    write(path, &config)?;
    Ok(Some(cache))
}

/// Where the sign-in of a user is kept that `roadstead login` made.
fn cache_of(config: &Value, name: &str) -> Option<PathBuf> {
    let user = config["users"].as_array()?.iter().find(|user| user["name"] == name)?;
    cache_of_exec(&user["user"]["exec"])
}

/// The same, of what a kubeconfig has to be run.
pub(crate) fn cache_of_exec(exec: &Value) -> Option<PathBuf> {
    match exec["args"].as_array()?.as_slice() {
        [login, token, flag, cache] if login == "login" && token == "token" && flag == "--cache" => {
            cache.as_str().map(PathBuf::from)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_context_comes_and_goes_and_all_else_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (path, cache) = (folder.path().join("kube/config"), Path::new("/state/a.json"));
        add(&path, "hub", "https://hub.test", Some("PEM"), cache).unwrap();
        let config = read(&path).unwrap();
        assert_eq!(config["current-context"], "hub");
        assert_eq!(config["users"][0]["user"]["exec"]["args"][3], "/state/a.json");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

        let other = "apiVersion: v1\nkind: Config\ncurrent-context: mine\nusers:\n- {name: mine, user: {token: t}}\n\
                     clusters:\n- {name: mine, cluster: {server: 'https://a', extensions: [{name: x}]}}\n\
                     contexts:\n- {name: mine, context: {cluster: mine, user: mine}}\npreferences: {colors: true}\n";
        fs::write(&path, other).unwrap();
        let before = read(&path).unwrap();
        for _ in 0..2 {
            add(&path, "hub", "https://hub.test", None, cache).unwrap();
        }
        let config = read(&path).unwrap();
        assert_eq!(config["current-context"], "mine", "it was chosen before");
        assert_eq!(LISTS.map(|list| config[list].as_array().unwrap().len()), [2, 2, 2]);
        assert!(add(&path, "mine", "https://hub.test", None, cache).is_err(), "somebody's user is replaced");
        let cluster = "clusters:\n- {name: theirs, cluster: {server: 'https://a'}}\n";
        let others = folder.path().join("others");
        fs::write(&others, cluster).unwrap();
        let error = add(&others, "theirs", "https://hub.test", None, cache).unwrap_err().to_string();
        assert!(error.contains("clusters"), "{error}");
        assert_eq!(fs::read_to_string(&others).unwrap(), cluster);
        assert_eq!(remove(&path, "mine").unwrap(), None);
        assert_eq!(remove(&path, "hub").unwrap().as_deref(), Some(cache));
        assert_eq!(read(&path).unwrap(), before);
        assert_eq!(remove(&path, "hub").unwrap(), None);
    }

    #[test]
    fn what_is_no_kubeconfig_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        for text in ["users: secret\n", "- a\n", "a: [\n", "users: {token: secret"] {
            fs::write(&path, text).unwrap();
            let error =
                format!("{:#}", add(&path, "hub", "https://hub.test", None, Path::new("/a")).unwrap_err());
            assert!(!error.contains("secret"), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }
}
