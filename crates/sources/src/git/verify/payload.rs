//! Which bytes of an object its signature is over, and which the signature is.

/// An object and its signature.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Signed {
    /// What is signed.
    pub(super) payload: Vec<u8>,
    /// The signature, if there is one.
    pub(super) signature: Option<Vec<u8>>,
    /// The name in a tag.
    pub(super) name: Option<Vec<u8>>,
}

const ODD: &str = "its headers are not those that Git writes";
const TWICE: &str = "it has the same header twice";

/// Headers that an object has once.
const ONCE: [&[u8]; 9] =
    [b"tree", b"author", b"committer", b"encoding", b"gpgsig", b"object", b"type", b"tag", b"tagger"];

impl Signed {
    /// Of a commit: its signature is a header.
    pub(super) fn commit(bytes: &[u8]) -> Result<Self, &'static str> {
        let (headers, rest) = split(bytes)?;
        let order = |name: &[u8]| match name {
            b"tree" => 0,
            b"parent" => 1,
            b"author" => 2,
            b"committer" => 3,
            _ => 4,
        };
        let mut payload = Vec::with_capacity(bytes.len());
        let mut signature = None;
        let mut seen: Vec<&[u8]> = Vec::new();
        let mut last = None;
        for header in fields(headers) {
            let name = header.name?;
            once(&mut seen, name)?;
            // Nobody is to read another commit out of it than Git does.
            let place = order(name);
            if last.map_or(place != 0, |last| place < last) {
                return Err(ODD);
            }
            last = Some(place);
            match name {
                b"gpgsig" => signature = Some(header.value()),
                b"gpgsig-sha256" => {
                    return Err("it is signed for Git's SHA-256 object format, which is not supported");
                }
                _ => payload.extend_from_slice(header.whole),
            }
        }
        payload.extend_from_slice(rest);
        Ok(Self { payload, signature, name: None })
    }

    /// Of a tag: its signature is the end of its message.
    pub(super) fn tag(bytes: &[u8]) -> Result<Self, &'static str> {
        let (headers, rest) = split(bytes)?;
        let mut seen: Vec<&[u8]> = Vec::new();
        let mut name = None;
        for header in fields(headers) {
            let field = header.name?;
            once(&mut seen, field)?;
            match field {
                b"tag" => name = Some(header.value()),
                b"gpgsig" | b"gpgsig-sha256" => return Err(ODD),
                _ => {}
            }
        }
        if seen.get(..3) != Some(&[b"object".as_slice(), b"type", b"tag"]) {
            return Err(ODD);
        }
        let message = bytes.len() - rest.len();
        // As Git does: the last line that a signature can begin with.
        let mut at = message;
        let mut begin = None;
        for line in rest.split_inclusive(|byte| *byte == b'\n') {
            if Format::of(line).is_some() {
                begin = Some(at);
            }
            at += line.len();
        }
        let end = begin.unwrap_or(bytes.len());
        let signature = begin.map(|begin| bytes[begin..].to_vec());
        Ok(Self { payload: bytes[..end].to_vec(), signature, name })
    }
}

fn once<'a>(seen: &mut Vec<&'a [u8]>, name: &'a [u8]) -> Result<(), &'static str> {
    if ONCE.contains(&name) && seen.contains(&name) {
        return Err(TWICE);
    }
    // Parents are many.
    if name != b"parent" && seen.len() < ONCE.len() * 2 {
        seen.push(name);
    }
    Ok(())
}

/// Headers, and the rest with the empty line before it.
fn split(bytes: &[u8]) -> Result<(&[u8], &[u8]), &'static str> {
    let end = bytes.windows(2).position(|window| window == b"\n\n").map(|at| at + 1);
    let (headers, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
    if headers.contains(&0) { Err(ODD) } else { Ok((headers, rest)) }
}

/// A header with the lines that go on with it.
struct Field<'a> {
    whole: &'a [u8],
    name: Result<&'a [u8], &'static str>,
}

impl Field<'_> {
    /// Its value, without what marks that it goes on.
    fn value(&self) -> Vec<u8> {
        let value =
            self.whole.iter().position(|byte| *byte == b' ').map_or(&[][..], |at| &self.whole[at + 1..]);
        let mut out = Vec::with_capacity(value.len());
        for (index, line) in value.split_inclusive(|byte| *byte == b'\n').enumerate() {
            out.extend_from_slice(if index == 0 { line } else { line.strip_prefix(b" ").unwrap_or(line) });
        }
        if out.last() == Some(&b'\n') {
            out.pop();
        }
        out
    }
}

