//! Fuzzes the protocol: the first byte says whose message the rest is. What is read is converted to checked values, which
//! must be sayable and readable again.
#![no_main]

#[path = "../oracle.rs"]
mod oracle;

use oracle::{Allowance, hold};
use prost::Message as _;
use roadstead_model::{Dispatch, RelayedEvent};
use roadstead_proto::v1;
use roadstead_proto::{Finished, InventoryAck, InventoryIntent, Progress};

const ALLOWANCE: Allowance = Allowance { bytes: 600, nanos: 10_000 };

/// Decodes `$message`, converts it to the checked `$value`, and back.
macro_rules! round_trip {
    ($bytes:expr, $message:ty, $value:ty) => {
        if let Ok(message) = <$message>::decode($bytes)
            && let Ok(value) = <$value>::try_from(message)
        {
            let again = <$value>::try_from(<$message>::from(value.clone()));
            assert_eq!(again.ok(), Some(value));
        }
    };
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hold(bytes, ALLOWANCE, |bytes| {
    let Some((whose, bytes)) = bytes.split_first() else { return };
    match whose % 8 {
        0 => drop(v1::AgentMessage::decode(bytes)),
        1 => drop(v1::HubMessage::decode(bytes)),
        2 => round_trip!(bytes, v1::Dispatch, Dispatch),
        3 => round_trip!(bytes, v1::Finished, Finished),
        4 => round_trip!(bytes, v1::Progress, Progress),
        5 => round_trip!(bytes, v1::InventoryIntent, InventoryIntent),
        6 => round_trip!(bytes, v1::RelayedEvent, RelayedEvent),
        _ => round_trip!(bytes, v1::InventoryAck, InventoryAck),
    }
}));
