//! How messages are read off the wire: as prost does, and only if they do not unpack to many times their size.
//!
//! An empty element of a list takes two bytes on the wire and more than a hundred in memory, so a message that is within
//! the limit of bytes could take sixty times as much before anybody counts its elements. They are counted first.

use std::marker::PhantomData;

use prost::Message;
use prost::bytes::Buf as _;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::ProstEncoder;

use crate::limits::{MAX_OBJECTS, MAX_TIMINGS};

/// Elements of all lists of one message.
const MAX_ELEMENTS: usize = 2 * MAX_OBJECTS + MAX_TIMINGS + FEW_ELEMENTS;
/// What a message has besides its lists: its body, its dispatch's key, a failure.
const FEW_ELEMENTS: usize = 64;
/// Elements that are taken whatever their size: a message with so few is small in memory.
const FREE_ELEMENTS: usize = MAX_TIMINGS + FEW_ELEMENTS;
/// On average no element that means something is smaller: a reference names a version, a kind and an object.
const MIN_ELEMENT_BYTES: usize = 10;

/// [`tonic_prost::ProstCodec`] whose decoder refuses messages that unpack to many times their size.
#[derive(Debug, Clone)]
pub struct BoundedCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for BoundedCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for BoundedCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = BoundedDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> Self::Decoder {
        BoundedDecoder(PhantomData)
    }
}

/// The decoder of [`BoundedCodec`].
#[derive(Debug, Clone)]
pub struct BoundedDecoder<U>(PhantomData<U>);

impl<U: Message + Default> Decoder for BoundedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        let bytes = buffer.copy_to_bytes(buffer.remaining());
        check(&bytes).map_err(Status::invalid_argument)?;
        U::decode(bytes).map(Some).map_err(|error| Status::invalid_argument(error.to_string()))
    }
}

/// How many elements a message of so many bytes has at most, where it is not refused: so it is known before it is read.
#[must_use]
pub fn most_elements(bytes: usize) -> usize {
    // Each takes a tag and a length at least.
    MAX_ELEMENTS.min(FREE_ELEMENTS + bytes / MIN_ELEMENT_BYTES).min(bytes / 2)
}

/// Whether a message's bodies have no more elements than can mean something.
fn check(message: &[u8]) -> Result<(), String> {
    let elements = elements(message).ok_or("a message is not readable")?;
    let most = most_elements(message.len());
    if elements > most {
        return Err(format!(
            "a message of {} bytes has {elements} elements, at most {most} are taken",
            message.len()
        ));
    }
    Ok(())
}

/// The length-delimited fields two levels deep: a message's bodies, and the elements of their lists. All occurrences are
/// counted together, since a body that comes twice is merged into one. None where the bytes are not a message.
fn elements(mut message: &[u8]) -> Option<usize> {
    let mut count = 0;
    while !message.is_empty() {
        if let Some(mut body) = field(&mut message)? {
            while !body.is_empty() {
                count += usize::from(field(&mut body)?.is_some());
            }
        }
    }
    Some(count)
}

/// Takes a field off the front; its content where it is length-delimited. The outer none: there is no field.
fn field<'a>(bytes: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let length = match varint(bytes)? & 7 {
        0 => {
            varint(bytes)?;
            return Some(None);
        }
        1 => 8,
        2 => {
            let length = usize::try_from(varint(bytes)?).ok()?;
            return take(bytes, length).map(Some);
        }
        5 => 4,
        // Groups are in no version of this protocol.
        _ => return None,
    };
    take(bytes, length).map(|_| None)
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (head, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(head)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or_default();
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::{
        AgentMessage, DispatchKey, Finished, InventoryIntent, ObjectRef, ObjectResult, StageTiming,
        agent_message::Body,
    };

    fn message(body: Body) -> Vec<u8> {
        AgentMessage { seq: 7, ack: 3, body: Some(body) }.encode_to_vec()
    }

    fn object(name: &str) -> ObjectRef {
        ObjectRef {
            version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            name: name.to_owned(),
            ..ObjectRef::default()
        }
    }

    #[test]
    fn the_largest_honest_messages_are_read() {
        let objects: Vec<ObjectRef> = (0..MAX_OBJECTS).map(|number| object(&number.to_string())).collect();
        let change = |object: &ObjectRef| ObjectResult { object: Some(object.clone()), action: 1 };
        let finished = Finished {
            key: Some(DispatchKey::default()),
            change_set: objects.iter().map(change).collect(),
            inventory: objects.clone(),
            timings: vec![StageTiming { stage: 1, micros: 1, step: Some(63) }; MAX_TIMINGS],
            reads: vec![],
            found: vec![],
            failure: None,
            held: Vec::new(),
            warnings: Vec::new(),
            decrypted_with: Vec::new(),
        };
        assert_eq!(check(&message(Body::Finished(finished))), Ok(()));
        let intent = InventoryIntent { key: None, objects };
        assert_eq!(check(&message(Body::InventoryIntent(intent))), Ok(()));
        assert_eq!(check(&message(Body::Heartbeat(crate::v1::Heartbeat {}))), Ok(()));
    }

    #[test]
    fn a_message_that_unpacks_to_many_times_its_size_is_refused() {
        let empty = |count| InventoryIntent { key: None, objects: vec![ObjectRef::default(); count] };
        assert!(check(&message(Body::InventoryIntent(empty(1_000)))).is_err());
        assert!(check(&message(Body::InventoryIntent(empty(4_000_000)))).is_err());
        // In many bodies, which are merged.
        let one = message(Body::InventoryIntent(empty(250)));
        assert_eq!(check(&one), Ok(()));
        assert!(check(&one.repeat(100)).is_err());
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for bytes in [&[0xff_u8; 11][..], &[0x52, 0xff], &[0x52], &[0x53, 0x54], &[0x51, 1, 2]] {
            assert!(check(bytes).is_err(), "{bytes:?}");
        }
        assert_eq!(check(&[0x51, 1, 2, 3, 4, 5, 6, 7, 8, 0x55, 1, 2, 3, 4, 8, 1]), Ok(()));
    }
}
