//! What type an expression has on every object, as cel-go's checker infers it.
//!
//! Flux evaluates without a check; kube-apiserver asks for one before it takes a rule of its authentication configuration. What is
//! checked here is what such rules get wrong: fields that there are not, operators between types that never fit, and what
//! comes out. Arguments of functions are not checked.

use std::fmt;

use crate::function::Function;
use crate::node::{Macro, MacroKind, Mode, Node, Operator};
use crate::value::{Text, Value};

/// A type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Type {
    /// Known on evaluation only.
    Dyn,
    /// `null`.
    Null,
    /// A boolean.
    Bool,
    /// A signed integer.
    Int,
    /// An unsigned integer.
    Uint,
    /// A floating-point number.
    Double,
    /// A text.
    String,
    /// Bytes.
    Bytes,
    /// A point in time.
    Timestamp,
    /// A length of time.
    Duration,
    /// A type.
    Type,
    /// A list of such elements.
    List(Box<Type>),
    /// A map from such keys to such values.
    Map(Box<Type>, Box<Type>),
    /// A value that may be none.
    Optional(Box<Type>),
    /// An object that has these fields and no others.
    Object(Vec<(&'static str, Type)>),
}

/// What does not fit, in cel-go's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TypeProblem {
    /// An object has no such field.
    #[error("undefined field '{0}'")]
    UndefinedField(String),
    /// An operator does not take values of these types.
    #[error("found no matching overload for '{operator}' applied to '({})'", listed(.operands))]
    Overload {
        /// The operator.
        operator: &'static str,
        /// What it is applied to.
        operands: Vec<Type>,
    },
}

fn listed(types: &[Type]) -> String {
    types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl Type {
    /// A list of such elements.
    #[must_use]
    pub fn list(of: Self) -> Self {
        Self::List(Box::new(of))
    }

    /// A map from texts to such values.
    #[must_use]
    pub fn map(to: Self) -> Self {
        Self::Map(Box::new(Self::String), Box::new(to))
    }

    fn optional(of: Self) -> Self {
        Self::Optional(Box::new(of))
    }

    /// Whether a value may be of both.
    fn fits(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Dyn, _) | (_, Self::Dyn) => true,
            (Self::Null, nullable) | (nullable, Self::Null)
                if matches!(nullable, Self::Timestamp | Self::Duration | Self::Object(_)) =>
            {
                true
            }
            (Self::List(one), Self::List(other)) | (Self::Optional(one), Self::Optional(other)) => {
                one.fits(other)
            }
            (Self::Map(key, value), Self::Map(other_key, other_value)) => {
                key.fits(other_key) && value.fits(other_value)
            }
            _ => self == other,
        }
    }

    /// What is either of the two.
    fn or(self, other: &Self) -> Self {
        if self == *other { self } else { Self::Dyn }
    }

    fn is_number(&self) -> bool {
        matches!(self, Self::Int | Self::Uint | Self::Double)
    }

    /// What a loop over it gives: elements or keys.
    fn element(&self) -> Self {
        match self {
            Self::List(of) | Self::Map(of, _) | Self::Optional(of) => (**of).clone(),
            _ => Self::Dyn,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dyn => "dyn",
            Self::Null => "null",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Timestamp => "timestamp",
            Self::Duration => "duration",
            Self::Type => "type",
            Self::Object(_) => "object",
            Self::List(of) => return write!(f, "list({of})"),
            Self::Map(key, value) => return write!(f, "map({key}, {value})"),
            Self::Optional(of) => return write!(f, "optional_type({of})"),
        })
    }
}

/// The types that are known at some place of an expression.
pub(crate) struct Types<'a> {
    pub(crate) variables: &'a [(&'a str, Type)],
    /// The variables of the macros around it, outermost first.
    locals: Vec<Type>,
}

type Found = Result<Type, TypeProblem>;

