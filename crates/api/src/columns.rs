//! The columns of `kubectl get`.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kind::KindId;

/// A column of a table.
#[derive(Debug)]
pub struct Column {
    /// Its heading; kubectl shows it in capitals.
    pub name: &'static str,
    /// `string`, `integer` or `date`.
    pub type_: &'static str,
    /// `name` for the column of names.
    pub format: &'static str,
    /// What it shows.
    pub description: &'static str,
    /// 0 is always shown, 1 with `-o wide`.
    pub priority: i32,
    cell: Cell,
}

#[derive(Debug)]
enum Cell {
    Pointer(&'static str),
    Condition(&'static str, &'static str),
    Entries(&'static str),
    Target,
    Age,
}

const NAME: Column = Column {
    name: "Name",
    type_: "string",
    format: "name",
    description: "Name must be unique within a namespace.",
    priority: 0,
    cell: Cell::Pointer("/metadata/name"),
};
const AGE: Column = Column {
    name: "Age",
    type_: "string",
    format: "",
    description: "Time since the object was created.",
    priority: 0,
    cell: Cell::Age,
};

const fn column(name: &'static str, description: &'static str, priority: i32, cell: Cell) -> Column {
    Column { name, type_: "string", format: "", description, priority, cell }
}

const READY: Column =
    column("Ready", "Whether the Ready condition holds.", 0, Cell::Condition("Ready", "status"));
const STATUS: Column =
    column("Status", "The Ready condition's message.", 0, Cell::Condition("Ready", "message"));

static KUSTOMIZATION: [Column; 6] = [
    NAME,
    READY,
    STATUS,
    column("Cluster", "The cluster that is applied to.", 0, Cell::Target),
    AGE,
    column("Revision", "The last applied revision.", 1, Cell::Pointer("/status/lastAppliedRevision")),
];
static GIT_REPOSITORY: [Column; 6] = [
    NAME,
    column("URL", "The repository's URL.", 0, Cell::Pointer("/spec/url")),
    READY,
    STATUS,
    AGE,
    column("Revision", "The last artifact's revision.", 1, Cell::Pointer("/status/artifact/revision")),
];
static CLUSTER: [Column; 6] = [
    NAME,
    column("Connected", "Whether the cluster's agent is connected.", 0, Cell::Condition("Ready", "status")),
    column("Kubernetes", "Version of the API server.", 0, Cell::Pointer("/status/kubernetesVersion")),
    column("Agent", "Version of the agent.", 0, Cell::Pointer("/status/agentVersion")),
    AGE,
    column("Status", "The Ready condition's message.", 1, Cell::Condition("Ready", "message")),
];
static SECRET: [Column; 4] = [
    NAME,
    column("Type", "What the data is for.", 0, Cell::Pointer("/type")),
    Column {
        name: "Data",
        type_: "integer",
        format: "",
        description: "How many keys there are.",
        priority: 0,
        cell: Cell::Entries("/data"),
    },
    AGE,
];
static NAMESPACE: [Column; 3] =
    [NAME, column("Status", "The phase of the namespace.", 0, Cell::Pointer("/status/phase")), AGE];

/// The columns of a kind.
#[must_use]
pub fn columns(kind: KindId) -> &'static [Column] {
    match kind {
        KindId::Kustomization => &KUSTOMIZATION,
        KindId::GitRepository => &GIT_REPOSITORY,
        KindId::Cluster => &CLUSTER,
        KindId::Secret => &SECRET,
        KindId::Namespace => &NAMESPACE,
    }
}

impl Column {
    /// What stands in this column for an object (of any version).
    #[must_use]
    pub fn cell(&self, object: &Value, now: Timestamp) -> Value {
        match self.cell {
            Cell::Pointer(pointer) => match object.pointer(pointer) {
                Some(Value::Null) | None => "".into(),
                Some(value) => value.clone(),
            },
            Cell::Condition(type_, field) => object["status"]["conditions"]
                .as_array()
                .and_then(|conditions| conditions.iter().find(|condition| condition["type"] == type_))
                .map_or_else(|| "".into(), |condition| condition[field].clone()),
            Cell::Entries(pointer) => {
                json!(object.pointer(pointer).and_then(Value::as_object).map_or(0, serde_json::Map::len))
            }
            Cell::Target => {
                let spec = &object["spec"];
                let secret = spec["kubeConfig"]["secretRef"]["name"].as_str();
                let name = spec["clusterRef"]["name"]
                    .as_str()
                    .or_else(|| secret.map(|name| name.strip_suffix("-kubeconfig").unwrap_or(name)));
                name.unwrap_or_default().into()
            }
            Cell::Age => {
                let created =
                    object["metadata"]["creationTimestamp"].as_str().and_then(|text| text.parse().ok());
                created.map_or_else(|| "<unknown>".into(), |created| age(now, created).into())
            }
        }
    }
}

/// A time span as kubectl shows it: `45s`, `3m10s`, `7h`, `12d`, `2y30d`.
#[must_use]
pub fn age(now: Timestamp, then: Timestamp) -> String {
    let seconds = (now.as_second() - then.as_second()).max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    let two = |large: i64, unit: &str, small: i64, small_unit: &str| {
        if small == 0 { format!("{large}{unit}") } else { format!("{large}{unit}{small}{small_unit}") }
    };
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        () if hours < 3 => format!("{minutes}m"),
        () if hours < 8 => two(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if days < 8 => two(days, "d", hours % 24, "h"),
        () if days < 365 * 2 => format!("{days}d"),
        () if days < 365 * 8 => two(days / 365, "y", days % 365, "d"),
        () => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::age;
    use jiff::{SignedDuration, Timestamp};

    #[test]
    fn ages_read_as_kubectls_do() {
        let then = Timestamp::UNIX_EPOCH;
        for (seconds, want) in [
            (-5, "0s"),
            (119, "119s"),
            (190, "3m10s"),
            (600, "10m"),
            (3 * 3600 + 60, "3h1m"),
            (9 * 3600, "9h"),
            (3 * 86400 + 7200, "3d2h"),
            (100 * 86400, "100d"),
            (800 * 86400, "2y70d"),
        ] {
            assert_eq!(age(then + SignedDuration::from_secs(seconds), then), want);
        }
    }
}
