//! The line of a field, for messages. A second pass over a text that is wrong is cheaper than lines in all values.

use super::parse::{Event, Parser};

/// Deeper than this, no field is looked for.
const MAX_DEPTH: usize = 64;

/// One part of the name of a field.
enum Part<'f> {
    Key(&'f str),
    Index(usize),
}

/// A list or mapping that is still open.
struct Open {
    map: bool,
    /// Elements so far.
    count: usize,
    /// After a key: the parts of the name that lead to its value, if it is on the way.
    value: Option<Option<usize>>,
    /// The parts of the name that lead here, if this is on the way.
    parts: Option<usize>,
}

/// The line of a field as messages name it (`patches[0].target.name`), or of what is around it.
pub(crate) fn line_of(text: &[u8], field: &str) -> Option<usize> {
    let text = std::str::from_utf8(text).ok()?;
    let parts = split(field);
    let mut stack: Vec<Open> = Vec::new();
    let mut line = None;
    let mut parser = Parser::new(text, usize::MAX);
    while let Some((event, span)) = parser.next().ok()? {
        let at = span.start.line + 1;
        let (map, key) = match &event {
            Event::DocumentEnd => break,
            Event::SequenceEnd | Event::MappingEnd => {
                stack.pop();
                continue;
            }
            Event::Sequence { .. } => (Some(false), None),
            Event::Mapping { .. } => (Some(true), None),
            Event::Scalar { text, .. } => (None, Some(&**text)),
            Event::Alias(_) => (None, None),
            Event::End | Event::DocumentStart { .. } => continue,
        };
        let led = match stack.last_mut() {
            None => Some(0),
            Some(open) if open.map => match open.value.take() {
                Some(led) => led,
                None => {
                    let led = open.parts.filter(|at| match (parts.get(*at), key) {
                        (Some(Part::Key(wanted)), Some(key)) => wanted.eq_ignore_ascii_case(key),
                        _ => false,
                    });
                    line = led.map(|_| at).or(line);
                    open.value = Some(led.map(|at| at + 1));
                    if map.is_some() {
                        // A list or mapping as a key: no kustomization has one.
                        return line;
                    }
                    continue;
                }
            },
            Some(open) => {
                let index = open.count;
                open.count += 1;
                let led =
                    open.parts.filter(|at| matches!(parts.get(*at), Some(Part::Index(i)) if *i == index));
                line = led.map(|_| at).or(line);
                led.map(|at| at + 1)
            }
        };
        if let Some(map) = map {
            if stack.len() >= MAX_DEPTH {
                break;
            }
            stack.push(Open { map, count: 0, value: None, parts: led });
        }
    }
    line
}

/// The parts of a name. What comes after a colon or a space is not part of it.
fn split(field: &str) -> Vec<Part<'_>> {
    let field = field.split([':', ' ']).next().unwrap_or(field);
    let mut parts = Vec::new();
    for part in field.split('.') {
        let (key, indices) = part.split_at(part.find('[').unwrap_or(part.len()));
        parts.push(Part::Key(key));
        let numbers = indices.split(['[', ']']).filter_map(|index| index.parse().ok());
        parts.extend(numbers.map(Part::Index));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::line_of;

    #[test]
    fn lines_of_fields() {
        let text = "# a comment\nresources:\n- a.yaml\n- b.yaml\npatches:\n- path: x\n  target:\n    kind: A\n\
                    commonLabels: {a.b/c: d}\nimages: [{name: x},\n  {newTag: 1}]\n";
        for (field, line) in [
            ("resources", Some(2)),
            ("resources[1]", Some(4)),
            ("patches[0].target.kind", Some(8)),
            ("patches[0].target.none", Some(7)),
            ("patches[0]: target.name", Some(6)),
            ("commonLabels.a.b/c", Some(9)),
            ("Images[1].newTag", Some(11)),
            ("kustomization", None),
        ] {
            assert_eq!(line_of(text.as_bytes(), field), line, "{field}");
        }
        assert_eq!(line_of(b"a: [", "b"), None);
    }
}
