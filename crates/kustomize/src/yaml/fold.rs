//! Folded blocks (`>`), which kustomize writes out once more before it reads their values.
//!
//! go-yaml's writer looks at the start of the text where it means the start of the next line. So a line break before a
//! deeper line comes out as two; and in a text that starts with a space, single breaks are lost.

use super::facts::has_unprintable;

/// Is a block written in quotes? So is a text with a space at the end of a line or that cannot be printed.
pub(super) fn is_quoted(text: &str) -> bool {
    text.ends_with(' ') || text.contains(" \n") || has_unprintable(text)
}

/// What is left of a folded text once go-yaml has written and read it again.
pub(super) fn refold(text: &str) -> String {
    if !text.contains('\n') || is_quoted(text) {
        return text.to_owned();
    }
    let doubles = text.trim_start_matches('\n').chars().next().is_some_and(|c| !is_blank(c));
    let mut out = String::with_capacity(text.len() + 8);
    let mut rest = text;
    loop {
        let line_end = rest.find('\n').unwrap_or(rest.len());
        let (line, tail) = rest.split_at(line_end);
        out.push_str(line);
        let next = tail.trim_start_matches('\n');
        let breaks = tail.len() - next.len();
        if breaks == 0 {
            return out;
        }
        let plain_line = line.chars().next().is_some_and(|c| !is_blank(c));
        let written = breaks + usize::from(plain_line && doubles);
        if next.is_empty() {
            // One break at the end is a matter of course; of several, all are kept.
            let kept = if breaks == 1 { 1 } else { written };
            out.extend(std::iter::repeat_n('\n', kept));
            return out;
        }
        if line.is_empty() || !plain_line || next.starts_with(is_blank) {
            out.extend(std::iter::repeat_n('\n', written));
        } else if written == 1 {
            out.push(' ');
        } else {
            out.extend(std::iter::repeat_n('\n', written - 1));
        }
        rest = next;
    }
}

fn is_blank(c: char) -> bool {
    c == ' ' || c == '\t'
}

#[cfg(test)]
mod tests {
    use super::refold;

    #[test]
    fn breaks_before_deeper_lines_are_doubled() {
        assert_eq!(refold("a\n  b\nc\n"), "a\n\n  b\nc\n");
        assert_eq!(refold("a\nb\n"), "a\nb\n");
        assert_eq!(refold("a\n\n"), "a\n\n\n");
        assert_eq!(refold("a b"), "a b");
    }

    #[test]
    fn breaks_are_lost_after_a_space_at_the_start() {
        assert_eq!(refold(" a\nb\nc\n"), " a\nb c\n");
    }
}
