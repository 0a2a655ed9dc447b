//! What a parsed expression becomes: a tree in which the names of functions and of macros' variables are resolved.

use std::sync::Arc;

use regex::Regex;

use crate::function::Function;
use crate::value::Value;

/// An expression, or a part of one.
#[derive(Debug, Clone)]
pub(crate) enum Node {
    Literal(Value<'static>),
    /// A top-level field of the object, or the name of a type.
    Variable(Arc<str>),
    /// The variable of a macro: how many macros are around the one that it is of.
    Local(usize),
    Select {
        operand: Box<Node>,
        field: Arc<str>,
        mode: Mode,
    },
    Index {
        operand: Box<Node>,
        index: Box<Node>,
        optional: bool,
    },
    /// The elements, and whether each is left out where it is an optional without a value.
    List(Vec<(Node, bool)>),
    /// Keys, values, and whether each entry is left out where its value is an optional without one.
    Map(Vec<(Node, Node, bool)>),
    And(Box<[Node; 2]>),
    Or(Box<[Node; 2]>),
    If(Box<[Node; 3]>),
    Operator(Operator, Box<[Node; 2]>),
    Not(Box<Node>),
    Negate(Box<Node>),
    /// `or` and `orValue`, whose second operand is evaluated only where the first has no value.
    OptionalOr {
        operands: Box<[Node; 2]>,
        unwrap: bool,
    },
    Call {
        function: Function,
        arguments: Vec<Node>,
    },
    /// A match of a pattern that the expression spells out.
    Matches {
        text: Box<Node>,
        pattern: Pattern,
    },
    /// A call of a function that there is not, which is an error once it is evaluated.
    Unknown(Arc<str>),
    Macro(Box<Macro>),
}

/// A regular expression, and what to look at a byte with it costs.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    pub(crate) regex: Regex,
    pub(crate) steps: u64,
}

/// What is asked about a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Its value.
    Value,
    /// Its value, as an optional.
    Optional,
    /// Whether it is there.
    Has,
}

/// An operator on two values that are both evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    In,
}

impl Operator {
    /// As cel-go names it in errors.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Add => "_+_",
            Self::Subtract => "_-_",
            Self::Multiply => "_*_",
            Self::Divide => "_/_",
            Self::Modulo => "_%_",
            Self::Equal => "_==_",
            Self::NotEqual => "_!=_",
            Self::Less => "_<_",
            Self::LessEqual => "_<=_",
            Self::Greater => "_>_",
            Self::GreaterEqual => "_>=_",
            Self::In => "@in",
        }
    }
}

/// A macro with a variable of its own.
#[derive(Debug, Clone)]
pub(crate) struct Macro {
    pub(crate) kind: MacroKind,
    /// What it runs over; for those of optionals, the optional.
    pub(crate) over: Node,
    /// What it evaluates for each, with the variable.
    pub(crate) body: Node,
    /// Of `map` and `filter`: which elements it keeps.
    pub(crate) condition: Option<Node>,
}

/// Which macro.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MacroKind {
    All,
    Exists,
    ExistsOne,
    /// `map`, and `filter`, which is a `map` to the element itself.
    Map,
    OptMap,
    OptFlatMap,
}
