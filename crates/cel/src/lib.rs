//! CEL expressions over objects, as Flux has them in `healthCheckExprs` and `readyExpr`, bounded in time and memory.
//!
//! An expression is parsed once and evaluated on the top-level fields of an object:
//!
//! ```
//! # use roadstead_cel::Expression;
//! let ready = Expression::parse("status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')").unwrap();
//! let status = serde_json::json!({ "conditions": [{ "type": "Ready", "status": "True" }] });
//! assert_eq!(ready.evaluate_bool(&[("status", &status)]), Ok(true));
//! ```
//!
//! The `cel` crate parses; what it parsed is evaluated here, because its own evaluator can be neither stopped nor made to
//! count, and differs from cel-go in what fails. Each step and each byte that is allocated is counted (`budget`), and an
//! expression that needs too many of them on an object ends in [`CelError::Cost`]. What may be nested, and thus how much
//! stack is needed, is bounded before the text is parsed (`guard`).
//!
//! # What there is
//!
//! The environment of Flux: the standard library of CEL with comparisons between types of numbers, optional values
//! (`.?`, `[?]`, `optMap`, …) and cel-go's extensions `strings`, `sets` and `encoders`. As in Flux, an expression is not
//! checked for types before it is evaluated, unless that is asked for ([`Expression::type_over`]). `tests/cases.json` has what cel-go itself answered.
//!
//! # What there is not
//!
//! - `format` of the strings extension: an error in evaluation.
//! - Message literals (`google.protobuf.Duration{seconds: 1}`): an error in parsing.
//! - Time zones other than UTC and offsets (`getHours('Europe/Berlin')`): an error in evaluation.
//! - `\C`, `\B` and octal numbers in regular expressions: an error in parsing, or in evaluation where the pattern is not
//!   written as a literal.
//! - Keys of maps that are neither booleans, integers nor strings: an error in evaluation.
//! - Hexadecimal floating-point numbers in `double('0x1p-2')`: an error in evaluation.
//! - A top-level field whose name has a point in it can only be read by its map, which there is not.
//!
//! What cel-go in Flux has not: `existsOne`, which is `exists_one`. The keys of a map come in order, where cel-go has none.

mod budget;
mod compile;
mod convert;
mod error;
mod eval;
mod function;
mod guard;
mod json;
mod node;
mod operator;
mod price;
mod reads;
mod strings;
mod time;
mod types;
mod value;

pub use error::{CelError, EvalProblem, ParseProblem};
pub use types::{Type, TypeProblem};

use error::Fault;
use node::Node;
use value::Value;

/// An expression that was parsed. Small, and without state: one can be shared by all who evaluate it.
#[derive(Debug, Clone)]
pub struct Expression {
    text: String,
    node: Node,
}

impl Expression {
    /// Parses an expression, of at most 16 KiB.
    ///
    /// # Errors
    ///
    /// [`CelError::Parse`]: it does not parse, is too long, or nests too deeply.
    pub fn parse(text: &str) -> Result<Self, CelError> {
        Self::parsed(text, None)
    }

    /// Parses an expression that may read these variables only, and call no function that there is not: what Flux asks
    /// of a `readyExpr`.
    ///
    /// # Errors
    ///
    /// [`CelError::Parse`], as [`Expression::parse`] has it, and for a name that is not known.
    pub fn parse_over(text: &str, variables: &[&str]) -> Result<Self, CelError> {
        Self::parsed(text, Some(variables))
    }

    fn parsed(text: &str, variables: Option<&[&str]>) -> Result<Self, CelError> {
        match compile::compile(text, variables) {
            Ok(node) => Ok(Self { text: text.to_owned(), node }),
            Err(problem) => Err(CelError::Parse { expression: error::shown(text), problem }),
        }
    }

    /// The text that it was parsed from.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it reads this field of this variable, in so many words: by a point, by `has`, or by a text in brackets.
    #[must_use]
    pub fn reads(&self, variable: &str, field: &str) -> bool {
        reads::reads(&self.node, variable, field)
    }

    /// What type it has, where its variables have these types: [`Type::Dyn`] where that is known on evaluation only.
    ///
    /// # Errors
    ///
    /// [`TypeProblem`]: on no object can it have an answer.
    pub fn type_over(&self, variables: &[(&str, Type)]) -> Result<Type, TypeProblem> {
        types::Types::new(variables).of(&self.node)
    }

    /// Evaluates it with these variables; of two of one name, the last counts.
    ///
    /// # Errors
    ///
    /// [`CelError::Evaluate`]: it fails, most often because a field that it reads is not there. [`CelError::NotBoolean`]:
    /// it has another answer than yes or no. [`CelError::Cost`]: it needs more than 10 million steps or 24 MiB, which
    /// depends on nothing but the expression and the variables.
    pub fn evaluate_bool(&self, variables: &[(&str, &serde_json::Value)]) -> Result<bool, CelError> {
        self.evaluate_bool_among(variables, 1)
    }

    /// The same as one of so many that share what one evaluation may take: for whoever evaluates expressions of many users.
    ///
    /// # Errors
    ///
    /// As [`Self::evaluate_bool`], with a part of its steps and bytes.
    pub fn evaluate_bool_among(
        &self,
        variables: &[(&str, &serde_json::Value)],
        among: u32,
    ) -> Result<bool, CelError> {
        let mut run = eval::Run::new(variables, among);
        match run.node(&self.node) {
            Ok(Value::Bool(answer)) => Ok(answer),
            Ok(_) => Err(CelError::NotBoolean { expression: error::shown(&self.text) }),
            Err(fault) => Err(self.failed(fault)),
        }
    }

    /// What it comes to with these variables, as JSON: for expressions that make a value for others. It may take a part of what
    /// [`Self::evaluate_bool`] may, as one of so many.
    ///
    /// # Errors
    ///
    /// As [`Self::evaluate_bool`]; [`CelError::Evaluate`] also where it comes to what JSON has not, as a duration or a type.
    pub fn evaluate_json(
        &self,
        variables: &[(&str, &serde_json::Value)],
        among: u32,
    ) -> Result<serde_json::Value, CelError> {
        let mut run = eval::Run::new(variables, among);
        run.node(&self.node).and_then(|value| run.json(&value)).map_err(|fault| self.failed(fault))
    }

    fn failed(&self, fault: Fault) -> CelError {
        let expression = error::shown(&self.text);
        match fault {
            Fault::Problem(problem) => CelError::Evaluate { expression, problem },
            Fault::Cost => CelError::Cost { expression },
        }
    }
}
