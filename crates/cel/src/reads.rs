//! Which fields of a variable an expression reads, as far as its text says it.

use crate::node::Node;
use crate::value::{Text, Value};

/// Whether some part reads this field of this variable: as `variable.field`, `variable.?field`, `has(variable.field)` or
/// `variable['field']`.
pub(crate) fn reads(node: &Node, variable: &str, field: &str) -> bool {
    let is_variable = |node: &Node| matches!(node, Node::Variable(name) if **name == *variable);
    let any = |nodes: &[Node]| nodes.iter().any(|node| reads(node, variable, field));
    match node {
        Node::Literal(_) | Node::Variable(_) | Node::Local(_) | Node::Unknown(_) => false,
        Node::Select { operand, field: selected, .. } => {
            is_variable(operand) && **selected == *field || reads(operand, variable, field)
        }
        Node::Index { operand, index, .. } => {
            is_variable(operand) && is_text(index, field)
                || reads(operand, variable, field)
                || reads(index, variable, field)
        }
        Node::List(elements) => elements.iter().any(|(element, _)| reads(element, variable, field)),
        Node::Map(entries) => {
            entries.iter().any(|(key, value, _)| reads(key, variable, field) || reads(value, variable, field))
        }
        Node::And(pair)
        | Node::Or(pair)
        | Node::Operator(_, pair)
        | Node::OptionalOr { operands: pair, .. } => any(pair.as_slice()),
        Node::If(three) => any(three.as_slice()),
        Node::Not(operand) | Node::Negate(operand) => reads(operand, variable, field),
        Node::Call { arguments, .. } => any(arguments),
        Node::Matches { text, .. } => reads(text, variable, field),
        Node::Macro(inner) => {
            let condition = inner.condition.as_ref();
            reads(&inner.over, variable, field)
                || reads(&inner.body, variable, field)
                || condition.is_some_and(|condition| reads(condition, variable, field))
        }
    }
}

fn is_text(node: &Node, text: &str) -> bool {
    match node {
        Node::Literal(Value::String(Text::Borrowed(own))) => *own == text,
        Node::Literal(Value::String(Text::Shared(own))) => **own == *text,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::Expression;

    #[test]
    fn fields_are_found_wherever_they_are_read() {
        for text in [
            "claims.email",
            "claims.?email.orValue('')",
            "has(claims.email) ? 'a' : 'b'",
            "claims['email']",
            "claims.email.name == 'a' && true",
            "!(1 < 2 || claims.email == '')",
            "[1, claims.email]",
            "{'a': claims.email}",
            "claims.groups.filter(g, g == claims.email)",
            "claims.email.matches('a')",
            "string(claims.email)",
        ] {
            assert!(Expression::parse(text).unwrap().reads("claims", "email"), "{text}");
        }
        for text in ["claims.email_verified", "claims.user.email", "user.email", "'claims.email'", "email"] {
            assert!(!Expression::parse(text).unwrap().reads("claims", "email"), "{text}");
        }
    }
}
