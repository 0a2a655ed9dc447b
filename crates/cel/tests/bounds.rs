//! What expressions that are meant to take long, or much memory, or the stack, are refused for, and what those that are
//! not refused take at most. One process measures, so these tests run one after the other.

use std::sync::Mutex;
use std::time::Duration;

use peak_alloc::PeakAlloc;
use roadstead_cel::{CelError, Expression};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// The memory is of the whole process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A debug build on a slow machine; others take a third of it.
const MOST_TIME: Duration = Duration::from_secs(4);
const MOST_BYTES: usize = 100 << 20;

/// An object of about 1 MiB in lists, maps and strings.
fn large() -> Value {
    let numbers: Vec<_> = (0..30_000).collect();
    let items: Vec<_> = (0..3_000)
        .map(|n| json!({ "name": format!("item-{n}"), "ready": true, "ports": [n, n + 1, n + 2], "labels": { "app": "web" } }))
        .collect();
    let map: serde_json::Map<_, _> = (0..10_000).map(|n| (format!("key-{n}"), json!(n))).collect();
    json!({
        "numbers": numbers,
        "items": items,
        "map": map,
        "text": "ab".repeat(150_000),
        "words": (0..5_000).map(|n| format!("word {n} of many")).collect::<Vec<_>>(),
        "date": "2024-01-01T00:00:00Z",
    })
}

/// How long this thread has worked, whatever else the machine does.
#[expect(clippy::unwrap_used, reason = "a thread's time is not before zero")]
fn worked() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
}

/// Evaluates an expression on the fields of an object, within the time and the memory.
#[expect(clippy::unwrap_used, reason = "a test's own object and expressions")]
fn measured(text: &str, object: &Value) -> Result<bool, CelError> {
    let variables: Vec<_> =
        object.as_object().unwrap().iter().map(|(name, value)| (name.as_str(), value)).collect();
    let expression = Expression::parse(text).unwrap();
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    let start = worked();
    let answer = expression.evaluate_bool(&variables);
    let (took, peak) = (worked().saturating_sub(start), MEMORY.peak_usage().saturating_sub(before));
    println!(
        "{took:>12.1?} {:>4} MiB {:?} {text}",
        peak >> 20,
        answer.as_ref().map_err(|error| matches!(error, CelError::Cost { .. }))
    );
    assert!(took < MOST_TIME, "{text} took {took:?}");
    assert!(peak < MOST_BYTES, "{text} took {peak} bytes");
    answer
}

#[test]
fn what_is_ordinary_has_an_answer_on_a_large_object() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let object = large();
    for text in [
        "items.all(i, i.ready && i.ports.all(p, p >= 0))",
        "items.filter(i, i.name.startsWith('item-1')).all(i, i.labels.app == 'web')",
        "items.map(i, i.ports.map(p, p * 2)).size() == 3000",
        "numbers.all(n, n >= 0) && numbers.exists(n, n == 29999)",
        "map.all(k, map[k] >= 0)",
        "words.all(w, w.matches('^word [0-9]+ of'))",
        "words.map(w, w.split(' ')[1]).join(',').size() > 0",
        "text.contains('abab') && !text.contains('bb')",
        "items == items && map == map",
        "[0, 100, 29999].all(x, numbers.exists(n, n == x))",
    ] {
        assert_eq!(measured(text, &object), Ok(true), "{text}");
    }
}

