//! What can be wrong with an expression, in Flux's words where it has them.
//!
//! The objects that expressions look at can be Secrets, and messages end up in conditions and logs: an error says what the
//! expression says, names of fields that the expression spells out, and types; never a value.

use std::sync::Arc;

use thiserror::Error;

/// Why an expression cannot be used, or has no answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CelError {
    /// The text is not an expression that can be evaluated, whatever the object.
    #[error("failed to parse the CEL expression '{expression}': {problem}")]
    Parse {
        /// The expression, shortened where it is long.
        expression: String,
        /// What is wrong with it.
        problem: ParseProblem,
    },
    /// The expression failed on this object: most often, a field that it reads is not there.
    #[error("failed to evaluate the CEL expression '{expression}': {problem}")]
    Evaluate {
        /// The expression, shortened where it is long.
        expression: String,
        /// What failed.
        problem: EvalProblem,
    },
    /// The expression has an answer for this object, and it is not a boolean.
    #[error("failed to evaluate CEL expression as boolean: '{expression}'")]
    NotBoolean {
        /// The expression, shortened where it is long.
        expression: String,
    },
    /// To evaluate the expression on this object takes more time or memory than an expression is given.
    #[error("the CEL expression '{expression}' would cost too much")]
    Cost {
        /// The expression, shortened where it is long.
        expression: String,
    },
}

/// Why a text is not an expression.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ParseProblem {
    /// It is too long.
    #[error("it is longer than {most} bytes")]
    TooLong {
        /// The most bytes of an expression.
        most: usize,
    },
    /// Its brackets or operators nest too deeply.
    #[error("it nests too deeply")]
    TooDeep,
    /// A string has no end.
    #[error("a string is not terminated")]
    Unterminated,
    /// A string has an escape sequence that there is not.
    #[error("a string has an invalid escape sequence")]
    Escape,
    /// A comment has a carriage return in it.
    #[error("a comment has a carriage return in it")]
    CarriageReturn,
    /// An identifier is in backticks.
    #[error("identifiers in backticks are not supported")]
    Backtick,
    /// The parser does not take it.
    #[error("{line}:{column}: {message}")]
    Syntax {
        /// The line, from 1.
        line: isize,
        /// The column, from 1.
        column: isize,
        /// What the parser says.
        message: String,
    },
    /// It uses something of CEL that this crate does not have.
    #[error("{0} are not supported")]
    Unsupported(&'static str),
    /// A macro is given something else than the name of a variable.
    #[error("the first argument of {0}() must be a simple name")]
    NotAName(&'static str),
    /// A regular expression that it spells out is not one.
    #[error("{0}")]
    Pattern(roadstead_go_regex::PatternError),
    /// It reads a variable that there is not.
    #[error("undeclared reference to '{0}'")]
    Undeclared(Arc<str>),
    /// A part of it that has the same value on every object has none.
    #[error("{0}")]
    Constant(EvalProblem),
}

/// Why an expression has no answer for an object.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EvalProblem {
    /// The object has no such top-level field.
    #[error("no such attribute: {0}")]
    NoSuchAttribute(Arc<str>),
    /// A map has no such field; the name is one that the expression spells out.
    #[error("no such key: {0}")]
    NoSuchField(Arc<str>),
    /// A map does not have the key that was worked out.
    #[error("no such key")]
    NoSuchKey,
    /// A list is shorter than an index.
    #[error("index out of range")]
    OutOfRange,
    /// A function or operator does not take values of these types, or does not exist.
    #[error("no such overload: {0}")]
    NoSuchOverload(Arc<str>),
    /// Something cannot be converted.
    #[error("type conversion error from '{from}' to '{to}'")]
    Conversion {
        /// The type of the value.
        from: &'static str,
        /// The type that it was to have.
        to: &'static str,
    },
    /// A number is too large for its type.
    #[error("integer overflow")]
    Overflow,
    /// A division by zero.
    #[error("division by zero")]
    DivisionByZero,
    /// NaN has no order.
    #[error("NaN values cannot be ordered")]
    NotANumber,
    /// A value cannot be the key of a map.
    #[error("unsupported key type")]
    KeyType,
    /// A macro runs over something that is neither a list nor a map.
    #[error("'{0}' is not iterable")]
    NotIterable(&'static str),
    /// An optional that has no value is asked for it.
    #[error("optional.none() dereference")]
    NoValue,
    /// An optional element or entry is given something else than an optional.
    #[error("cannot initialize an optional element from a non-optional value")]
    NotOptional,
    /// A pattern that was worked out is not a regular expression, or uses what is not supported.
    #[error("invalid regular expression")]
    Pattern,
    /// Text that is not base64.
    #[error("illegal base64 data")]
    Base64,
    /// A time zone that is neither UTC nor an offset.
    #[error("time zones other than UTC and offsets are not supported")]
    TimeZone,
}

/// Why an evaluation ends without a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Of the expression: `&&` and `||` may do without it.
    Problem(EvalProblem),
    /// The budget is used up: this ends the evaluation, whatever is around it.
    Cost,
}

impl From<EvalProblem> for Fault {
    fn from(problem: EvalProblem) -> Self {
        Self::Problem(problem)
    }
}

/// What an evaluation gives.
pub(crate) type Answer<T> = Result<T, Fault>;

/// An expression as a message shows it.
pub(crate) fn shown(expression: &str) -> String {
    const MOST: usize = 512;
    match expression.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &expression[..end]),
        None => expression.to_owned(),
    }
}