fn fields(headers: &[u8]) -> impl Iterator<Item = Field<'_>> {
    let mut left = headers;
    std::iter::from_fn(move || {
        if left.is_empty() {
            return None;
        }
        let mut end = 0;
        loop {
            end = left[end..].iter().position(|byte| *byte == b'\n').map_or(left.len(), |at| end + at + 1);
            if left.get(end) != Some(&b' ') {
                break;
            }
        }
        let (whole, rest) = left.split_at(end);
        left = rest;
        let name = whole.split(|byte| matches!(byte, b' ' | b'\n')).next().unwrap_or_default();
        let name = if name.is_empty() { Err(ODD) } else { Ok(name) };
        Some(Field { whole, name })
    })
}

/// Of which form a signature is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    OpenPgp,
    Ssh,
    X509,
}

impl Format {
    /// By how it begins.
    pub(super) fn of(text: &[u8]) -> Option<Self> {
        for (begin, format) in [
            (&b"-----BEGIN PGP SIGNATURE-----"[..], Self::OpenPgp),
            (b"-----BEGIN PGP MESSAGE-----", Self::OpenPgp),
            (b"-----BEGIN SSH SIGNATURE-----", Self::Ssh),
            (b"-----BEGIN SIGNED MESSAGE-----", Self::X509),
        ] {
            if text.starts_with(begin) {
                return Some(format);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &[u8] = b"tree 1\nparent 2\nparent 3\nauthor a\ncommitter c\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n abc\n -----END PGP SIGNATURE-----\nmergetag object 4\n type commit\n\nmessage\n\ngpgsig not\n";

    #[test]
    fn a_commit_without_its_signature_is_what_is_signed() {
        let signed = Signed::commit(COMMIT).unwrap();
        assert_eq!(
            String::from_utf8_lossy(&signed.payload),
            "tree 1\nparent 2\nparent 3\nauthor a\ncommitter c\nmergetag object 4\n type commit\n\nmessage\n\ngpgsig not\n"
        );
        assert_eq!(
            signed.signature.unwrap(),
            b"-----BEGIN PGP SIGNATURE-----\n\nabc\n-----END PGP SIGNATURE-----"
        );
        let unsigned = b"tree 1\nauthor a\ncommitter c\n\nm";
        let signed = Signed::commit(unsigned).unwrap();
        assert_eq!((signed.signature, signed.payload.as_slice()), (None, &unsigned[..]));
    }

    #[test]
    fn a_commit_that_can_be_read_in_two_ways_is_refused() {
        for bad in [
            &b"tree 1\ntree 2\nauthor a\ncommitter c\n\n"[..],
            b"tree 1\nauthor a\ncommitter c\ngpgsig x\ngpgsig y\n\n",
            b"tree 1\nauthor a\nauthor b\ncommitter c\n\n",
            b"tree 1\nauthor a\ncommitter c\nencoding x\nencoding y\n\n",
            b"tree 1\nauthor a\ncommitter c\ngpgsig x\ntree 2\n\n",
            b"tree 1\nauthor a\ncommitter c\ngpgsig x\nparent 2\n\n",
            b"gpgsig x\ntree 1\nauthor a\ncommitter c\n\n",
            b" x\ntree 1\nauthor a\ncommitter c\n\n",
            b"tree 1\0\nauthor a\ncommitter c\n\n",
            b"tree 1\nauthor a\ncommitter c\ngpgsig-sha256 x\n\n",
        ] {
            assert!(Signed::commit(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn a_tag_ends_with_its_signature() {
        let tag = b"object 1\ntype commit\ntag v1\ntagger t\n\nmessage\n-----BEGIN SSH SIGNATURE-----\nx\n-----END SSH SIGNATURE-----\n";
        let signed = Signed::tag(tag).unwrap();
        assert_eq!(signed.payload, b"object 1\ntype commit\ntag v1\ntagger t\n\nmessage\n");
        assert_eq!(signed.name.unwrap(), b"v1");
        assert!(signed.signature.unwrap().starts_with(b"-----BEGIN SSH SIGNATURE-----\nx\n"));
        assert_eq!(Signed::tag(b"object 1\ntype commit\ntag v1\n\nm").unwrap().signature, None);
        for bad in [
            &b"object 1\nobject 2\ntype commit\ntag v1\n\n"[..],
            b"object 1\ntype commit\ntag v1\ntag v2\n\n",
            b"type commit\nobject 1\ntag v1\n\n",
            b"object 1\ntype commit\ntag v1\ngpgsig x\n\n",
        ] {
            assert!(Signed::tag(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
    }
}
