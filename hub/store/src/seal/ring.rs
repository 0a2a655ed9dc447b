//! The keys that a process has at a moment: those of the key file, and what is known of others.

use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};

use super::key::{Derived, Key, KeyId};
use crate::mac::{Row, Signer};
use crate::{StoreError, TokenCheck};

/// The first byte of a value that does not say its key: it is of the key that the database began with.
const WITHOUT_ID: u8 = 1;
/// The first byte of a value whose key's id follows.
const WITH_ID: u8 = 2;

/// A key of the key file, ready for use.
struct Held {
    id: KeyId,
    aead: RandomizedNonceKey,
    derived: Derived,
    signer: Signer,
}

impl Held {
    fn new(key: &Key) -> Result<Self, StoreError> {
        let derived = Derived::of(key);
        let aead = RandomizedNonceKey::new(&AES_256_GCM, key.expose())
            .map_err(|_| StoreError::Seal { what: "take the key file's key" })?;
        Ok(Self { id: key.id(), aead, signer: Signer::new(&derived), derived })
    }
}

/// A key as the database knows it.
#[derive(Clone)]
pub(crate) struct KnownKey {
    pub(crate) id: KeyId,
    pub(crate) base: bool,
    pub(crate) derived: Vec<u8>,
    pub(crate) retired: bool,
}

/// What is kept of a key that is not in use any more.
struct Kept {
    signer: Signer,
    /// The last batch of the audit log in which it counts.
    upto: i64,
}

/// The keys of a process.
pub(super) struct Ring {
    /// Those of the file, the newest first; at least one.
    keys: Vec<Arc<Held>>,
    /// Those that were in the file before: they open what this process has in memory, and nothing else.
    dropped: Vec<Arc<Held>>,
    /// The one of them that seals and signs.
    writer: Arc<Held>,
    base: Option<KeyId>,
    kept: Vec<Kept>,
    /// What must not change with the keys is signed with this one.
    stable: Option<Signer>,
    known: Vec<(KeyId, bool)>,
    tokens: Arc<TokenCheck>,
}

/// What the place of a key's derived keys is.
pub(crate) fn derived_place(id: KeyId) -> Vec<u8> {
    [b"hub_key\0", id.as_bytes()].concat()
}

impl Ring {
    /// Of a key file, the newest key first, before the database was asked.
    pub(super) fn new(keys: &[Key]) -> Result<Self, StoreError> {
        let keys = keys.iter().map(|key| Held::new(key).map(Arc::new)).collect::<Result<Vec<_>, _>>()?;
        let Some(first) = keys.first() else {
            return Err(StoreError::KeyFile { why: "it has no key".to_owned() });
        };
        for (at, key) in keys.iter().enumerate() {
            if keys.iter().take(at).any(|other| other.id == key.id) {
                return Err(StoreError::KeyFile { why: format!("it has the key {} twice", key.id) });
            }
        }
        let (writer, tokens) = (Arc::clone(first), Arc::new(TokenCheck::of(&[&first.derived])));
        Ok(Self {
            keys,
            dropped: Vec::new(),
            writer,
            base: None,
            kept: Vec::new(),
            stable: None,
            known: Vec::new(),
            tokens,
        })
    }

    /// With what the database knows of keys. Keys that `before` had and this has not go on to open what is in memory.
    pub(super) fn attached(&self, known: &[KnownKey], before: Option<&Self>) -> Result<Self, StoreError> {
        let missing: Vec<&KnownKey> =
            known.iter().filter(|known| !known.retired && self.held(known.id).is_none()).collect();
        if !missing.is_empty() {
            return Err(self.lacks(known, &missing));
        }
        let mut ring = Self {
            keys: self.keys.clone(),
            dropped: self.dropped.clone(),
            writer: Arc::clone(&self.writer),
            base: known.iter().find(|known| known.base).map(|known| known.id),
            kept: Vec::new(),
            stable: None,
            known: known.iter().map(|known| (known.id, known.retired)).collect(),
            tokens: Arc::clone(&self.tokens),
        };
        if let Some(before) = before {
            let gone = before.keys.iter().chain(&before.dropped);
            ring.dropped.extend(gone.filter(|key| self.held(key.id).is_none()).cloned());
        }
        let in_use = |id| known.iter().any(|known| known.id == id && !known.retired);
        if let Some(newest) = self.keys.iter().find(|key| in_use(key.id)) {
            ring.writer = Arc::clone(newest);
        }
        let mut kept = Vec::new();
        for known in known {
            let (derived, upto) = ring.derived_of(known)?;
            if known.base {
                ring.stable = Some(Signer::new(&derived));
            }
            match (upto, known.retired) {
                (Some(upto), true) => {
                    ring.kept.push(Kept { signer: Signer::new(&derived), upto });
                    kept.push(derived);
                }
                (None, true) if self.held(known.id).is_none() => {
                    let why = format!("the key {} is called retired, which no rekey has said", known.id);
                    return Err(StoreError::Corrupt { what: "read the database's keys", why });
                }
                _ => {}
            }
        }
        let all: Vec<&Derived> = ring.order().map(|key| &key.derived).chain(&kept).collect();
        ring.tokens = Arc::new(TokenCheck::of(&all));
        Ok(ring)
    }

