//! From a text to the tree that is evaluated.
//!
//! The parser expands the macros to loops; they are recognised here by their shape, and become macros again, which need no
//! lists that are copied for each element, and whose cost is easy to count.

use std::sync::Arc;

use cel::common::ast::operators as op;
use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, MapExpr,
};
use cel::parser::{ParseErrors, Parser};

use crate::budget::Budget;
use crate::error::{Answer, Fault, ParseProblem};
use crate::function::Function;
use crate::guard;
use crate::node::{Macro, MacroKind, Mode, Node, Operator};
use crate::price::priced;
use crate::value::Value;

/// The name that the parser gives to what a loop gathers; no expression can write it.
const RESULT: &str = "@result";

/// Parses an expression. With `variables`, it may read no others.
pub(crate) fn compile(text: &str, variables: Option<&[&str]>) -> Result<Node, ParseProblem> {
    guard::check(text)?;
    let tree = Parser::new().enable_optional_syntax(true).parse(text).map_err(|errors| syntax(&errors))?;
    Scope { locals: Vec::new(), variables }.node(&tree)
}

/// The first thing that the parser has to say.
fn syntax(errors: &ParseErrors) -> ParseProblem {
    const MOST: usize = 300;
    let (line, column, message) = match errors.errors.first() {
        Some(error) => (error.pos.0, error.pos.1, error.msg.as_str()),
        None => (1, 1, "Syntax error"),
    };
    ParseProblem::Syntax { line, column, message: message.chars().take(MOST).collect() }
}

/// The names that are known at some place of an expression.
struct Scope<'a> {
    /// The variables of the macros around it, outermost first.
    locals: Vec<String>,
    variables: Option<&'a [&'a str]>,
}

