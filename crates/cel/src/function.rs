//! The functions, by their names, and what each is given.

use crate::budget::Budget;
use crate::error::{Answer, EvalProblem};
use crate::value::{Value, equal};
use crate::{convert, strings, time};

/// Names the functions: each with its name in CEL and how many arguments it takes, that which it is called on counted.
macro_rules! functions {
    ($($variant:ident $name:literal $arity:expr,)*) => {
        /// A function.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Function {
            $(#[doc = concat!("`", $name, "`")] $variant,)*
        }

        impl Function {
            const ALL: &'static [(&'static str, Self, std::ops::RangeInclusive<usize>)] =
                &[$(($name, Self::$variant, $arity),)*];
        }
    };
}

functions! {
    Size "size" 1..=1,
    Contains "contains" 2..=2,
    StartsWith "startsWith" 2..=2,
    EndsWith "endsWith" 2..=2,
    Matches "matches" 2..=2,
    Type "type" 1..=1,
    Dyn "dyn" 1..=1,
    Bool "bool" 1..=1,
    Bytes "bytes" 1..=1,
    Double "double" 1..=1,
    Int "int" 1..=1,
    Uint "uint" 1..=1,
    String "string" 1..=1,
    Timestamp "timestamp" 1..=1,
    Duration "duration" 1..=1,
    GetFullYear "getFullYear" 1..=2,
    GetMonth "getMonth" 1..=2,
    GetDate "getDate" 1..=2,
    GetDayOfMonth "getDayOfMonth" 1..=2,
    GetDayOfWeek "getDayOfWeek" 1..=2,
    GetDayOfYear "getDayOfYear" 1..=2,
    GetHours "getHours" 1..=2,
    GetMinutes "getMinutes" 1..=2,
    GetSeconds "getSeconds" 1..=2,
    GetMilliseconds "getMilliseconds" 1..=2,
    CharAt "charAt" 2..=2,
    IndexOf "indexOf" 2..=3,
    LastIndexOf "lastIndexOf" 2..=3,
    Join "join" 1..=2,
    LowerAscii "lowerAscii" 1..=1,
    UpperAscii "upperAscii" 1..=1,
    Quote "strings.quote" 1..=1,
    Replace "replace" 3..=4,
    Reverse "reverse" 1..=1,
    Split "split" 2..=3,
    Substring "substring" 2..=3,
    Trim "trim" 1..=1,
    SetsContains "sets.contains" 2..=2,
    SetsEquivalent "sets.equivalent" 2..=2,
    SetsIntersects "sets.intersects" 2..=2,
    Base64Encode "base64.encode" 1..=1,
    Base64Decode "base64.decode" 1..=1,
    OptionalOf "optional.of" 1..=1,
    OptionalOfNonZero "optional.ofNonZeroValue" 1..=1,
    OptionalNone "optional.none" 0..=0,
    OptionalUnwrap "optional.unwrap" 1..=1,
    UnwrapOpt "unwrapOpt" 1..=1,
    HasValue "hasValue" 1..=1,
    OptionalValue "value" 1..=1,
    First "first" 1..=1,
    Last "last" 1..=1,
}

impl Function {
    /// The function of a name; those of a namespace have it before a point.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, ..)| *known == name).map(|(_, function, _)| *function)
    }

    /// Its name, and whether it takes so many arguments.
    fn takes(self, count: usize) -> (&'static str, bool) {
        Self::ALL
            .iter()
            .find(|(_, function, _)| *function == self)
            .map_or(("", false), |(name, _, arity)| (*name, arity.contains(&count)))
    }

    /// Is a call of it with so many arguments wrong before it is evaluated?
    pub(crate) fn refuses(self, count: usize) -> Option<EvalProblem> {
        let one =
            Self::ALL.iter().any(|(_, function, arity)| *function == self && arity.start() == arity.end());
        let (name, takes) = self.takes(count);
        (one && !takes).then(|| EvalProblem::NoSuchOverload(name.into()))
    }

    /// Does it convert to a type? With a literal, that is done when the expression is parsed, and fails there.
    pub(crate) fn converts(self) -> bool {
        use Function as F;
        matches!(
            self,
            F::Bool | F::Bytes | F::Double | F::Int | F::Uint | F::String | F::Timestamp | F::Duration
        )
    }

    /// Calls it. What it reads and makes is taken from the budget first.
    pub(crate) fn call<'a>(self, arguments: &[Value<'a>], budget: &mut Budget) -> Answer<Value<'a>> {
        let (name, takes) = self.takes(arguments.len());
        let answer = match arguments {
            [] if self == Self::OptionalNone => Some(Value::Optional(None)),
            [first, rest @ ..] if takes => self.on(first, rest, budget)?,
            _ => None,
        };
        answer.ok_or_else(|| EvalProblem::NoSuchOverload(name.into()).into())
    }

    /// `None` where it does not take values of these types.
    fn on<'a>(self, first: &Value<'a>, rest: &[Value<'a>], budget: &mut Budget) -> Answer<Option<Value<'a>>> {
        use Function as F;
        Ok(match self {
            F::Size => size(first, budget)?,
            F::Matches => matches(first, rest, budget)?,
            F::Type => Some(Value::Type(first.type_name())),
            F::Dyn => Some(first.clone()),
            _ if self.converts() => Some(convert::convert(self, first, budget)?),
            F::GetFullYear
            | F::GetMonth
            | F::GetDate
            | F::GetDayOfMonth
            | F::GetDayOfWeek
            | F::GetDayOfYear
            | F::GetHours
            | F::GetMinutes
            | F::GetSeconds
            | F::GetMilliseconds => time::field(self, first, rest)?,
            F::SetsContains | F::SetsEquivalent | F::SetsIntersects => sets(self, first, rest, budget)?,
            F::Base64Encode | F::Base64Decode => strings::base64(self, first, budget)?,
            F::OptionalOf
            | F::OptionalOfNonZero
            | F::OptionalNone
            | F::OptionalUnwrap
            | F::UnwrapOpt
            | F::HasValue
            | F::OptionalValue
            | F::First
            | F::Last => optional(self, first, budget)?,
            _ => strings::call(self, first, rest, budget)?,
        })
    }
}

