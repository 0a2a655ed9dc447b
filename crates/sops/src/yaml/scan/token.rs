//! Tokens, and where they stand.

/// A place in a text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::yaml) struct Mark {
    /// Characters before it.
    pub(in crate::yaml) index: isize,
    /// Line, from 0.
    pub(in crate::yaml) line: usize,
    /// Characters before it on its line.
    pub(in crate::yaml) column: usize,
}

/// How a scalar is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::yaml) enum Style {
    Plain,
    Single,
    Double,
    Literal,
    Folded,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::yaml) enum Token {
    StreamStart,
    /// `%YAML`, with its two numbers.
    Version(u32, u32),
    /// `%TAG`.
    TagDirective {
        handle: String,
        prefix: String,
    },
    DocumentStart,
    DocumentEnd,
    StreamEnd,
    BlockSequenceStart,
    BlockMappingStart,
    BlockEnd,
    FlowSequenceStart,
    FlowSequenceEnd,
    FlowMappingStart,
    FlowMappingEnd,
    BlockEntry,
    FlowEntry,
    Key,
    Value,
    Alias(String),
    Anchor(String),
    Tag {
        handle: String,
        suffix: String,
    },
    Scalar(String, Style),
}

/// A token, and where it begins.
#[derive(Debug, Clone)]
pub(in crate::yaml) struct Lexeme {
    pub(in crate::yaml) token: Token,
    pub(in crate::yaml) start: Mark,
}

/// Why a text is not YAML. It holds nothing of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::yaml) struct Problem {
    /// From 1.
    pub(in crate::yaml) line: usize,
    pub(in crate::yaml) what: String,
}
