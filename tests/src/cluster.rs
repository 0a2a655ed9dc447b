//! The run's clusters.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use serde_json::Value;
use tempfile::TempDir;

use crate::faulty_apiserver::FaultyApiserver;
use crate::given::variable;
use crate::kubectl::Kubectl;
use crate::proxy::Proxy;
use crate::unique::unique;

/// A cluster: mostly one of the run's two, which all tests share, each of them keeping to namespaces of its own.
#[derive(Debug, Clone)]
pub struct TestCluster {
    kubectl: Kubectl,
    /// The way that is always there.
    direct: Kubectl,
    /// With the kubeconfig, where the test made that.
    _folder: Option<Arc<TempDir>>,
}

impl TestCluster {
    /// The first.
    ///
    /// # Errors
    /// When the run has none.
    pub fn first() -> Result<Self> {
        Self::at("ROADSTEAD_TEST_KUBECONFIG_1")
    }

    /// The second.
    ///
    /// # Errors
    /// When the run has none.
    pub fn second() -> Result<Self> {
        Self::at("ROADSTEAD_TEST_KUBECONFIG_2")
    }

    fn at(name: &str) -> Result<Self> {
        Ok(Self::of(Kubectl::new(&PathBuf::from(variable(name)?))?))
    }

    /// The one that kubectl leads to.
    pub(crate) fn of(kubectl: Kubectl) -> Self {
        Self { direct: kubectl.clone(), kubectl, _folder: None }
    }

    /// The same cluster as whoever gets this kubeconfig reaches it: through a proxy, so that it can be taken away from
    /// one program and stays for the others.
    ///
    /// # Errors
    /// When its kubeconfig cannot be read or written.
    pub async fn through_proxy(&self) -> Result<(Self, Proxy)> {
        let text = self.kubectl.run(&["config", "view", "--raw", "--minify", "-o", "json"]).await?;
        let mut config: Value = serde_json::from_str(&text).context("read a kubeconfig")?;
        let server = &mut config["clusters"][0]["cluster"]["server"];
        let port = server.as_str().and_then(|server| server.rsplit(':').next()?.parse().ok());
        let proxy = Proxy::start(port.with_context(|| format!("{server} names a port"))?).await?;
        *server = format!("https://{}", proxy.address()).into();
        Ok((self.by(&config)?, proxy))
    }

    /// The same cluster as whoever gets this kubeconfig reaches it: by a face of its apiserver that answers what a test says.
    ///
    /// # Errors
    /// When its kubeconfig cannot be read or written.
    pub async fn with_faults(&self) -> Result<(Self, FaultyApiserver)> {
        let (faulty, config) = FaultyApiserver::start(&self.inline_kubeconfig("json").await?).await?;
        Ok((self.by(&config)?, faulty))
    }

    /// The same cluster, reached by another kubeconfig.
    fn by(&self, config: &Value) -> Result<Self> {
        let folder = tempfile::tempdir().context("make a folder for a kubeconfig")?;
        let path = folder.path().join("kubeconfig");
        std::fs::write(&path, config.to_string()).context("write a kubeconfig")?;
        let kubectl = Kubectl::new(&path)?;
        Ok(Self { kubectl, direct: self.direct.clone(), _folder: Some(Arc::new(folder)) })
    }

    /// kubectl as the cluster's administrator.
    #[must_use]
    pub fn kubectl(&self) -> &Kubectl {
        &self.kubectl
    }

    /// The administrator's kubeconfig in this form (`yaml`, `json`), as Cluster API would write it: everything inline.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn inline_kubeconfig(&self, form: &str) -> Result<String> {
        self.kubectl.run(&["config", "view", "--raw", "--minify", "--flatten", "-o", form]).await
    }

    /// Makes a namespace for one test.
    ///
    /// # Errors
    /// When the cluster refuses.
    pub async fn namespace(&self, prefix: &str) -> Result<TestNamespace> {
        let namespace = self.later_namespace(prefix);
        self.kubectl.run(&["create", "namespace", namespace.name()]).await?;
        Ok(namespace)
    }

    /// Makes a namespace with the name of one on the other cluster.
    ///
    /// # Errors
    /// When the cluster refuses.
    pub async fn namespace_like(&self, other: &TestNamespace) -> Result<TestNamespace> {
        let namespace = TestNamespace { name: other.name.clone(), kubectl: self.kubectl.clone() };
        self.kubectl.run(&["create", "namespace", namespace.name()]).await?;
        Ok(namespace)
    }

    /// A namespace that the test's subject makes under this very name: for one test alone.
    #[must_use]
    pub fn named_namespace(&self, name: &str) -> TestNamespace {
        TestNamespace { name: name.to_owned(), kubectl: self.direct.clone() }
    }

    /// A name for a namespace that the test's subject makes.
    #[must_use]
    pub fn later_namespace(&self, prefix: &str) -> TestNamespace {
        TestNamespace { name: unique(prefix), kubectl: self.direct.clone() }
    }
}

/// A namespace of one test, deleted in the background when the value is dropped.
#[derive(Debug)]
pub struct TestNamespace {
    name: String,
    kubectl: Kubectl,
}

impl TestNamespace {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for TestNamespace {
    fn drop(&mut self) {
        // So that what a test leaves does not load the cluster for the others. Deleting takes seconds: not waited for.
        let args = ["delete", "namespace", &self.name, "--wait=false", "--ignore-not-found"];
        let mut command = self.kubectl.command(&args).into_std();
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let _ = command.status();
    }
}
