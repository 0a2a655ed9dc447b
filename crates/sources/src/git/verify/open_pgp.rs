//! Signatures as `gpg` makes them.
//!
//! A signature counts if a key of the user's made it and if that key may sign now: neither it nor what it belongs to is
//! expired or revoked, and a subkey is bound to its primary key in both directions. What a key says of itself counts where its
//! own signature says so, and the newest of those decides.

use pgp::composed::{Deserializable, DetachedSignature, SignedPublicKey, SignedPublicSubKey};
use pgp::crypto::hash::HashAlgorithm;
use pgp::packet::{Signature, SignatureType, SubpacketData};
use pgp::types::{Duration, KeyDetails, Tag, Timestamp};

/// Signatures in one block that are looked at.
const MOST_SIGNATURES: usize = 8;
/// Keys that are looked at, in all blocks.
const MOST_KEYS: usize = 1_000;
/// By how much a signer's clock may be ahead.
const AHEAD: u64 = 3_600;

/// What a signature is over: one over text says nothing of the same bytes as an object, nor the reverse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    /// Bytes.
    Bytes,
    /// Text, with CRLF at the ends of its lines.
    Text,
}

/// What is said to be signed, and how.
pub(super) struct Payload<'a> {
    pub(super) over: Over,
    pub(super) bytes: &'a [u8],
}

/// Whether one of the keys made this signature and may: its primary key's id, or why not.
pub(super) fn verify(text: &str, payload: &Payload<'_>, blocks: &[&str], now: u64) -> Result<String, String> {
    if text.starts_with("-----BEGIN PGP MESSAGE-----") {
        return Err("what it has is an OpenPGP message, and no signature".to_owned());
    }
    let damaged = || "its OpenPGP signature is damaged".to_owned();
    let (signatures, _) = DetachedSignature::from_string_many(text).map_err(|_| damaged())?;
    let signatures: Vec<Signature> =
        signatures.take(MOST_SIGNATURES).filter_map(Result::ok).map(|one| one.signature).collect();
    if signatures.is_empty() {
        return Err(damaged());
    }
    let (keys, unread) = read(blocks);
    let mut why = None;
    for signature in &signatures {
        match by_any(signature, payload, &keys, now) {
            Ok(id) => return Ok(id),
            Err(reason) => why = why.or(Some(reason)),
        }
    }
    let mut why = why.unwrap_or_else(damaged);
    if unread > 0 {
        why += &format!(" (of the keys in the Secret {unread} cannot be read)");
    }
    Err(why)
}

/// The keys that can be read, and how many cannot.
fn read(blocks: &[&str]) -> (Vec<SignedPublicKey>, usize) {
    let (mut keys, mut unread) = (Vec::new(), 0);
    for block in blocks {
        let Ok((found, _)) = SignedPublicKey::from_string_many(block) else {
            unread += 1;
            continue;
        };
        for key in found {
            match key {
                Ok(key) if keys.len() < MOST_KEYS => add(&mut keys, key),
                _ => unread += 1,
            }
        }
    }
    (keys, unread)
}

/// Of one key there is one, with all that is known of it: a copy from before it was revoked does not make up for that.
fn add(keys: &mut Vec<SignedPublicKey>, key: SignedPublicKey) {
    let Some(known) = keys.iter_mut().find(|known| known.primary_key == key.primary_key) else {
        keys.push(key);
        return;
    };
    known.details.revocation_signatures.extend(key.details.revocation_signatures);
    known.details.direct_signatures.extend(key.details.direct_signatures);
    known.details.users.extend(key.details.users);
    for subkey in key.public_subkeys {
        match known.public_subkeys.iter_mut().find(|one| one.key == subkey.key) {
            Some(one) => one.signatures.extend(subkey.signatures),
            None => known.public_subkeys.push(subkey),
        }
    }
}

/// The primary key's id, as `gpg` shows it.
fn id(key: &SignedPublicKey) -> String {
    format!("{}", key.primary_key.legacy_key_id()).to_ascii_uppercase()
}

