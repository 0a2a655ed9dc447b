//! What a body takes in memory is no more than it may: each decoder over shapes that make most of their bytes.

use peak_alloc::PeakAlloc;
use roadstead_body::{Body, BodyError, JSON, PROTOBUF, Patch, YAML, decode_apply, decode_within};

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

/// As large as a body may be.
const LARGE: usize = 3 << 20;
const MEMORY: usize = 32 << 20;

/// The most that is allocated while `read` runs, in bytes.
fn peak(read: impl FnOnce() -> Result<Body, BodyError>) -> usize {
    let before = ALLOCATED.current_usage();
    ALLOCATED.reset_peak_usage();
    let read = read();
    let peak = ALLOCATED.peak_usage() - before;
    drop(read);
    peak
}

/// `begin`, then `item` as often as it fits, then `end`.
fn filled(begin: &str, item: &str, end: &str) -> String {
    format!("{begin}{}{end}", item.repeat(LARGE.saturating_sub(begin.len() + end.len()) / item.len()))
}

fn keys(object: &str) -> String {
    let mut text = String::from("{");
    for number in 0.. {
        if text.len() + 40 > LARGE {
            break;
        }
        text.push_str(&format!("\"{number}\":{object},"));
    }
    text + "\"\":0}"
}

fn duplicates() -> String {
    let long = "k".repeat(LARGE - 2000);
    format!("{{\"{long}\":{{{}\"b\":1}}}}", "\"a\":1,".repeat(150))
}

#[test]
fn a_body_takes_no_more_memory_than_it_may() {
    let json = [
        filled("[", "0,", "0]"),
        filled("[", "[],", "0]"),
        filled("[", "[0],", "0]"),
        filled("[", "{},", "0]"),
        filled("[", "{\"\":0},", "0]"),
        filled("[", "\"\",", "0]"),
        filled("[", "\"\\n\",", "0]"),
        filled("\"", "\\u00e9", "\""),
        filled("[", &format!("{}{},", "[".repeat(100), "]".repeat(100)), "0]"),
        filled("[", &format!("{}0{},", "{\"\":".repeat(100), "}".repeat(100)), "0]"),
        keys("0"),
        keys("{\"\":{\"\":0}}"),
        duplicates(),
        filled("", "x", ""),
    ];
    let yaml = [
        filled("", "- \n", ""),
        filled("", "- {}\n", ""),
        filled("", "- {a}\n", ""),
        filled("", "- - - - - - - - a\n", ""),
        filled("[", "a,", "a]"),
        filled("[", "0,", "0]"),
        filled("[", "{\"\":0},", "0]"),
        filled("{", "{}: ,", "a}"),
        filled("a: |\n", "  x\n", ""),
        filled("a: ", "é", ""),
        format!("a: &a [{}]\nb: [{}]", "x,".repeat(1000), "*a,".repeat(1000)),
    ];
    for (form, texts) in [(JSON, json.as_slice()), (YAML, yaml.as_slice())] {
        for text in texts {
            let start: String = text.chars().take(30).collect();
            let bytes = text.as_bytes();
            let taken = peak(|| decode_within(form, bytes, MEMORY)).max(peak(|| decode_apply(bytes, MEMORY)));
            println!("{start:>30} {form:>20}: {:6.1} MiB", taken as f64 / 1_048_576.0);
            assert!(taken <= MEMORY, "{start} as {form} took {taken} bytes");
        }
    }
    for (start, text) in [("json", &json[4]), ("json", &json[12])] {
        let patch = "application/merge-patch+json";
        let taken =
            peak(|| Patch::read(patch, text.as_bytes(), MEMORY).map(|_| serde_json::Value::Null.into()));
        assert!(taken <= MEMORY, "{start} as a patch took {taken} bytes");
    }
    protobuf();
}

/// A message's field with its length.
fn field(number: u8, inner: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    let mut length = inner.len();
    while length >= 0x80 {
        field.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    field.push(length as u8);
    field.extend_from_slice(inner);
    field
}

fn protobuf() {
    let rbac = "rbac.authorization.k8s.io/v1";
    let many = |item: &[u8]| item.repeat(LARGE / item.len() - 100);
    for (version, kind, raw) in [
        ("v1", "Secret", field(1, &many(b"\x6a\x00"))),
        ("v1", "Secret", field(1, &many(b"\x72\x00"))),
        ("v1", "Secret", field(2, &many(b"\x00"))),
        ("v1", "ConfigMap", many(b"\x12\x02\x0a\x00")),
        ("v1", "ServiceAccount", many(b"\x12\x00")),
        (rbac, "Role", many(b"\x12\x00")),
        (rbac, "Role", field(2, &many(b"\x0a\x00"))),
        (rbac, "ClusterRole", field(3, &many(b"\x0a\x00"))),
        (rbac, "ClusterRole", field(3, &field(1, &many(b"\x12\x00")))),
        (rbac, "RoleBinding", many(b"\x12\x00")),
        ("v1", "DeleteOptions", many(b"\x2a\x00")),
    ] {
        let type_meta = [field(1, version.as_bytes()), field(2, kind.as_bytes())].concat();
        let body = [b"k8s\0".to_vec(), field(1, &type_meta), field(2, &raw)].concat();
        let taken = peak(|| decode_within(PROTOBUF, &body, MEMORY));
        println!("{kind:>30} {:>20}: {:6.1} MiB", "protobuf", taken as f64 / 1_048_576.0);
        assert!(taken <= MEMORY, "{kind} took {taken} bytes");
    }
}
