//! JSON as Go writes it: keys sorted, `<`, `>`, `&` and the two line separators of Unicode escaped. What it is written to
//! takes everything: a text, or a digest.

use crate::run::{self, Bytes};
use crate::value::{Map, Num, Value};

/// Takes a text bit by bit.
pub(crate) trait Sink {
    fn push_str(&mut self, text: &str);

    fn push(&mut self, c: char) {
        self.push_str(c.encode_utf8(&mut [0; 4]));
    }
}

impl Sink for String {
    fn push_str(&mut self, text: &str) {
        self.push_str(text);
    }

    fn push(&mut self, c: char) {
        self.push(c);
    }
}

/// Appends a value on one line.
pub(crate) fn write(out: &mut impl Sink, value: &Value) {
    put(out, value, None);
}

/// Appends a value with two spaces for each level.
pub(crate) fn write_pretty(out: &mut impl Sink, value: &Value) {
    put(out, value, Some(0));
}

/// Appends a mapping on one line.
pub(crate) fn write_map(out: &mut impl Sink, map: &Map) {
    put_map(out, map, None);
}

fn put(out: &mut impl Sink, value: &Value, indent: Option<usize>) {
    match value {
        Value::String(text) => write_text(out, text),
        Value::Map(map) => put_map(out, map, indent),
        Value::List(items) => {
            let inner = indent.map(|indent| indent + 1);
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                new_line(out, inner);
                put(out, item, inner);
            }
            if !items.is_empty() {
                new_line(out, indent);
            }
            out.push(']');
        }
        Value::Number(number) => match number.num {
            Num::Int(int) => out.push_str(&int.to_string()),
            Num::Uint(int) => out.push_str(&int.to_string()),
            Num::Float(float) => out.push_str(&float_text(float)),
        },
        Value::Null(_) | Value::Bool(_) => out.push_str(&value.to_json().to_string()),
    }
}

/// A float as Go's JSON has it: very small and very large ones have an exponent.
fn float_text(float: f64) -> String {
    const SMALL: f64 = 1e-6;
    const LARGE: f64 = 1e21;
    if float == 0.0 || (SMALL..LARGE).contains(&float.abs()) {
        return float.to_string();
    }
    let text = format!("{float:e}");
    if text.contains("e-") { text } else { text.replace('e', "e+") }
}

fn put_map(out: &mut impl Sink, map: &Map, indent: Option<usize>) {
    let inner = indent.map(|indent| indent + 1);
    out.push('{');
    for (i, (key, value)) in map.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        new_line(out, inner);
        write_text(out, key);
        out.push_str(if indent.is_some() { ": " } else { ":" });
        put(out, value, inner);
    }
    if !map.is_empty() {
        new_line(out, indent);
    }
    out.push('}');
}

fn new_line(out: &mut impl Sink, indent: Option<usize>) {
    if let Some(indent) = indent {
        out.push('\n');
        (0..indent).for_each(|_| out.push_str("  "));
    }
}

/// Appends a string.
pub(crate) fn write_text(out: &mut impl Sink, text: &str) {
    out.push('"');
    let mut rest = text;
    loop {
        // Most characters stand for themselves.
        let plain = run::len(rest.as_bytes(), &Bytes([b'"', b'\\', b'<', b'>', b'&', 0xe2], [(0, 0x1f)]));
        let (start, tail) = rest.split_at(plain);
        out.push_str(start);
        let Some(c) = tail.chars().next() else { break };
        rest = &tail[c.len_utf8()..];
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\x1f' => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats() {
        for (float, text) in [
            (1.5, "1.5"),
            (1e-6, "0.000001"),
            (1.5e-7, "1.5e-7"),
            (1e20, "100000000000000000000"),
            (-1.25e21, "-1.25e+21"),
            (0.1, "0.1"),
            (-0.0, "-0"),
            (5.0, "5"),
        ] {
            assert_eq!(float_text(float), text);
        }
    }

    #[test]
    fn pretty() {
        let value = Value::from_json(&serde_json::json!({"b": [1, {}], "a": "<", "c": []}));
        let mut out = String::new();
        write_pretty(&mut out, &value);
        assert_eq!(out, "{\n  \"a\": \"\\u003c\",\n  \"b\": [\n    1,\n    {}\n  ],\n  \"c\": []\n}");
    }
}