impl<'a> Types<'a> {
    pub(crate) fn new(variables: &'a [(&'a str, Type)]) -> Self {
        Self { variables, locals: Vec::new() }
    }

    pub(crate) fn of(&mut self, node: &Node) -> Found {
        Ok(match node {
            Node::Literal(value) => of_literal(value),
            Node::Variable(name) => {
                let known = self.variables.iter().find(|(known, _)| **known == **name);
                known.map_or(Type::Type, |(_, found)| found.clone())
            }
            Node::Local(at) => self.locals.get(*at).cloned().unwrap_or(Type::Dyn),
            Node::Select { operand, field, mode } => self.select(operand, field, *mode)?,
            Node::Index { operand, index, optional } => {
                self.of(index)?;
                let found = indexed(self.of(operand)?);
                if *optional { as_optional(found) } else { found }
            }
            Node::List(elements) => {
                Type::list(self.common(elements.iter().map(|(node, maybe)| (node, *maybe)))?)
            }
            Node::Map(entries) => {
                let key = self.common(entries.iter().map(|(key, _, _)| (key, false)))?;
                let value = self.common(entries.iter().map(|(_, value, maybe)| (value, *maybe)))?;
                Type::Map(Box::new(key), Box::new(value))
            }
            Node::And(pair) | Node::Or(pair) => {
                self.of(&pair[0])?;
                self.of(&pair[1])?;
                Type::Bool
            }
            Node::Not(operand) => {
                self.of(operand)?;
                Type::Bool
            }
            Node::Negate(operand) => self.of(operand)?,
            Node::If(three) => {
                let condition = self.of(&three[0])?;
                let (yes, no) = (self.of(&three[1])?, self.of(&three[2])?);
                if !condition.fits(&Type::Bool) || !yes.fits(&no) {
                    return Err(TypeProblem::Overload {
                        operator: "_?_:_",
                        operands: vec![condition, yes, no],
                    });
                }
                yes.or(&no)
            }
            Node::Operator(operator, pair) => self.operator(*operator, pair)?,
            Node::OptionalOr { operands, unwrap } => {
                let (first, other) = (self.of(&operands[0])?.element(), self.of(&operands[1])?);
                if *unwrap { first.or(&other) } else { Type::optional(first.or(&other.element())) }
            }
            Node::Call { function, arguments } => {
                let mut types = Vec::with_capacity(arguments.len());
                for argument in arguments {
                    types.push(self.of(argument)?);
                }
                of_call(*function, &types)
            }
            Node::Matches { text, .. } => {
                self.of(text)?;
                Type::Bool
            }
            Node::Unknown(_) => Type::Dyn,
            Node::Macro(inner) => self.of_macro(inner)?,
        })
    }

    /// What all of these have in common; of those that may be left out, what they hold.
    fn common<'n>(&mut self, nodes: impl Iterator<Item = (&'n Node, bool)>) -> Found {
        let mut common = None;
        for (node, may_be_none) in nodes {
            let found = self.of(node)?;
            let found = if may_be_none { found.element() } else { found };
            common = Some(match common {
                None => found,
                Some(common) => found.or(&common),
            });
        }
        Ok(common.unwrap_or(Type::Dyn))
    }

    fn select(&mut self, operand: &Node, field: &str, mode: Mode) -> Found {
        let operand = self.of(operand)?;
        let (operand, is_optional) = match operand {
            Type::Optional(of) => (*of, true),
            other => (other, false),
        };
        let found = match operand {
            Type::Map(_, value) => *value,
            Type::Object(fields) => match fields.into_iter().find(|(name, _)| *name == field) {
                Some((_, found)) => found,
                None => return Err(TypeProblem::UndefinedField(field.to_owned())),
            },
            _ => Type::Dyn,
        };
        Ok(match mode {
            Mode::Has => Type::Bool,
            Mode::Optional => as_optional(found),
            Mode::Value if is_optional => as_optional(found),
            Mode::Value => found,
        })
    }

    fn operator(&mut self, operator: Operator, pair: &[Node; 2]) -> Found {
        let (left, right) = (self.of(&pair[0])?, self.of(&pair[1])?);
        let fits = match operator {
            Operator::Equal | Operator::NotEqual => left.fits(&right),
            Operator::Less | Operator::LessEqual | Operator::Greater | Operator::GreaterEqual => {
                left.fits(&right) || left.is_number() && right.is_number()
            }
            Operator::Add => {
                let of_time = |one: &Type| matches!(one, Type::Timestamp | Type::Duration);
                left.fits(&right) || of_time(&left) && of_time(&right)
            }
            // Whatever else does not fit comes to no boolean either.
            _ => true,
        };
        if !fits {
            return Err(TypeProblem::Overload { operator: operator.name(), operands: vec![left, right] });
        }
        Ok(match operator {
            Operator::Add | Operator::Subtract | Operator::Multiply | Operator::Divide | Operator::Modulo => {
                match (left, right) {
                    (Type::Timestamp, _) | (_, Type::Timestamp) if operator == Operator::Add => {
                        Type::Timestamp
                    }
                    (Type::Timestamp, Type::Timestamp) => Type::Duration,
                    (Type::Dyn, known) | (known, _) => known,
                }
            }
            _ => Type::Bool,
        })
    }

    fn of_macro(&mut self, inner: &Macro) -> Found {
        let over = self.of(&inner.over)?;
        self.locals.push(over.element());
        let condition = inner.condition.as_ref().map(|condition| self.of(condition)).transpose();
        let body = self.of(&inner.body);
        self.locals.pop();
        condition?;
        let body = body?;
        Ok(match inner.kind {
            MacroKind::All | MacroKind::Exists | MacroKind::ExistsOne => Type::Bool,
            MacroKind::Map => Type::list(body),
            MacroKind::OptMap => Type::optional(body),
            MacroKind::OptFlatMap => as_optional(body),
        })
    }
}