impl Scope<'_> {
    fn node(&mut self, tree: &IdedExpr) -> Result<Node, ParseProblem> {
        match &tree.expr {
            Expr::Literal(literal) => Ok(Node::Literal(literal_value(literal))),
            Expr::Ident(name) => self.name(name),
            Expr::Select(select) => {
                if let Some(type_name) = qualified_type(&tree.expr) {
                    return Ok(Node::Literal(Value::Type(type_name)));
                }
                let mode = if select.test { Mode::Has } else { Mode::Value };
                self.select(&select.operand, &select.field, mode)
            }
            Expr::List(list) => self.list(list),
            Expr::Map(map) => self.map(map),
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Struct(_) => Err(ParseProblem::Unsupported("message literals")),
            Expr::Unspecified => Err(ParseProblem::Unsupported("expressions of this kind")),
        }
    }

    fn boxed(&mut self, tree: &IdedExpr) -> Result<Box<Node>, ParseProblem> {
        self.node(tree).map(Box::new)
    }

    fn pair(&mut self, left: &IdedExpr, right: &IdedExpr) -> Result<Box<[Node; 2]>, ParseProblem> {
        Ok(Box::new([self.node(left)?, self.node(right)?]))
    }

    fn name(&self, name: &str) -> Result<Node, ParseProblem> {
        let bare = name.strip_prefix('.').unwrap_or(name);
        if bare.len() == name.len()
            && let Some(at) = self.locals.iter().rposition(|local| local == name)
        {
            return Ok(Node::Local(at));
        }
        if let Some(variables) = self.variables
            && !variables.contains(&bare)
            && plain_type(bare).is_none()
        {
            return Err(ParseProblem::Undeclared(bare.into()));
        }
        Ok(Node::Variable(bare.into()))
    }

    fn select(&mut self, operand: &IdedExpr, field: &str, mode: Mode) -> Result<Node, ParseProblem> {
        Ok(Node::Select { operand: self.boxed(operand)?, field: field.into(), mode })
    }

    fn list(&mut self, list: &ListExpr) -> Result<Node, ParseProblem> {
        let mut optional = list.optional_indices.iter().peekable();
        let mut elements = Vec::with_capacity(list.elements.len());
        for (at, element) in list.elements.iter().enumerate() {
            let is_optional = optional.next_if(|index| **index == at).is_some();
            elements.push((self.node(element)?, is_optional));
        }
        Ok(Node::List(elements))
    }

    fn map(&mut self, map: &MapExpr) -> Result<Node, ParseProblem> {
        let mut entries = Vec::with_capacity(map.entries.len());
        for entry in &map.entries {
            match &entry.expr {
                EntryExpr::MapEntry(entry) => {
                    entries.push((self.node(&entry.key)?, self.node(&entry.value)?, entry.optional));
                }
                EntryExpr::StructField(_) => return Err(ParseProblem::Unsupported("message literals")),
            }
        }
        Ok(Node::Map(entries))
    }

    fn call(&mut self, call: &CallExpr) -> Result<Node, ParseProblem> {
        if let (None, [left, right]) = (&call.target, &*call.args)
            && let Some(operator) = binary(&call.func_name)
        {
            return Ok(Node::Operator(operator, self.pair(left, right)?));
        }
        match (call.func_name.as_str(), &*call.args) {
            (op::LOGICAL_AND, [left, right]) => Ok(Node::And(self.pair(left, right)?)),
            (op::LOGICAL_OR, [left, right]) => Ok(Node::Or(self.pair(left, right)?)),
            (op::CONDITIONAL, [condition, yes, no]) => {
                Ok(Node::If(Box::new([self.node(condition)?, self.node(yes)?, self.node(no)?])))
            }
            (op::LOGICAL_NOT, [operand]) => Ok(Node::Not(self.boxed(operand)?)),
            (op::NEGATE, [operand]) => Ok(Node::Negate(self.boxed(operand)?)),
            (op::INDEX | op::OPT_INDEX, [operand, index]) => Ok(Node::Index {
                operand: self.boxed(operand)?,
                index: self.boxed(index)?,
                optional: call.func_name == op::OPT_INDEX,
            }),
            (op::OPT_SELECT, [operand, field]) => match &field.expr {
                Expr::Literal(LiteralValue::String(name)) => {
                    self.select(operand, name.inner(), Mode::Optional)
                }
                _ => Err(ParseProblem::Unsupported("expressions of this kind")),
            },
            _ => self.function(call),
        }
    }

    /// A call of a function by its name. As in cel-go without a checker, it does not matter whether a function is called
    /// on its first argument or with it.
    fn function(&mut self, call: &CallExpr) -> Result<Node, ParseProblem> {
        let name = call.func_name.strip_prefix('.').unwrap_or(&call.func_name);
        let target = call.target.as_deref();
        if let Some(target) = target {
            match (name, &*call.args) {
                ("optMap", [variable, body]) => {
                    return self.optional_macro(MacroKind::OptMap, target, variable, body);
                }
                ("optFlatMap", [variable, body]) => {
                    return self.optional_macro(MacroKind::OptFlatMap, target, variable, body);
                }
                ("or" | "orValue", [other]) => {
                    let operands = self.pair(target, other)?;
                    return Ok(Node::OptionalOr { operands, unwrap: name == "orValue" });
                }
                _ => {}
            }
            if let Expr::Ident(space) = &target.expr
                && let Some(function) = Function::named(&format!("{}.{name}", space.trim_start_matches('.')))
            {
                return self.arguments(function, None, &call.args);
            }
        }
        match Function::named(name) {
            Some(function) => self.arguments(function, target, &call.args),
            None => {
                // For what is wrong in them, and for the names that they read.
                for argument in target.into_iter().chain(&call.args) {
                    self.node(argument)?;
                }
                if self.variables.is_some() {
                    return Err(ParseProblem::Undeclared(name.into()));
                }
                Ok(Node::Unknown(name.into()))
            }
        }
    }

    fn arguments(
        &mut self,
        function: Function,
        target: Option<&IdedExpr>,
        arguments: &[IdedExpr],
    ) -> Result<Node, ParseProblem> {
        let mut nodes = Vec::with_capacity(arguments.len() + 1);
        for argument in target.into_iter().chain(arguments) {
            nodes.push(self.node(argument)?);
        }
        if let (Function::Matches, [_, Node::Literal(Value::String(text))]) = (function, &*nodes) {
            let pattern = priced(text).map_err(ParseProblem::Pattern)?;
            nodes.truncate(1);
            if let Some(text) = nodes.pop() {
                return Ok(Node::Matches { text: Box::new(text), pattern });
            }
        }
        if let Some(problem) = function.refuses(nodes.len()) {
            return Err(ParseProblem::Constant(problem));
        }
        if let [Node::Literal(value)] = &*nodes
            && function.converts()
        {
            return constant(function.call(std::slice::from_ref(value), &mut Budget::shared(1)));
        }
        Ok(Node::Call { function, arguments: nodes })
    }

    fn within(&mut self, variable: &str, body: &IdedExpr) -> Result<Node, ParseProblem> {
        self.locals.push(variable.to_owned());
        let node = self.node(body);
        self.locals.pop();
        node
    }

    fn optional_macro(
        &mut self,
        kind: MacroKind,
        target: &IdedExpr,
        variable: &IdedExpr,
        body: &IdedExpr,
    ) -> Result<Node, ParseProblem> {
        let Expr::Ident(variable) = &variable.expr else {
            let name = if kind == MacroKind::OptMap { "optMap" } else { "optFlatMap" };
            return Err(ParseProblem::NotAName(name));
        };
        let over = self.node(target)?;
        let body = self.within(variable, body)?;
        Ok(Node::Macro(Box::new(Macro { kind, over, body, condition: None })))
    }

    fn comprehension(&mut self, loop_: &ComprehensionExpr) -> Result<Node, ParseProblem> {
        let (kind, body, condition) =
            macro_of(loop_).ok_or(ParseProblem::Unsupported("expressions of this kind"))?;
        let over = self.node(&loop_.iter_range)?;
        let body = self.within(&loop_.iter_var, body)?;
        let condition = condition.map(|condition| self.within(&loop_.iter_var, condition)).transpose()?;
        Ok(Node::Macro(Box::new(Macro { kind, over, body, condition })))
    }
}

