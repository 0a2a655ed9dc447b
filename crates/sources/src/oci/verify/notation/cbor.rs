//! Reads CBOR (RFC 8949) as signatures have it: one item and nothing behind it, of lengths that are said beforehand, with keys
//! that stand there once. Pure; the bytes are anyone's.

use crate::oci::verify::Unfit;

/// Items in all, and how deep they are in each other.
const MOST_ITEMS: usize = 1_000;
const MOST_DEPTH: usize = 16;

/// An item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Item {
    Integer(i64),
    Bytes(Vec<u8>),
    Text(String),
    List(Vec<Item>),
    /// Each key once.
    Map(Vec<(Item, Item)>),
    Tagged(u64, Box<Item>),
    /// A number with a fraction, true, null or the like, of which nothing here consists.
    Other,
}

impl Item {
    /// What a map has under a key.
    pub(super) fn get(&self, key: &Item) -> Option<&Item> {
        let Self::Map(entries) = self else { return None };
        entries.iter().find(|(own, _)| own == key).map(|(_, value)| value)
    }
}

/// Reads an item.
pub(super) fn parse(bytes: &[u8]) -> Result<Item, Unfit> {
    let mut reader = Reader { rest: bytes, items: 0 };
    let item = reader.item(0)?;
    if reader.rest.is_empty() { Ok(item) } else { Err(wrong("there is something behind it")) }
}

fn wrong(why: &str) -> Unfit {
    Unfit::new(format!("its CBOR cannot be read: {why}"))
}

struct Reader<'a> {
    rest: &'a [u8],
    items: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: u64) -> Result<&'a [u8], Unfit> {
        let count = usize::try_from(count).ok().filter(|count| *count <= self.rest.len());
        let (taken, rest) = self.rest.split_at(count.ok_or_else(|| wrong("it ends too early"))?);
        self.rest = rest;
        Ok(taken)
    }

    fn number(&mut self, bytes: u64) -> Result<u64, Unfit> {
        Ok(self.take(bytes)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// The type of an item, the five bits beside it, and the number that they stand for or announce.
    fn head(&mut self) -> Result<(u8, u8, u64), Unfit> {
        let first = self.take(1)?[0];
        let (kind, info) = (first >> 5, first & 31);
        let number = match info {
            0..=23 => u64::from(info),
            24..=27 => self.number(1 << (info - 24))?,
            31 => return Err(wrong("an item of a length that is not said")),
            _ => return Err(wrong("an item of an unknown kind")),
        };
        Ok((kind, info, number))
    }

    fn item(&mut self, depth: usize) -> Result<Item, Unfit> {
        self.items += 1;
        if self.items > MOST_ITEMS || depth > MOST_DEPTH {
            return Err(wrong("it has too many items, or too deep ones"));
        }
        let (kind, info, number) = self.head()?;
        match kind {
            0 => i64::try_from(number).map(Item::Integer).map_err(|_| wrong("a number is too large")),
            1 => i64::try_from(number)
                .map(|n| Item::Integer(-1 - n))
                .map_err(|_| wrong("a number is too small")),
            2 => Ok(Item::Bytes(self.take(number)?.to_vec())),
            3 => {
                let text =
                    std::str::from_utf8(self.take(number)?).map_err(|_| wrong("a text is not UTF-8"))?;
                Ok(Item::Text(text.to_owned()))
            }
            4 => {
                let mut list = Vec::new();
                for _ in 0..number {
                    list.push(self.item(depth + 1)?);
                }
                Ok(Item::List(list))
            }
            5 => self.map(number, depth),
            6 => Ok(Item::Tagged(number, Box::new(self.item(depth + 1)?))),
            _ if info == 24 && number < 32 => Err(wrong("an item of an unknown kind")),
            _ => Ok(Item::Other),
        }
    }

    fn map(&mut self, count: u64, depth: usize) -> Result<Item, Unfit> {
        let mut entries: Vec<(Item, Item)> = Vec::new();
        for _ in 0..count {
            let key = self.item(depth + 1)?;
            if !matches!(key, Item::Integer(_) | Item::Text(_)) {
                return Err(wrong("a key is neither a number nor a text"));
            }
            if entries.iter().any(|(other, _)| *other == key) {
                return Err(wrong("a key stands there twice"));
            }
            let value = self.item(depth + 1)?;
            entries.push((key, value));
        }
        Ok(Item::Map(entries))
    }
}