/// An optional stays one.
fn as_optional(of: Type) -> Type {
    match of {
        Type::Optional(_) => of,
        other => Type::optional(other),
    }
}

fn indexed(operand: Type) -> Type {
    match operand {
        Type::List(of) | Type::Map(_, of) => *of,
        Type::Optional(of) => as_optional(indexed(*of)),
        _ => Type::Dyn,
    }
}

fn of_literal(value: &Value<'_>) -> Type {
    match value {
        Value::Null => Type::Null,
        Value::Bool(_) => Type::Bool,
        Value::Int(_) => Type::Int,
        Value::Uint(_) => Type::Uint,
        Value::Double(_) => Type::Double,
        Value::String(Text::Borrowed(_) | Text::Shared(_)) => Type::String,
        Value::Bytes(_) => Type::Bytes,
        Value::Type(_) => Type::Type,
        _ => match value.type_name() {
            "google.protobuf.Timestamp" => Type::Timestamp,
            "google.protobuf.Duration" => Type::Duration,
            _ => Type::Dyn,
        },
    }
}

fn of_call(function: Function, arguments: &[Type]) -> Type {
    use Function as F;
    let first = arguments.first().unwrap_or(&Type::Dyn);
    match function {
        F::Contains
        | F::StartsWith
        | F::EndsWith
        | F::Matches
        | F::Bool
        | F::HasValue
        | F::SetsContains
        | F::SetsEquivalent
        | F::SetsIntersects => Type::Bool,
        F::OptionalOf | F::OptionalOfNonZero => Type::optional(first.clone()),
        F::OptionalNone => Type::optional(Type::Dyn),
        F::OptionalValue => first.element(),
        F::OptionalUnwrap | F::UnwrapOpt => Type::list(first.element().element()),
        F::First | F::Last => Type::optional(first.element()),
        F::Split => Type::list(Type::String),
        F::Type => Type::Type,
        F::Uint => Type::Uint,
        F::Double => Type::Double,
        F::Timestamp => Type::Timestamp,
        F::Duration => Type::Duration,
        F::Bytes | F::Base64Decode => Type::Bytes,
        F::String
        | F::CharAt
        | F::Join
        | F::LowerAscii
        | F::UpperAscii
        | F::Quote
        | F::Replace
        | F::Reverse
        | F::Substring
        | F::Trim
        | F::Base64Encode => Type::String,
        F::Dyn => Type::Dyn,
        // Sizes, places, numbers, and parts of dates.
        _ => Type::Int,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Expression;

    fn found(text: &str) -> Result<String, String> {
        let user = Type::Object(vec![
            ("username", Type::String),
            ("groups", Type::list(Type::String)),
            ("extra", Type::map(Type::list(Type::String))),
        ]);
        let variables = [("claims", Type::map(Type::Dyn)), ("user", user)];
        let expression = Expression::parse_over(text, &["claims", "user"]).unwrap();
        expression.type_over(&variables).map(|found| found.to_string()).map_err(|problem| problem.to_string())
    }

    /// The answers are those of cel-go's checker.
    #[test]
    fn types_are_inferred_as_cel_go_does() {
        for (text, expected) in [
            ("claims.email_verified", "dyn"),
            ("claims.email_verified == true", "bool"),
            ("claims.?email_verified.orValue(true)", "dyn"),
            ("claims.?email_verified.orValue(true) == true", "bool"),
            ("claims.?a.optMap(x, x == 'a').orValue(false)", "bool"),
            ("claims.?a.optMap(x, x).orValue(false)", "dyn"),
            ("claims.?a.hasValue()", "bool"),
            ("true ? claims.a : true", "dyn"),
            ("claims.a ? true : false", "bool"),
            ("claims.a && claims.b", "bool"),
            ("!claims.a", "bool"),
            ("[true][0]", "bool"),
            ("[true, false].filter(x, x)[0]", "bool"),
            ("{'a': true}['a']", "bool"),
            ("{'a': true}.a", "bool"),
            ("[claims.a][0]", "dyn"),
            ("claims.a.b.c == 1", "bool"),
            ("claims.a in ['x']", "bool"),
            ("claims.a.startsWith('x')", "bool"),
            ("claims.a.matches('x')", "bool"),
            ("user.groups.all(g, !g.startsWith('system:'))", "bool"),
            ("user.username", "string"),
            ("user.extra['x'][0]", "string"),
            ("has(user.username)", "bool"),
            ("claims.a + 1", "int"),
            ("optional.of(true).value()", "bool"),
            ("bool(claims.a)", "bool"),
            ("dyn(true)", "dyn"),
            ("type(claims.a) == string", "bool"),
            ("claims.groups.map(g, g == 'x')[0]", "bool"),
            ("[true][?0].orValue(false)", "bool"),
            ("claims.?a.?b.orValue(true)", "dyn"),
            ("user.?extra[?'x'].orValue([''])", "list(string)"),
            ("timestamp(claims.exp) > timestamp('2024-01-01T00:00:00Z')", "bool"),
            ("timestamp(claims.exp) + duration('1h')", "timestamp"),
            ("user.groups.size()", "int"),
            ("user.groups + ['x'] == ['']", "bool"),
            ("[optional.of(true)].unwrapOpt()", "list(bool)"),
            ("[true].first().value()", "bool"),
            ("claims.sub.contains('@') ? claims.sub : 1", "dyn"),
        ] {
            assert_eq!(found(text).as_deref(), Ok(expected), "{text}");
        }
        for (text, expected) in [
            ("user.nothing == 'x'", "undefined field 'nothing'"),
            ("has(user.nothing)", "undefined field 'nothing'"),
            (
                "user.groups == 'x'",
                "found no matching overload for '_==_' applied to '(list(string), string)'",
            ),
            (
                "user.groups.exists(g, g == 1)",
                "found no matching overload for '_==_' applied to '(string, int)'",
            ),
            ("'a' + 1 == 'b'", "found no matching overload for '_+_' applied to '(string, int)'"),
            ("user.username > 1", "found no matching overload for '_>_' applied to '(string, int)'"),
            ("1 == 1 ? true : 1", "found no matching overload for '_?_:_' applied to '(bool, bool, int)'"),
            ("1 == 1.0", "found no matching overload for '_==_' applied to '(int, double)'"),
        ] {
            assert_eq!(found(text).unwrap_err(), expected, "{text}");
        }
    }
}