    /// The keys derived from one that the database knows.
    pub(super) fn derived_of(&self, known: &KnownKey) -> Result<(Derived, Option<i64>), StoreError> {
        let what = "open what is derived from a key";
        let mut bytes = zeroize::Zeroizing::new(known.derived.clone());
        let plain = self.open(what, &derived_place(known.id), &mut bytes)?;
        Derived::from_bytes(plain)
            .ok_or_else(|| StoreError::Corrupt { what, why: format!("of the key {}", known.id) })
    }

    fn lacks(&self, known: &[KnownKey], missing: &[&KnownKey]) -> StoreError {
        let list = |ids: Vec<String>| ids.join(", ");
        StoreError::KeysMissing {
            missing: list(missing.iter().map(|key| key.id.to_string()).collect()),
            sealed_with: list(
                known.iter().filter(|key| !key.retired).map(|key| key.id.to_string()).collect(),
            ),
            held: list(self.ids().map(|id| id.to_string()).collect()),
        }
    }

    fn held(&self, id: KeyId) -> Option<&Arc<Held>> {
        self.keys.iter().find(|key| key.id == id)
    }

    /// The one that seals first, then the others.
    fn order(&self) -> impl Iterator<Item = &Arc<Held>> {
        let others = self.keys.iter().filter(|key| key.id != self.writer.id);
        std::iter::once(&self.writer).chain(others)
    }

    pub(super) fn writer(&self) -> KeyId {
        self.writer.id
    }

    pub(super) fn base(&self) -> Option<KeyId> {
        self.base
    }

    /// The ids of the file's keys, the newest first.
    pub(super) fn ids(&self) -> impl Iterator<Item = KeyId> {
        self.keys.iter().map(|key| key.id)
    }

    /// The same, that which seals first.
    pub(super) fn ids_in_order(&self) -> impl Iterator<Item = KeyId> {
        self.order().map(|key| key.id)
    }

    /// The newest key of the file that is not retired, where it is not the one that seals: it is to be once every replica has it.
    pub(super) fn awaited(&self) -> Option<KeyId> {
        let retired = |id| self.known.iter().any(|(known, retired)| *known == id && *retired);
        let newest = self.ids().find(|id| !retired(*id))?;
        (self.writer.id != newest).then_some(newest)
    }

    pub(super) fn knows(&self, known: &[KnownKey]) -> bool {
        known.iter().map(|known| (known.id, known.retired)).eq(self.known.iter().copied())
    }

    pub(super) fn tokens(&self) -> &Arc<TokenCheck> {
        &self.tokens
    }

    pub(super) fn sign(&self, row: &Row) -> Vec<u8> {
        self.writer.signer.sign(row)
    }

    /// By a key that does not change with the file's.
    pub(super) fn sign_stably(&self, row: &Row) -> Vec<u8> {
        self.stable.as_ref().unwrap_or(&self.writer.signer).sign(row)
    }

    /// Which key of the file has made this MAC.
    pub(super) fn signer_of(&self, row: &Row, mac: Option<&[u8]>) -> Option<KeyId> {
        self.order().find(|key| key.signer.is_signed(row, mac)).map(|key| key.id)
    }

    /// Whether a key that was retired has made this MAC in a batch of the audit log in which it counts.
    pub(super) fn was_signed(&self, row: &Row, mac: Option<&[u8]>, batch: i64) -> bool {
        self.kept.iter().any(|kept| batch <= kept.upto && kept.signer.is_signed(row, mac))
    }

    /// What a value begins with that the key which seals now has sealed.
    pub(super) fn prefix(&self) -> Vec<u8> {
        self.prefix_of(self.writer.id)
    }

    fn prefix_of(&self, id: KeyId) -> Vec<u8> {
        // Versions from before there were ids read what the first key sealed.
        if self.base.is_none_or(|base| base == id) {
            return vec![WITHOUT_ID];
        }
        [&[WITH_ID], id.as_bytes()].concat()
    }