#[test]
fn what_would_take_too_long_is_refused_in_time() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let object = large();
    for text in [
        "numbers.all(a, numbers.all(b, numbers.all(c, true)))",
        "numbers.all(a, numbers.all(b, a + b >= 0))",
        "numbers.all(a, numbers.exists_one(b, b == a) || true)",
        "numbers.all(a, true || numbers == numbers) && numbers.all(a, numbers == numbers)",
        "numbers.all(a, items == items)",
        "numbers.all(a, map == map)",
        "numbers.all(a, a in numbers)",
        "numbers.all(a, sets.equivalent(numbers, numbers))",
        "sets.equivalent(numbers, numbers.map(n, n)) || sets.contains(words, words.map(w, w))",
        "numbers.all(a, text.contains('bb') || text.indexOf('bb') == -1)",
        "numbers.all(a, size(text) > 0)",
        "numbers.all(a, text.charAt(299999) == 'b')",
        "numbers.all(a, text.lastIndexOf('bb') == -1)",
        "numbers.all(a, text == text + '')",
        "numbers.map(a, text + text).size() == 0",
        "numbers.map(a, text.replace('a', 'bb')).size() == 0",
        "text.replace('', text).size() == 0",
        "text.replace('a', text.replace('a', text)).size() == 0",
        "numbers.map(a, text.split('')).size() == 0",
        "numbers.map(a, text.split('')).map(l, l.join(text)).size() == 0",
        "text.split('').join(text) == ''",
        "numbers.map(a, numbers + numbers).size() == 0",
        "numbers.map(a, [a, a, a, a, a, a, a, a, a, a]).map(l, l + l + l + l + l).map(l, l + l + l).size() == 0",
        "numbers.map(a, {a: {a: {a: {a: {a: [a, a, a]}}}}}).map(m, [m, {1: m}, {2: m}]).map(l, l + l + l).size() == 0",
        "numbers.map(a, base64.encode(bytes(text))).size() == 0",
        "numbers.map(a, string(bytes(text))).size() == 0",
        "numbers.map(a, strings.quote(text)).size() == 0",
        "numbers.map(a, text.reverse().upperAscii().lowerAscii()).size() == 0",
        "numbers.map(a, text.trim() + 'x').map(t, t.trim()).size() == 0",
        "numbers.all(a, items.map(i, i.name).join(',').size() > 0)",
        "numbers.all(a, !text.matches('c'))",
        "numbers.all(a, !text.matches('(a|b)*a(a|b){12}[^ab]'))",
        "words.all(w, words.all(v, !v.matches('x' + w)))",
        "numbers.all(a, numbers.all(b, timestamp(date) < timestamp(date) + duration('1h')))",
        "numbers.all(a, numbers.all(b, string(timestamp(date)).size() > 0))",
        "numbers.all(a, numbers.all(b, string(double(a) / 3.0).size() > 0))",
        "numbers.all(a, numbers.all(b, missing.x) || true)",
        "numbers.all(a, numbers.all(b, {1: 2, 2: 3, 3: 4}[1] == 2))",
        "numbers.all(a, numbers.all(b, optional.of(b).optMap(x, [x]).orValue([1]) == [b]))",
    ] {
        let answer = measured(text, &object);
        assert!(matches!(answer, Err(CelError::Cost { .. })), "{text}: {answer:?}");
    }
}

#[test]
fn what_passes_passes_in_time() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let object = large();
    for text in [
        "text.split('').size() > 0 || true",
        "text.substring(0, 100000).split('a').join('b').split('b').join('cc').size() > 0",
        "numbers.map(a, [a]).map(l, l + l).filter(l, l.size() == 2).size() > 0",
        "numbers.map(a, a).map(a, a).map(a, a).map(a, a).map(a, a).map(a, a).map(a, a).size() > 0",
    ] {
        assert_eq!(measured(text, &object), Ok(true), "{text}");
    }
}

#[test]
fn the_cost_is_not_hidden_by_what_is_around_it() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let object = large();
    let costly = "numbers.all(a, numbers.all(b, true))";
    for text in [
        format!("{costly} || true"),
        format!("!({costly} && false)"),
        format!("[1].exists(x, {costly} || true)"),
        format!("optional.none().or(optional.of({costly})).hasValue() || true"),
    ] {
        assert!(matches!(measured(&text, &object), Err(CelError::Cost { .. })), "{text}");
    }
}

