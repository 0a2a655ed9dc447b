//! Comments, and what they are about, as go-yaml sees it.
//!
//! A comment on the lines before something is its *head*, one behind it on its line its *line*, and one after it, before an
//! empty line or less indented, its *foot*. The scanner notes of each comment the place of the token that it is about; the
//! parser joins it to that token when it comes to it.

use super::{Mark, Scanner, Token};

/// What a comment is to the token that it is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::yaml) enum Kind {
    #[default]
    Head,
    Line,
    Foot,
}

/// A comment, with the signs of its lines.
#[derive(Debug, Clone, Default)]
pub(in crate::yaml) struct Comment {
    pub(in crate::yaml) kind: Kind,
    pub(in crate::yaml) text: String,
    /// Where the white space before it began.
    scan: Mark,
    /// Where the token begins that it is about.
    pub(super) token: Mark,
    /// Where it begins. Columns of these two count from 1.
    start: Mark,
    end: Mark,
}

/// How far the scanner looks for a comment or what follows one, in bytes.
const LOOK: usize = 512;

impl Scanner<'_> {
    /// Notes a comment that stands behind a token on its line.
    pub(super) fn scan_line_comment(&mut self, token: Mark) {
        if self.newlines > 0 {
            return;
        }
        let blanks = (0..LOOK).take_while(|ahead| self.is_blank(*ahead)).count();
        if self.at(blanks) != b'#' {
            return;
        }
        (0..blanks).for_each(|_| self.skip());
        let start = self.mark;
        let mut text = String::new();
        while !self.is_break_or_end(0) {
            self.read(&mut text);
        }
        self.comments.push(Comment { kind: Kind::Line, text, token, start, ..Comment::default() });
    }

    /// Takes comments on lines of their own, all that follow each other.
    pub(super) fn scan_comments(&mut self, scan: Mark) {
        let mut lines = self.begin_lines(scan);
        let mut ahead = 0;
        while ahead < LOOK {
            lines.column += 1;
            if self.is_blank(ahead) {
                ahead += 1;
                continue;
            }
            let place = lines.place(self.mark, ahead);
            let closes = self.flow() > 0 && matches!(self.at(ahead), b']' | b'}');
            if closes || self.is_break_or_end(ahead) {
                self.end_line(&mut lines, place, ahead, closes);
                if !self.is_break(ahead) {
                    break;
                }
                (lines.first_empty, lines.recent_empty) = (false, true);
                lines.column = 0;
                lines.line += 1;
                ahead += 1;
                continue;
            }
            if place.is_left_of(self.indent) && place.column != lines.start.column {
                self.comments.extend(lines.take_foot(place));
            }
            if self.at(ahead) != b'#' {
                break;
            }
            if lines.text.is_empty() {
                lines.start = place;
            } else {
                lines.text.push('\n');
            }
            lines.recent_empty = false;
            self.take_comment_line(place, &mut lines.text);
            // The line break that ends a comment does not make an empty line.
            ahead = 1;
            lines.column = 0;
            lines.line = self.mark.line;
        }
        self.comments.extend(lines.into_head(self.mark, ahead));
    }

    fn begin_lines(&self, scan: Mark) -> Lines {
        let mut former = self.recent(0);
        if former.is_some_and(|last| last.token == Token::FlowEntry) {
            former = self.recent(1).or(former);
        }
        let after_colon = former.is_some_and(|former| former.token == Token::Value);
        // A foot begins on the line below what it is about.
        let beside = self.newlines == 0 && self.mark.column > 1;
        let below = (self.mark.line + 1 + usize::from(beside)).saturating_sub(self.newlines);
        Lines {
            scan,
            about: former.map_or(Mark::default(), |former| former.start),
            foot_line: (scan.line > 0 && !after_colon).then_some(below),
            start: Mark::default(),
            text: String::new(),
            line: self.mark.line,
            column: self.mark.column,
            first_empty: self.newlines <= 1,
            recent_empty: false,
        }
    }

    /// A line ends, or brackets do: the first empty line separates a foot of what was before from a head of what comes.
    fn end_line(&mut self, lines: &mut Lines, place: Mark, ahead: usize, closes: bool) {
        if lines.recent_empty && !closes {
            return;
        }
        let dedented = lines.start.is_left_of(self.indent);
        let beneath = Some(lines.start.line) == lines.foot_line;
        if closes || lines.first_empty && (beneath || dedented) {
            if dedented {
                lines.about = lines.start;
            }
            self.comments.extend(lines.take_foot(place));
        } else if !lines.text.is_empty() && self.at(ahead) != 0 {
            lines.text.push('\n');
        }
    }

    /// Goes on to a place, and takes the comment that begins there.
    fn take_comment_line(&mut self, place: Mark, text: &mut String) {
        loop {
            let there = self.mark.index >= place.index;
            if self.is_break_or_end(0) {
                if there || self.is_end() {
                    return;
                }
                self.skip_line();
            } else if there {
                self.read(text);
            } else {
                self.skip();
            }
        }
    }

    /// A comment behind a dash that has another list or a map under it is about that.
    pub(super) fn move_comment_of_entry(&mut self) {
        let entry = self.recent(0).is_some_and(|last| last.token == Token::BlockEntry);
        let begins = self.recent(1).is_some_and(|last| last.token == Token::BlockSequenceStart);
        if !entry || !begins || self.is_break(0) {
            return;
        }
        let mark = self.mark;
        let Some(comment) = self.comments.last_mut() else { return };
        if comment.kind == Kind::Line && !comment.text.is_empty() {
            comment.kind = Kind::Head;
            if comment.start.line + 1 == mark.line {
                comment.token = mark;
            }
        }
    }

    /// Where a block ends: before comments that are at the column of what it is in and come right before `end`.
    pub(super) fn before_foot(&self, end: Mark) -> Mark {
        let mut found = end;
        let mut stop = end.index;
        for comment in self.comments.iter().rev() {
            if comment.end.index < stop {
                break;
            }
            if isize::try_from(comment.start.column).is_ok_and(|column| column == self.indent + 1) {
                found = comment.start;
            }
            stop = comment.scan.index;
        }
        found
    }
}