/// The macro that a loop was expanded from: which, what it evaluates for each element, and which elements it keeps.
fn macro_of(loop_: &ComprehensionExpr) -> Option<(MacroKind, &IdedExpr, Option<&IdedExpr>)> {
    if loop_.iter_var2.is_some() || loop_.accu_var != RESULT {
        return None;
    }
    let Expr::Call(step) = &loop_.loop_step.expr else { return None };
    match (&loop_.accu_init.expr, step.func_name.as_str(), &*step.args) {
        (Expr::Literal(LiteralValue::Boolean(init)), op::LOGICAL_AND, [result, body])
            if is_result(result) && *init.inner() =>
        {
            Some((MacroKind::All, body, None))
        }
        (Expr::Literal(LiteralValue::Boolean(init)), op::LOGICAL_OR, [result, body])
            if is_result(result) && !*init.inner() =>
        {
            Some((MacroKind::Exists, body, None))
        }
        (Expr::Literal(LiteralValue::Int(init)), op::CONDITIONAL, [condition, _, result])
            if is_result(result) && *init.inner() == 0 =>
        {
            Some((MacroKind::ExistsOne, condition, None))
        }
        (Expr::List(init), op::CONDITIONAL, [condition, append, result])
            if is_result(result) && init.elements.is_empty() =>
        {
            Some((MacroKind::Map, appended(append)?, Some(condition)))
        }
        (Expr::List(init), op::ADD, _) if init.elements.is_empty() => {
            Some((MacroKind::Map, appended(&loop_.loop_step)?, None))
        }
        _ => None,
    }
}

/// What `@result + [x]` appends.
fn appended(step: &IdedExpr) -> Option<&IdedExpr> {
    let Expr::Call(call) = &step.expr else { return None };
    let (op::ADD, [result, list]) = (call.func_name.as_str(), &*call.args) else { return None };
    match &list.expr {
        Expr::List(list) if is_result(result) => match &*list.elements {
            [element] => Some(element),
            _ => None,
        },
        _ => None,
    }
}

/// What is evaluated once and for all.
fn constant(answer: Answer<Value<'static>>) -> Result<Node, ParseProblem> {
    match answer {
        Ok(value) => Ok(Node::Literal(value)),
        Err(Fault::Problem(problem)) => Err(ParseProblem::Constant(problem)),
        Err(Fault::Cost) => Err(ParseProblem::Unsupported("constants of this size")),
    }
}

fn is_result(tree: &IdedExpr) -> bool {
    matches!(&tree.expr, Expr::Ident(name) if name == RESULT)
}

fn literal_value(literal: &LiteralValue) -> Value<'static> {
    match literal {
        LiteralValue::Boolean(value) => Value::Bool(*value.inner()),
        LiteralValue::Bytes(value) => Value::Bytes(Arc::from(value.inner())),
        LiteralValue::Double(value) => Value::Double(*value.inner()),
        LiteralValue::Int(value) => Value::Int(*value.inner()),
        LiteralValue::Null => Value::Null,
        LiteralValue::String(value) => Value::text(value.inner()),
        LiteralValue::UInt(value) => Value::Uint(*value.inner()),
    }
}

fn binary(name: &str) -> Option<Operator> {
    Some(match name {
        op::ADD => Operator::Add,
        op::SUBSTRACT => Operator::Subtract,
        op::MULTIPLY => Operator::Multiply,
        op::DIVIDE => Operator::Divide,
        op::MODULO => Operator::Modulo,
        op::EQUALS => Operator::Equal,
        op::NOT_EQUALS => Operator::NotEqual,
        op::LESS => Operator::Less,
        op::LESS_EQUALS => Operator::LessEqual,
        op::GREATER => Operator::Greater,
        op::GREATER_EQUALS => Operator::GreaterEqual,
        op::IN => Operator::In,
        _ => return None,
    })
}

/// The types whose names are one word, by which a variable that does not exist may be read.
pub(crate) fn plain_type(name: &str) -> Option<&'static str> {
    const NAMES: &[&str] = &[
        "bool",
        "bytes",
        "double",
        "int",
        "list",
        "map",
        "null_type",
        "optional_type",
        "string",
        "type",
        "uint",
    ];
    NAMES.iter().find(|known| **known == name).copied()
}

fn qualified_type(tree: &Expr) -> Option<&'static str> {
    let Expr::Select(last) = tree else { return None };
    let Expr::Select(middle) = &last.operand.expr else { return None };
    let Expr::Ident(first) = &middle.operand.expr else { return None };
    if last.test || first.trim_start_matches('.') != "google" || middle.field != "protobuf" {
        return None;
    }
    match last.field.as_str() {
        "Timestamp" => Some("google.protobuf.Timestamp"),
        "Duration" => Some("google.protobuf.Duration"),
        _ => None,
    }
}