fn by_any(
    signature: &Signature,
    payload: &Payload<'_>,
    keys: &[SignedPublicKey],
    now: u64,
) -> Result<String, String> {
    let (of_type, named) = match payload.over {
        Over::Bytes => (SignatureType::Binary, "bytes"),
        Over::Text => (SignatureType::Text, "text"),
    };
    if signature.typ() != Some(of_type) {
        return Err(format!("its OpenPGP signature is not one over {named}"));
    }
    if !signature.hash_alg().is_some_and(is_safe) {
        return Err("its OpenPGP signature is made with a hash that is not safe any more".to_owned());
    }
    let mut known = None;
    for key in keys {
        let name = id(key);
        let made_by = |is_it: bool, why: &dyn Fn() -> Result<(), String>| -> Option<Result<String, String>> {
            is_it.then(|| {
                why()
                    .map(|()| name.clone())
                    .map_err(|why| format!("it was signed by OpenPGP key '{name}': {why}"))
            })
        };
        let primary = signature.verify(&key.primary_key, payload.bytes).is_ok();
        let mut made = made_by(primary, &|| primary_may_sign(key, now));
        for subkey in &key.public_subkeys {
            let by_subkey = made.is_none() && signature.verify(&subkey.key, payload.bytes).is_ok();
            made = made.or_else(|| made_by(by_subkey, &|| subkey_may_sign(key, subkey, now)));
        }
        match made {
            Some(Ok(name)) => return is_timely(signature, now).map(|()| name),
            Some(Err(why)) => return Err(why),
            None if names(signature, key) => known = known.or(Some(name)),
            None => {}
        }
    }
    Err(match known {
        Some(name) => format!("its signature by OpenPGP key '{name}' is bad: it is over something else"),
        None => format!(
            "no matching key: it was signed by OpenPGP key '{}', which the Secret does not have",
            issuer(signature)
        ),
    })
}

fn is_safe(hash: HashAlgorithm) -> bool {
    matches!(
        hash,
        HashAlgorithm::Sha224
            | HashAlgorithm::Sha256
            | HashAlgorithm::Sha384
            | HashAlgorithm::Sha512
            | HashAlgorithm::Sha3_256
            | HashAlgorithm::Sha3_512
    )
}

/// Whether a signature says that this key, or one of its subkeys, made it. Anybody can write that.
fn names(signature: &Signature, key: &SignedPublicKey) -> bool {
    let named = |one: &dyn Fn() -> (pgp::types::KeyId, pgp::types::Fingerprint)| {
        let (id, fingerprint) = one();
        signature.issuer_key_id().contains(&&id) || signature.issuer_fingerprint().contains(&&fingerprint)
    };
    let of_primary = || (key.primary_key.legacy_key_id(), key.primary_key.fingerprint());
    named(&of_primary)
        || key.public_subkeys.iter().any(|one| named(&|| (one.key.legacy_key_id(), one.key.fingerprint())))
}

/// Whom a signature names.
fn issuer(signature: &Signature) -> String {
    let fingerprint = signature
        .issuer_fingerprint()
        .first()
        .map(|fingerprint| fingerprint.to_string().to_ascii_uppercase());
    let id = signature.issuer_key_id().first().map(|id| id.to_string().to_ascii_uppercase());
    fingerprint.or(id).unwrap_or_else(|| "unknown".to_owned())
}

/// Whether a signature counts now.
fn is_timely(signature: &Signature, now: u64) -> Result<(), String> {
    let created = signature.created().map(seconds).ok_or("its signature does not say when it was made")?;
    if created > now + AHEAD {
        return Err("its signature is of the future".to_owned());
    }
    match signature.signature_expiration_time().map(lasts).filter(|lasts| *lasts > 0) {
        Some(lasts) if created + lasts <= now => Err("its signature is expired".to_owned()),
        _ => Ok(()),
    }
}

fn seconds(time: Timestamp) -> u64 {
    u64::from(time.as_secs())
}

fn lasts(duration: Duration) -> u64 {
    u64::from(duration.as_secs())
}

