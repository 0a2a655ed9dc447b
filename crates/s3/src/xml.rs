//! XML as object stores write it: elements with text in them, bounded in depth and length. Declarations of types, and entities
//! other than XML's own, are refused.

use std::io::BufRead;

use quick_xml::Reader;
use quick_xml::events::Event;

/// Elements in elements.
const MOST_DEPTH: usize = 12;
/// Bytes of an element's text, and of a path of names.
const MOST_TEXT: usize = 8 << 10;

/// What is told of each element at its end: the names on the way to it, such as `/List/Item`; its text; and whether it has an attribute
/// `Encoded="true"`.
pub type Found<'f> = dyn FnMut(&str, &str, bool) -> Result<(), String> + 'f;

/// Reads a document.
///
/// # Errors
/// It is not such a document, or `found` says so.
pub fn read(from: impl BufRead, found: &mut Found<'_>) -> Result<(), String> {
    let mut reader = Reader::from_reader(from);
    let (mut buffer, mut path, mut text) = (Vec::new(), String::new(), String::new());
    let mut encoded = false;
    let mut depth = 0_usize;
    loop {
        buffer.clear();
        match reader.read_event_into(&mut buffer).map_err(|error| error.to_string())? {
            Event::Start(start) => {
                enter(&mut path, start.local_name().into_inner())?;
                depth += 1;
                if depth > MOST_DEPTH {
                    return Err(format!("there are elements more than {MOST_DEPTH} deep"));
                }
                text.clear();
                encoded = is_encoded(&start);
            }
            Event::Empty(empty) => {
                let above = path.len();
                enter(&mut path, empty.local_name().into_inner())?;
                found(&path, "", false)?;
                path.truncate(above);
                text.clear();
            }
            Event::End(_) => {
                found(&path, &text, encoded)?;
                path.truncate(path.rfind('/').unwrap_or(0));
                depth = depth.saturating_sub(1);
                text.clear();
                encoded = false;
            }
            Event::Text(more) => add(&mut text, &more.xml10_content())?,
            Event::CData(more) => add(&mut text, &more.xml10_content())?,
            Event::GeneralRef(name) => {
                let own = match &*name {
                    "lt" => Some('<'),
                    "gt" => Some('>'),
                    "amp" => Some('&'),
                    "quot" => Some('"'),
                    "apos" => Some('\''),
                    _ => name.resolve_char_ref().map_err(|error| error.to_string())?,
                };
                let own = own.ok_or("it has an entity that is not XML's own")?;
                add(&mut text, own.encode_utf8(&mut [0; 4]))?;
            }
            Event::DocType(_) => return Err("it declares types".to_owned()),
            Event::Decl(_) | Event::PI(_) | Event::Comment(_) => {}
            Event::Eof if depth > 0 => return Err("it ends before its end".to_owned()),
            Event::Eof => return Ok(()),
        }
    }
}

fn enter(path: &mut String, name: &str) -> Result<(), String> {
    if path.len() + name.len() > MOST_TEXT {
        return Err("its elements have long names".to_owned());
    }
    path.push('/');
    path.push_str(name);
    Ok(())
}

fn add(text: &mut String, more: &str) -> Result<(), String> {
    if text.len() + more.len() > MOST_TEXT {
        return Err(format!("an element has more than {MOST_TEXT} bytes of text"));
    }
    text.push_str(more);
    Ok(())
}

fn is_encoded(start: &quick_xml::events::BytesStart<'_>) -> bool {
    let attribute = start.try_get_attribute("Encoded").ok().flatten();
    attribute.is_some_and(|attribute| attribute.value.eq_ignore_ascii_case("true"))
}

#[cfg(test)]
mod tests {
    fn read(text: &str) -> Result<Vec<(String, String, bool)>, String> {
        let mut all = Vec::new();
        super::read(text.as_bytes(), &mut |path, text, encoded| {
            all.push((path.to_owned(), text.to_owned(), encoded));
            Ok(())
        })?;
        Ok(all)
    }

    #[test]
    fn elements_are_told_at_their_ends() {
        let text = "<?xml version=\"1.0\"?><A xmlns=\"x\"><!-- c --><B Encoded=\"true\"> a&amp;&#x41;<![CDATA[<]]></B><p:C/>\n</A>";
        let all = read(text).unwrap();
        let of = |path: &str, text: &str, encoded| (path.to_owned(), text.to_owned(), encoded);
        assert_eq!(all, [of("/A/B", " a&A<", true), of("/A/C", "", false), of("/A", "\n", false)]);
    }

    #[test]
    fn what_is_not_plain_is_refused() {
        for text in [
            "<A>",
            "<A></B>",
            "<!DOCTYPE a [<!ENTITY x \"y\">]><A/>",
            "<A>&x;</A>",
            "<A>&#0;</A>",
            &format!("<A>{}</A>", "x".repeat(10_000)),
            &format!("<A>{}</A>", "&amp;".repeat(10_000)),
            &"<A>".repeat(100),
            &format!("<{}/>", "x".repeat(10_000)),
        ] {
            assert!(read(text).is_err(), "{}", text.chars().take(50).collect::<String>());
        }
    }
}