fn size<'a>(value: &Value<'a>, budget: &mut Budget) -> Answer<Option<Value<'a>>> {
    let size = match value {
        Value::String(text) => {
            budget.read(text.len())?;
            Some(text.chars().count())
        }
        Value::Bytes(bytes) => Some(bytes.len()),
        other => other.len(),
    };
    Ok(size.map(|size| Value::Int(i64::try_from(size).unwrap_or(i64::MAX))))
}

fn matches<'a>(text: &Value<'a>, pattern: &[Value<'a>], budget: &mut Budget) -> Answer<Option<Value<'a>>> {
    /// To compile a pattern up to four times, which is a few milliseconds at worst.
    const COMPILE_STEPS: u64 = 50_000;
    let (Value::String(text), [Value::String(pattern)]) = (text, pattern) else { return Ok(None) };
    budget.steps(COMPILE_STEPS)?;
    let pattern = crate::price::priced(pattern).map_err(|_| EvalProblem::Pattern)?;
    look(&pattern, text, budget).map(Some)
}

/// Looks for a pattern in a text.
pub(crate) fn look<'a>(pattern: &crate::node::Pattern, text: &str, budget: &mut Budget) -> Answer<Value<'a>> {
    budget.steps(1 + crate::budget::as_u64(text.len()).saturating_mul(pattern.steps))?;
    Ok(Value::Bool(pattern.regex.is_match(text)))
}

fn sets<'a>(
    function: Function,
    left: &Value<'a>,
    rest: &[Value<'a>],
    budget: &mut Budget,
) -> Answer<Option<Value<'a>>> {
    let [right] = rest else { return Ok(None) };
    if left.list_len().is_none() || right.list_len().is_none() {
        return Ok(None);
    }
    let answer = match function {
        Function::SetsContains => shared(right, left, budget, false)?,
        Function::SetsEquivalent => {
            shared(right, left, budget, false)? && shared(left, right, budget, false)?
        }
        _ => shared(left, right, budget, true)?,
    };
    Ok(Some(Value::Bool(answer)))
}

/// Is one, or is each element of a list in the other?
fn shared(elements: &Value<'_>, list: &Value<'_>, budget: &mut Budget, one: bool) -> Answer<bool> {
    for at in 0..elements.list_len().unwrap_or_default() {
        let Some(element) = elements.element(at) else { break };
        if is_in(&element, list, budget)? == one {
            return Ok(one);
        }
    }
    Ok(!one)
}

/// Is a value among the elements of a list?
pub(crate) fn is_in(value: &Value<'_>, list: &Value<'_>, budget: &mut Budget) -> Answer<bool> {
    for at in 0..list.list_len().unwrap_or_default() {
        let Some(element) = list.element(at) else { break };
        if equal(value, &element, budget)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn optional<'a>(function: Function, value: &Value<'a>, budget: &mut Budget) -> Answer<Option<Value<'a>>> {
    let found = match (function, value) {
        (Function::OptionalOf, value) => Value::some(value.clone()),
        (Function::OptionalOfNonZero, value) if value.is_zero() => Value::Optional(None),
        (Function::OptionalOfNonZero, value) => Value::some(value.clone()),
        (Function::HasValue, Value::Optional(value)) => Value::Bool(value.is_some()),
        (Function::OptionalValue, Value::Optional(value)) => match value {
            Some(value) => (**value).clone(),
            None => return Err(EvalProblem::NoValue.into()),
        },
        (Function::First | Function::Last, list) => {
            let Some(count) = list.list_len() else { return Ok(None) };
            let at = if function == Function::First { 0 } else { count.saturating_sub(1) };
            Value::Optional(list.element(at).map(std::sync::Arc::new))
        }
        (Function::OptionalUnwrap | Function::UnwrapOpt, list) => return unwrap_all(list, budget),
        _ => return Ok(None),
    };
    budget.list(0)?;
    Ok(Some(found))
}

/// The values of the optionals of a list that have one.
fn unwrap_all<'a>(list: &Value<'a>, budget: &mut Budget) -> Answer<Option<Value<'a>>> {
    let Some(count) = list.list_len() else { return Ok(None) };
    budget.list(count)?;
    let mut values = Vec::new();
    for element in (0..count).filter_map(|at| list.element(at)) {
        match element {
            Value::Optional(value) => values.extend(value.map(|value| (*value).clone())),
            _ => return Ok(None),
        }
    }
    Ok(Some(Value::list(values)))
}