/// Comments that are being read.
struct Lines {
    scan: Mark,
    about: Mark,
    /// Where a foot would begin.
    foot_line: Option<usize>,
    start: Mark,
    text: String,
    line: usize,
    column: usize,
    /// There was no empty line yet.
    first_empty: bool,
    /// The last line was empty.
    recent_empty: bool,
}

impl Lines {
    fn place(&self, mark: Mark, ahead: usize) -> Mark {
        let index = mark.index + isize::try_from(ahead).unwrap_or(0);
        Mark { index, line: self.line, column: self.column }
    }

    /// What was read so far as a foot; what comes is about something else.
    fn take_foot(&mut self, place: Mark) -> Option<Comment> {
        if self.text.is_empty() {
            return None;
        }
        let comment = Comment {
            kind: Kind::Foot,
            text: std::mem::take(&mut self.text),
            scan: self.scan,
            token: self.about,
            start: self.start,
            end: place,
        };
        self.scan = place;
        self.about = place;
        Some(comment)
    }

    /// What is left: it is about what comes.
    fn into_head(self, mark: Mark, ahead: usize) -> Option<Comment> {
        let end = self.place(mark, ahead);
        let end = Mark { index: end.index - 1, ..end };
        let Self { scan, start, text, .. } = self;
        (!text.is_empty()).then_some(Comment { kind: Kind::Head, text, scan, token: start, start, end })
    }
}

impl Mark {
    /// Is it left of a block's column? Columns of comments count from 1.
    fn is_left_of(self, indent: isize) -> bool {
        isize::try_from(self.column).is_ok_and(|column| column - 1 < indent.max(0))
    }
}