    pub(super) fn seal(
        &self,
        what: &'static str,
        context: &[u8],
        plain: &[u8],
    ) -> Result<Vec<u8>, StoreError> {
        self.seal_with(&self.writer, what, context, plain)
    }

    /// Seals with a key of the file that need not be the one which seals now.
    pub(super) fn seal_by(
        &self,
        id: KeyId,
        what: &'static str,
        context: &[u8],
        plain: &[u8],
    ) -> Result<Vec<u8>, StoreError> {
        let key = self.held(id).ok_or(StoreError::Seal { what })?;
        self.seal_with(key, what, context, plain)
    }

    fn seal_with(
        &self,
        key: &Held,
        what: &'static str,
        context: &[u8],
        plain: &[u8],
    ) -> Result<Vec<u8>, StoreError> {
        let mut sealed = plain.to_vec();
        let nonce = key
            .aead
            .seal_in_place_append_tag(Aad::from(context), &mut sealed)
            .map_err(|_| StoreError::Seal { what })?;
        let mut out = self.prefix_of(key.id);
        out.reserve_exact(NONCE_LEN + sealed.len());
        out.extend_from_slice(nonce.as_ref());
        out.extend_from_slice(&sealed);
        Ok(out)
    }

    /// The keys derived from a key of the file.
    pub(super) fn derive(&self, id: KeyId) -> Option<Derived> {
        self.held(id).map(|key| key.derived.clone())
    }

    /// Opens a value where it lies; gives the part of it that is plain now.
    pub(super) fn open<'v>(
        &self,
        what: &'static str,
        context: &[u8],
        sealed: &'v mut [u8],
    ) -> Result<&'v mut [u8], StoreError> {
        let fail = || StoreError::Seal { what };
        let (version, rest) = sealed.split_first_mut().ok_or_else(fail)?;
        let (id, rest) = match *version {
            WITHOUT_ID => (self.base, rest),
            WITH_ID => {
                let (id, rest) = rest.split_at_mut_checked(KeyId::BYTES).ok_or_else(fail)?;
                let id: [u8; KeyId::BYTES] = (&*id).try_into().map_err(|_| fail())?;
                (Some(KeyId::of_bytes(id)), rest)
            }
            _ => return Err(fail()),
        };
        let (nonce, body) = rest.split_at_mut_checked(NONCE_LEN).ok_or_else(fail)?;
        let all = || self.order().chain(&self.dropped);
        let Some(id) = id else { return open_with_any(all(), context, nonce, body).ok_or_else(fail) };
        let key = all().find(|key| key.id == id).ok_or(StoreError::UnknownKey { what, id })?;
        open_with(key, context, nonce, body).ok_or_else(fail)
    }

    /// Which key of the file opens a value in one of these places.
    pub(super) fn opener_of(&self, places: &[&[u8]], sealed: &[u8]) -> Option<KeyId> {
        let opens = |key: &Held, place: &[u8]| {
            let rest = match sealed.split_first()? {
                (&WITHOUT_ID, rest) => rest,
                (&WITH_ID, rest) => rest.strip_prefix(key.id.as_bytes())?,
                _ => return None,
            };
            let (nonce, body) = rest.split_at_checked(NONCE_LEN)?;
            let mut body = zeroize::Zeroizing::new(body.to_vec());
            open_with(key, place, nonce, &mut body).map(drop)
        };
        let key = self.keys.iter().find(|key| places.iter().any(|place| opens(key, place).is_some()));
        key.map(|key| key.id)
    }
}

fn open_with<'v>(key: &Held, context: &[u8], nonce: &[u8], body: &'v mut [u8]) -> Option<&'v mut [u8]> {
    let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
    key.aead.open_in_place(nonce, Aad::from(context), body).ok()
}

/// Whichever key fits; the body is copied where one that does not might spoil it.
fn open_with_any<'k, 'v>(
    keys: impl Iterator<Item = &'k Arc<Held>>,
    context: &[u8],
    nonce: &[u8],
    body: &'v mut [u8],
) -> Option<&'v mut [u8]> {
    let keys: Vec<_> = keys.collect();
    let (last, others) = keys.split_last()?;
    for key in others {
        let mut copy = zeroize::Zeroizing::new(body.to_vec());
        if let Some(plain) = open_with(key, context, nonce, &mut copy) {
            let to = body.get_mut(..plain.len())?;
            to.copy_from_slice(plain);
            return Some(to);
        }
    }
    open_with(last, context, nonce, body)
}
