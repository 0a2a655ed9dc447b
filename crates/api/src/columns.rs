//! The columns of `kubectl get`.

use jiff::Timestamp;
use serde_json::{Value, json};

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
    /// The first of these that is there.
    First(&'static [&'static str]),
    Entries(&'static str),
    Target,
    Object,
    Role,
    Subjects(&'static str),
    LastSeen,
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

const DATA: Column = Column {
    name: "Data",
    type_: "integer",
    format: "",
    description: "How many keys there are.",
    priority: 0,
    cell: Cell::Entries("/data"),
};
const READY: Column =
    column("Ready", "Whether the Ready condition holds.", 0, Cell::Condition("Ready", "status"));
const REVISION: Column =
    column("Revision", "The last artifact's revision.", 1, Cell::Pointer("/status/artifact/revision"));
const CREATED: &str = "When the object was created.";
const STATUS: Column =
    column("Status", "The Ready condition's message.", 0, Cell::Condition("Ready", "message"));

pub(crate) static KUSTOMIZATION: [Column; 6] = [
    NAME,
    READY,
    STATUS,
    column("Cluster", "The cluster that is applied to.", 0, Cell::Target),
    AGE,
    column("Revision", "The last applied revision.", 1, Cell::Pointer("/status/lastAppliedRevision")),
];
const URL: Column = column("URL", "The repository's URL.", 0, Cell::Pointer("/spec/url"));

/// As Flux's definition of the kind has them, as for all kinds of sources; with `-o wide` there is the revision besides.
pub(crate) static GIT_REPOSITORY: [Column; 6] = [NAME, URL, AGE, READY, STATUS, REVISION];
pub(crate) static OCI_REPOSITORY: [Column; 6] = [NAME, URL, READY, STATUS, AGE, REVISION];
pub(crate) static HELM_REPOSITORY: [Column; 6] = [NAME, URL, AGE, READY, STATUS, REVISION];
pub(crate) static CLUSTER: [Column; 6] = [
    NAME,
    column("Connected", "Whether the cluster's agent is connected.", 0, Cell::Condition("Ready", "status")),
    column("Kubernetes", "Version of the API server.", 0, Cell::Pointer("/status/kubernetesVersion")),
    column("Agent", "Version of the agent.", 0, Cell::Pointer("/status/agentVersion")),
    AGE,
    column("Status", "The Ready condition's message.", 1, Cell::Condition("Ready", "message")),
];
pub(crate) static MANAGEMENT_CLUSTER: [Column; 5] = [
    NAME,
    READY,
    column("Clusters", "How many Clusters it shows.", 0, Cell::Pointer("/status/clusters")),
    STATUS,
    AGE,
];
pub(crate) static SECRET: [Column; 4] =
    [NAME, column("Type", "What the data is for.", 0, Cell::Pointer("/type")), DATA, AGE];
pub(crate) static NAMESPACE: [Column; 3] =
    [NAME, column("Status", "The phase of the namespace.", 0, Cell::Pointer("/status/phase")), AGE];

pub(crate) static CONFIG_MAP: [Column; 3] = [NAME, DATA, AGE];
pub(crate) static SERVICE_ACCOUNT: [Column; 2] = [NAME, AGE];
pub(crate) static EVENT: [Column; 9] = [
    column("Last Seen", "Time since it last happened.", 0, Cell::LastSeen),
    column("Type", "Normal or Warning.", 0, Cell::Pointer("/type")),
    column("Reason", "Why it happened, in a word.", 0, Cell::Pointer("/reason")),
    column("Object", "The object that it is about.", 0, Cell::Object),
    column(
        "Subobject",
        "The part of the object that it is about.",
        1,
        Cell::First(&["/involvedObject/fieldPath", "/regarding/fieldPath"]),
    ),
    column(
        "Source",
        "Who reported it.",
        1,
        Cell::First(&[
            "/source/component",
            "/deprecatedSource/component",
            "/reportingController",
            "/reportingComponent",
        ]),
    ),
    column("Message", "What happened.", 0, Cell::First(&["/message", "/note"])),
    column("Count", "How often it happened.", 1, Cell::First(&["/count", "/deprecatedCount"])),
    Column { priority: 1, ..NAME },
];
pub(crate) static ROLE: [Column; 2] =
    [NAME, column("Created At", CREATED, 0, Cell::Pointer("/metadata/creationTimestamp"))];
pub(crate) static ROLE_BINDING: [Column; 6] = [
    NAME,
    column("Role", "The role that is given.", 0, Cell::Role),
    AGE,
    column("Users", "The users that it is given to.", 1, Cell::Subjects("User")),
    column("Groups", "The groups that it is given to.", 1, Cell::Subjects("Group")),
    column(
        "ServiceAccounts",
        "The service accounts that it is given to.",
        1,
        Cell::Subjects("ServiceAccount"),
    ),
];
pub(crate) static BUCKET: [Column; 6] = [
    NAME,
    column("Endpoint", "Where the bucket is.", 0, Cell::Pointer("/spec/endpoint")),
    AGE,
    READY,
    STATUS,
    REVISION,
];
pub(crate) static HELM_CHART: [Column; 9] = [
    NAME,
    column("Chart", "The chart's name.", 0, Cell::Pointer("/spec/chart")),
    column("Version", "The version that is wanted.", 0, Cell::Pointer("/spec/version")),
    column("Source Kind", "The kind of the source.", 0, Cell::Pointer("/spec/sourceRef/kind")),
    column("Source Name", "The name of the source.", 0, Cell::Pointer("/spec/sourceRef/name")),
    AGE,
    READY,
    STATUS,
    REVISION,
];
pub(crate) static EXTERNAL_ARTIFACT: [Column; 6] = [
    NAME,
    AGE,
    READY,
    STATUS,
    column("Source", "What the artifact is made of.", 0, Cell::Pointer("/spec/sourceRef/name")),
    REVISION,
];
pub(crate) static PROVIDER: [Column; 5] =
    [NAME, column("Type", "What events are sent to.", 0, Cell::Pointer("/spec/type")), AGE, READY, STATUS];
pub(crate) static ALERT: [Column; 5] = [
    NAME,
    column("Provider", "What events are sent to.", 0, Cell::Pointer("/spec/providerRef/name")),
    AGE,
    READY,
    STATUS,
];
pub(crate) static SILENCE: [Column; 6] = [
    NAME,
    column("From", "When it begins.", 0, Cell::Pointer("/spec/from")),
    column("Until", "When it ends.", 0, Cell::Pointer("/spec/until")),
    column("Schedule", "When its windows begin.", 0, Cell::Pointer("/spec/schedule/cron")),
    column("Author", "Who wrote it.", 0, Cell::Pointer("/spec/author")),
    column("Reason", "Why.", 0, Cell::Pointer("/spec/reason")),
];
/// Of what has nothing to show but that it is there.
pub(crate) static BARE: [Column; 2] = [NAME, AGE];
/// Of Receivers and ArtifactGenerators.
pub(crate) static PLAIN: [Column; 4] = [NAME, AGE, READY, STATUS];

impl Column {
    /// What stands in this column for an object (of any version).
    #[must_use]
    pub fn cell(&self, object: &Value, now: Timestamp) -> Value {
        match self.cell {
            Cell::Pointer(pointer) => at(object, pointer).cloned().unwrap_or_else(|| "".into()),
            Cell::First(pointers) => {
                let mut found = pointers.iter().filter_map(|pointer| at(object, pointer));
                found.find(|value| *value != "").cloned().unwrap_or_else(|| "".into())
            }
            Cell::Object => {
                let about = at(object, "/involvedObject").or_else(|| at(object, "/regarding"));
                let text = |field: &str| about.and_then(|about| about[field].as_str()).unwrap_or_default();
                format!("{}/{}", text("kind").to_lowercase(), text("name")).into()
            }
            Cell::Role => {
                let role = &object["roleRef"];
                let text = |field: &str| role[field].as_str().unwrap_or_default();
                format!("{}/{}", text("kind"), text("name")).into()
            }
            Cell::Subjects(kind) => subjects(&object["subjects"], kind).into(),
            Cell::LastSeen => since(
                ["/series/lastObservedTime", "/lastTimestamp", "/deprecatedLastTimestamp", "/eventTime"]
                    .iter()
                    .find_map(|pointer| at(object, pointer)),
                now,
            ),
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
            Cell::Age => since(object.pointer("/metadata/creationTimestamp"), now),
        }
    }
}

fn at<'a>(object: &'a Value, pointer: &str) -> Option<&'a Value> {
    object.pointer(pointer).filter(|value| !value.is_null())
}

fn since(time: Option<&Value>, now: Timestamp) -> Value {
    let time = time.and_then(Value::as_str).and_then(|text| text.parse().ok());
    time.map_or_else(|| "<unknown>".into(), |time| age(now, time).into())
}

/// The names of a binding's subjects of a kind, service accounts with their namespace.
fn subjects(subjects: &Value, kind: &str) -> String {
    let of_kind = subjects.as_array().into_iter().flatten().filter(|subject| subject["kind"] == kind);
    let names = of_kind.map(|subject| {
        let name = subject["name"].as_str().unwrap_or_default();
        match subject["namespace"].as_str().filter(|namespace| !namespace.is_empty()) {
            Some(namespace) if kind == "ServiceAccount" => format!("{namespace}/{name}"),
            _ => name.to_owned(),
        }
    });
    names.collect::<Vec<_>>().join(", ")
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
