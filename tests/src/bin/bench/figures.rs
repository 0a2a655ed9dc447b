//! What is measured, and how it is shown.

use std::borrow::Cow;
use std::time::Duration;

use serde_json::{Map, Value, json};

/// One figure of one server.
#[derive(Debug, Clone)]
pub(crate) struct Figure {
    pub(crate) name: String,
    /// By unit.
    pub(crate) values: Vec<(Cow<'static, str>, f64)>,
}

impl Figure {
    /// Requests by many clients: how many a second, and how long each took.
    pub(crate) fn rate(name: &str, times: Vec<Duration>, took: Duration) -> Self {
        let rate = times.len() as f64 / took.as_secs_f64();
        let mut figure = Self::latency(name, times);
        figure.values.insert(0, ("per second".into(), rate));
        figure
    }

    /// How long each of some things took.
    pub(crate) fn latency(name: &str, mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |part: f64| {
            let index = ((times.len() as f64 * part) as usize).min(times.len().saturating_sub(1));
            times.get(index).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
        };
        let values = vec![("p50 ms".into(), at(0.5)), ("p99 ms".into(), at(0.99))];
        Self { name: name.to_owned(), values }
    }
}

/// A value of a figure, of each server.
struct Row {
    figure: String,
    unit: Cow<'static, str>,
    values: Vec<(String, f64)>,
}

/// All figures of all servers.
pub(crate) struct Report {
    machine: Value,
    figures: Vec<(String, Figure)>,
}

impl Report {
    pub(crate) fn new(machine: Value) -> Self {
        Self { machine, figures: Vec::new() }
    }

    pub(crate) fn add(&mut self, server: &str, figure: Figure) {
        let values: Vec<String> =
            figure.values.iter().map(|(unit, value)| format!("{value:.2} {unit}")).collect();
        eprintln!("  {}: {}", figure.name, values.join(", "));
        self.figures.push((server.to_owned(), figure));
    }

    fn rows(&self) -> Vec<Row> {
        let mut rows: Vec<Row> = Vec::new();
        for (server, figure) in &self.figures {
            for (unit, value) in &figure.values {
                let entry = (server.clone(), *value);
                match rows.iter_mut().find(|row| row.figure == figure.name && row.unit == *unit) {
                    Some(row) => row.values.push(entry),
                    None => rows.push(Row {
                        figure: figure.name.clone(),
                        unit: unit.clone(),
                        values: vec![entry],
                    }),
                }
            }
        }
        rows
    }

    pub(crate) fn print(&self) {
        println!("{}", self.machine);
        println!("{:<50} {:>14} {:>14} {:>14} {:>8}", "", "", "hub", "apiserver", "ratio");
        for Row { figure, unit, values } in self.rows() {
            let shown: Vec<String> = values.iter().map(|(_, value)| format!("{value:>14.2}")).collect();
            let ratio = match values.as_slice() {
                [(_, ours), (_, theirs)] => format!("{:>8.2}", ours / theirs),
                _ => String::new(),
            };
            println!("{figure:<50} {unit:>14} {} {ratio}", shown.join(" "));
        }
    }

    pub(crate) fn json(&self) -> String {
        let rows: Vec<Value> = self
            .rows()
            .into_iter()
            .map(|Row { figure, unit, values }| {
                let values: Map<String, Value> =
                    values.into_iter().map(|(server, value)| (server, json!(value))).collect();
                json!({ "figure": figure, "unit": unit, "values": values })
            })
            .collect();
        format!("{:#}\n", json!({ "machine": self.machine, "figures": rows }))
    }
}