/// Whether the primary key is valid, and what it says of itself last.
fn primary_is_valid(key: &SignedPublicKey, now: u64) -> Result<&Signature, String> {
    let primary = &key.primary_key;
    let of_its_own = |one: &&Signature| one.hash_alg().is_some_and(|hash| hash != HashAlgorithm::Md5);
    let revoked =
        |one: &Signature| one.typ() == Some(SignatureType::KeyRevocation) && one.verify_key(primary).is_ok();
    if key.details.revocation_signatures.iter().chain(&key.details.direct_signatures).any(revoked) {
        return Err("the key is revoked".to_owned());
    }
    let direct = key
        .details
        .direct_signatures
        .iter()
        .filter(of_its_own)
        .filter(|one| one.typ() == Some(SignatureType::Key) && one.verify_key(primary).is_ok());
    let users = key.details.users.iter().flat_map(|user| {
        let own = user.signatures.iter().filter(of_its_own);
        own.filter(|one| {
            one.typ() != Some(SignatureType::CertRevocation)
                && one.verify_certification(primary, Tag::UserId, &user.id).is_ok()
        })
    });
    let last =
        direct.chain(users).filter(|one| one.created().is_some_and(|time| seconds(time) <= now + AHEAD));
    let last = last.max_by_key(|one| one.created().map(seconds));
    let last = last.ok_or("the key has no valid signature of its own")?;
    is_current(seconds(primary.created_at()), last, now, "the key")?;
    Ok(last)
}

/// Whether a key that was made then, with this as its newest signature, is valid now.
fn is_current(made: u64, last: &Signature, now: u64, which: &str) -> Result<(), String> {
    if made > now + AHEAD {
        return Err(format!("{which} is of the future"));
    }
    match last.key_expiration_time().map(lasts).filter(|lasts| *lasts > 0) {
        Some(lasts) if made + lasts <= now => Err(format!("{which} is expired")),
        _ => Ok(()),
    }
}

/// What a key's signature says that it is for; none where it says nothing.
fn may_sign(last: &Signature) -> Option<bool> {
    let config = last.config()?;
    config
        .hashed_subpackets()
        .any(|one| matches!(one.data, SubpacketData::KeyFlags(_)))
        .then(|| last.key_flags().sign())
}

fn primary_may_sign(key: &SignedPublicKey, now: u64) -> Result<(), String> {
    let last = primary_is_valid(key, now)?;
    if may_sign(last) == Some(false) {
        return Err("the key is not for signing".to_owned());
    }
    Ok(())
}

fn subkey_may_sign(key: &SignedPublicKey, subkey: &SignedPublicSubKey, now: u64) -> Result<(), String> {
    primary_is_valid(key, now)?;
    let primary = &key.primary_key;
    let bound = |one: &&Signature| one.verify_subkey_binding(primary, &subkey.key).is_ok();
    let of_type = |typ: SignatureType| subkey.signatures.iter().filter(move |one| one.typ() == Some(typ));
    if of_type(SignatureType::SubkeyRevocation).any(|one| bound(&one)) {
        return Err("the subkey is revoked".to_owned());
    }
    let last = of_type(SignatureType::SubkeyBinding)
        .filter(|one| one.hash_alg().is_some_and(|hash| hash != HashAlgorithm::Md5))
        .filter(|one| one.created().is_some_and(|time| seconds(time) <= now + AHEAD))
        .filter(bound)
        .max_by_key(|one| one.created().map(seconds));
    let last = last.ok_or("the subkey is not bound to its key")?;
    is_current(seconds(subkey.key.created_at()), last, now, "the subkey")?;
    if may_sign(last) != Some(true) {
        return Err("the subkey is not for signing".to_owned());
    }
    // Otherwise somebody could take another one's subkey for theirs.
    let back = last.embedded_signature();
    if back.is_none_or(|back| back.verify_primary_key_binding(&subkey.key, primary).is_err()) {
        return Err("the subkey does not confirm whose it is".to_owned());
    }
    Ok(())
}
