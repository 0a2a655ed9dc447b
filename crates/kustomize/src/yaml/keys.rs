//! The order in which go-yaml writes keys: natural, so that `a2` comes before `a10`.

use std::cmp::Ordering;

use crate::value::Value;

/// May the first of two keys come before the other?
pub(super) fn in_order(first: &str, second: &str) -> bool {
    natural(first, second) != Ordering::Greater
}

/// Sorts keys as go-yaml does: in natural order, so that `a2` comes before `a10`.
pub(super) fn sort_keys<'a>(entries: &mut [(&'a str, &'a Value)]) {
    // The order is not total for odd keys (`sort_by` may panic then), so this is a plain merge sort.
    let mut buffer = entries.to_vec();
    merge_sort(entries, &mut buffer);
}

fn merge_sort<'a>(entries: &mut [(&'a str, &'a Value)], buffer: &mut [(&'a str, &'a Value)]) {
    if entries.len() < 2 {
        return;
    }
    let middle = entries.len() / 2;
    let (left, right) = entries.split_at_mut(middle);
    let (buffer_left, buffer_right) = buffer.split_at_mut(middle);
    merge_sort(left, buffer_left);
    merge_sort(right, buffer_right);
    buffer.copy_from_slice(entries);
    let (left, right) = buffer.split_at(middle);
    let (mut i, mut j) = (0, 0);
    for slot in entries {
        let take_left = match (left.get(i), right.get(j)) {
            (Some(l), Some(r)) => natural(r.0, l.0) != Ordering::Less,
            (Some(_), None) => true,
            _ => false,
        };
        if take_left {
            *slot = left[i];
            i += 1;
        } else {
            *slot = right[j];
            j += 1;
        }
    }
}

/// Compares keys: letters after everything else, runs of digits by their number.
fn natural(a: &str, b: &str) -> Ordering {
    let common = a.bytes().zip(b.bytes()).take_while(|(x, y)| x == y).count();
    let mut start = common;
    while !a.is_char_boundary(start) || !b.is_char_boundary(start) {
        start -= 1;
    }
    let (Some(x), Some(y)) = (a[start..].chars().next(), b[start..].chars().next()) else {
        return a.len().cmp(&b.len());
    };
    match (is_letter(x), is_letter(y)) {
        (true, true) => return x.cmp(&y),
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    // A zero that follows a digit other than zero belongs to a number that goes on.
    let mut seed = 0_i64;
    if x == '0' || y == '0' {
        let digits = a[..start].chars().rev().take_while(|c| is_digit(*c));
        seed = i64::from(digits.into_iter().any(|c| c != '0'));
    }
    let run = |text: &str| {
        let mut number = seed;
        let mut count = 0_usize;
        for c in text[start..].chars().take_while(|c| is_digit(*c)) {
            number =
                number.wrapping_mul(10).wrapping_add(i64::from(u32::from(c)) - i64::from(u32::from('0')));
            count += 1;
        }
        (number, count)
    };
    run(a).cmp(&run(b)).then(x.cmp(&y))
}

fn is_letter(c: char) -> bool {
    c.is_alphabetic()
}

fn is_digit(c: char) -> bool {
    c.is_ascii_digit() || (!c.is_ascii() && c.is_numeric())
}
