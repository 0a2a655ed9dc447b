//! How much of anything one side takes from the other. Both sides send within these and refuse what is beyond them.

/// An encoded message, in bytes; for tonic's limits on decoding and encoding. [`MAX_OBJECTS`] change-set entries and as
/// many inventory entries of a common size fit.
pub const MAX_MESSAGE_BYTES: usize = 8 * 1024 * 1024;

/// Objects in one list: an inventory, a change set, the objects of a wait.
pub const MAX_OBJECTS: usize = roadstead_model::MAX_OBJECTS;

/// Steps of one dispatch.
pub const MAX_STEPS: usize = 64;

/// Groups of one dispatch.
pub const MAX_GROUPS: usize = 64;

/// Dispatch keys in each list of a `Hello`.
pub const MAX_RUNNING: usize = 20_000;

/// Dispatches in a `Hello` that were seen, the newest: each session begins with them, so they are to fit into the memory that a small hub has
/// for first messages.
pub const MAX_SEEN: usize = 2_000;

/// Timings in one `Finished`: of each step, one for each of its stages.
pub const MAX_TIMINGS: usize = 5 * MAX_STEPS;

/// Kustomizations of a Flux whose inventories one dispatch reads in.
pub const MAX_FLUX_KUSTOMIZATIONS: usize = 16;

/// Managers of fields that one group takes over from, besides Flux's.
pub const MAX_ADOPTED_MANAGERS: usize = 20;

/// Objects that the steps of one dispatch read.
pub const MAX_READS: usize = 100;

/// The JSON of all objects that one dispatch reads, in bytes.
pub const MAX_READ_BYTES: usize = 1024 * 1024;

/// ConfigMaps and Secrets that hold the variables of one dispatch.
pub const MAX_VARIABLE_OBJECTS: usize = 256;

/// Rules of one dispatch by which the health of kinds is told.
pub const MAX_HEALTH_EXPRS: usize = 256;

/// Rules of one group for fields that are left as they are.
pub const MAX_IGNORE_RULES: usize = 100;

/// Fields in one such rule.
pub const MAX_IGNORE_PATHS: usize = 100;

/// Objects in one correction; more are told in several.
pub const MAX_CORRECTED: usize = 500;

/// Objects in one report of health; of more, the others are told by the next ones.
pub const MAX_REPORTED: usize = 500;

/// What such a report says of all of them, in bytes.
pub const MAX_REPORT_BYTES: usize = 4 * 1024;

/// Appliers in one message of what an agent tends; more are told in several.
pub const MAX_TENDED: usize = 5_000;

/// Events of Flux's in one message; more are told in several.
pub const MAX_RELAYED: usize = 50;

/// Keys of the metadata of one such event.
pub const MAX_RELAYED_METADATA: usize = 50;

/// Keys and values of the metadata of one such event, in bytes.
pub const MAX_RELAYED_METADATA_BYTES: usize = 8 * 1024;

/// Managers that are named of a corrected object, and fields.
pub const MAX_CORRECTED_MANAGERS: usize = 5;

/// Objects in one `DriftReport`.
pub const MAX_DRIFTED: usize = 100;

/// Entries of `AgentState.unwatched`.
pub const MAX_UNWATCHED: usize = 20;

/// A value in a `FieldDrift`, in bytes.
pub const MAX_DRIFT_VALUE_BYTES: usize = 512;

/// See [`MAX_CORRECTED_MANAGERS`].
pub const MAX_CORRECTED_FIELDS: usize = 20;

/// The name of a manager, and a field's pointer, in bytes.
pub const MAX_CORRECTED_NAME_BYTES: usize = 512;

/// Variables of one dispatch.
pub const MAX_VARIABLES: usize = 20_000;

/// Deletions of one dispatch that each wait for a confirmation of their own.
pub const MAX_HELD: usize = 64;

/// Warnings of one dispatch. What goes beyond that is counted in the last of them.
pub const MAX_WARNINGS: usize = 16;

/// Master keys that a result names.
pub const MAX_DECRYPTED_WITH: usize = 20;

/// Data keys that come with one dispatch.
pub const MAX_DATA_KEYS: usize = 2_000;

/// The bytes of one data key, or of what stands in its place.
pub const MAX_DATA_KEY_BYTES: usize = 256;

/// Names and values of all variables that come with one dispatch, in bytes.
pub const MAX_VARIABLE_BYTES: usize = 2 * 1024 * 1024;

/// A build's uncompressed JSON, in bytes.
pub const MAX_BUILD_BYTES: usize = 64 * 1024 * 1024;

/// A build as it travels, gzip-compressed, in bytes.
pub const MAX_BUILD_COMPRESSED_BYTES: usize = 16 * 1024 * 1024;

/// The data of one `BuildChunk`, in bytes: small, so that a big build never holds up a heartbeat for long.
pub const BUILD_CHUNK_BYTES: usize = 256 * 1024;

/// Text for people (a failure's message, a refusal), in bytes. [`bounded`] cuts to it.
pub const MAX_TEXT_BYTES: usize = 16 * 1024;

/// A PEM document (a CSR, a certificate chain), in bytes.
pub const MAX_PEM_BYTES: usize = 64 * 1024;

/// An API group or a namespace is a DNS name; a kind and a version are DNS labels in length.
pub const MAX_DNS_NAME_BYTES: usize = 253;

/// See [`MAX_DNS_NAME_BYTES`].
pub const MAX_DNS_LABEL_BYTES: usize = 63;

/// An object's name, in bytes. Most kinds stop at 253; RBAC's take any path segment, and controllers derive long ones.
pub const MAX_OBJECT_NAME_BYTES: usize = 512;

/// `text` as the other side takes it: cut at a character's end to at most [`MAX_TEXT_BYTES`], and plain (a control
/// character other than newline and tab becomes a space).
#[must_use]
pub fn bounded(text: &str) -> String {
    const MARK: &str = "…";
    let plain = |c: char| if c.is_control() && c != '\n' && c != '\t' { ' ' } else { c };
    if text.len() <= MAX_TEXT_BYTES {
        return text.chars().map(plain).collect();
    }
    let end = text.floor_char_boundary(MAX_TEXT_BYTES - MARK.len());
    text[..end].chars().map(plain).chain(MARK.chars()).collect()
}

/// Whether `message` is within [`MAX_MESSAGE_BYTES`]: to be asked before sending, since the other side ends a session
/// in which a larger one comes.
#[must_use]
pub fn fits(message: &impl prost::Message) -> bool {
    message.encoded_len() <= MAX_MESSAGE_BYTES
}

#[cfg(test)]
mod tests {
    use super::{MAX_TEXT_BYTES, bounded};

    #[test]
    fn long_texts_are_cut_between_characters() {
        let text = bounded(&"é".repeat(MAX_TEXT_BYTES));
        assert!(text.len() <= MAX_TEXT_BYTES && text.ends_with('…'));
        assert_eq!(bounded("short\nand\rplain\u{7f}"), "short\nand plain ");
    }
}