/// What a pattern costs for a byte is what it takes: none that is accepted is slow, however much it looks at.
#[test]
fn patterns_are_slow_on_short_texts_only() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let object = large();
    for pattern in [
        "(a|b)*a(a|b){12}[^ab]",
        "(a?){40}[^ab]",
        "[ab]*a[ab]{40}[^ab]",
        "([ab]?){90}[^ab]",
        "([ab]?){300}[^ab]",
        "([ab]?){500}[^ab]",
        "([ab]?){1000}[^ab]",
        "(([ab]?){30}){30}[^ab]",
        "(?i)(\\\\pL|\\\\pN)+[^ab]",
        "(\\\\pL?){2}[^ab]",
        "(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)[^ab]",
    ] {
        for length in [299_999, 190_000, 49_000, 12_000] {
            let text = format!("!text.substring(0, {length}).matches('{pattern}')");
            assert!(matches!(measured(&text, &object), Ok(true) | Err(CelError::Cost { .. })), "{text}");
        }
    }
}

/// What the guard lets through is nested no deeper than a stack of 1 MiB can bear, half of what a worker thread has.
#[test]
fn nesting_needs_little_stack() {
    const DEEP: usize = 100_000;
    let parts = [
        "(",
        "[",
        "[[",
        "{",
        "{1:",
        "f(",
        "a[",
        "a[?",
        "a.all(x, ",
        "a.map(x, true, ",
        "!",
        "-",
        "!(",
        "-(",
        "a ? b : ",
        "(a ? ",
        "a.b",
        ".b",
        ".?b",
        "a + ",
        "a == ",
        "a && ",
        "a || ",
        "a in ",
        "1 - -",
        "a.f(",
        "a.f().",
        "'a' + ",
        "a,",
        "a < b ? ",
    ];
    let ends = ["", ")", "]", "}", "a", "1"];
    let all = std::thread::Builder::new().stack_size(1 << 20).spawn(move || {
        for part in parts {
            for count in [DEEP, 5_000, 1_000, 200, 128, 64, 30, 24, 20, 12] {
                for end in ends {
                    let text = format!("{}a{}", part.repeat(count), end.repeat(count));
                    if let Ok(expression) = Expression::parse(&text) {
                        let _ = expression.evaluate_bool(&[("a", &json!({ "b": 1 }))]);
                    }
                }
            }
        }
    });
    all.unwrap().join().unwrap();
}

#[test]
fn parsing_takes_little_time() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for part in [
        "1,",
        "a && ",
        "a || ",
        "a, ",
        "f(a), ",
        "[a], ",
        "{1: 2}, ",
        "a.b, ",
        "'a', ",
        "a b ",
        "? ",
        ": ",
        ") ",
        "] ",
        "} ",
        "@ ",
        "é ",
        "[ ] ",
        "a ? b : c, ",
        "1 + ",
        "(), ",
        "in ",
        "a.all(x, x), ",
        "a.all(x, x) && ",
        "has(a.b) && ",
        "{}, ",
        "&& ",
        "&&",
        "||",
        ",",
    ] {
        for (start, end) in [("", ""), ("[", "1]"), ("f(", "1)")] {
            let text = format!("{start}{}{end}", part.repeat((16_000) / part.len()));
            MEMORY.reset_peak_usage();
            let before = MEMORY.current_usage();
            let start = worked();
            let answer = Expression::parse(&text);
            let (took, peak) = (worked().saturating_sub(start), MEMORY.peak_usage().saturating_sub(before));
            println!(
                "{took:>12.1?} {:>4} MiB {} {}",
                peak >> 20,
                answer.is_ok(),
                &text.chars().take(10).collect::<String>()
            );
            assert!(took < MOST_TIME, "{part:?} took {took:?}");
            assert!(peak < MOST_BYTES, "{part:?} took {peak} bytes");
            if let Err(error) = answer {
                assert!(error.to_string().len() < 3_000, "{part:?}: {error}");
            }
        }
    }
}
