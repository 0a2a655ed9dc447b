//! Where an answer ends: Git's lines say their length, and one of no length ends what was asked for. Over HTTP an answer has
//! an end of its own; on an SSH channel the next one follows. Nothing else is read of it here.

/// Looks for the end of one answer in the bytes as they come.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// The digits of a line's length, as far as they came.
    digits: Vec<u8>,
    /// Bytes of the line that are still to come.
    left: usize,
}

/// These bytes are not Git's lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotLines;

impl Frames {
    /// Takes more bytes. Gives how many of them belong to the answer, once its end is among them.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<Option<usize>, NotLines> {
        let mut at = 0;
        while at < bytes.len() {
            if self.left > 0 {
                let count = self.left.min(bytes.len() - at);
                self.left -= count;
                at += count;
                continue;
            }
            self.digits.push(bytes[at]);
            at += 1;
            if self.digits.len() == 4 {
                let length = self.length()?;
                self.digits.clear();
                match length {
                    0 => return Ok(Some(at)),
                    // Ends a part of an answer.
                    1 => {}
                    4.. => self.left = length - 4,
                    _ => return Err(NotLines),
                }
            }
        }
        Ok(None)
    }

    /// Whether it is between two lines.
    pub(super) fn is_between_lines(&self) -> bool {
        self.left == 0 && self.digits.is_empty()
    }

    fn length(&self) -> Result<usize, NotLines> {
        if !self.digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(NotLines);
        }
        let digits = std::str::from_utf8(&self.digits).map_err(|_| NotLines)?;
        usize::from_str_radix(digits, 16).map_err(|_| NotLines)
    }
}

#[cfg(test)]
mod tests {
    use super::{Frames, NotLines};

    #[test]
    fn an_answer_ends_where_a_line_of_no_length_is() {
        // A line, a delimiter, and a line with zeros in it.
        let answer = b"000eversion 2\n0001000chello 000000";
        // However it comes.
        for size in 1..=answer.len() {
            let mut frames = Frames::default();
            let mut before = 0;
            let mut end = None;
            for bytes in answer.chunks(size) {
                assert_eq!(end, None, "{size}");
                end = frames.take(bytes).unwrap().map(|count| before + count);
                before += bytes.len();
            }
            assert_eq!(end, Some(answer.len()), "{size}");
        }
        let mut frames = Frames::default();
        assert_eq!(frames.take(b"0008abcd0000rest"), Ok(Some(12)));
        assert!(frames.is_between_lines());
        let mut frames = Frames::default();
        assert_eq!(frames.take(b"0008ab"), Ok(None));
        assert!(!frames.is_between_lines());
    }

    #[test]
    fn what_is_not_lines_is_refused() {
        for text in ["Welcome to", "0003", "0002", "+00f", "-001"] {
            assert_eq!(Frames::default().take(text.as_bytes()), Err(NotLines), "{text}");
        }
    }
}
