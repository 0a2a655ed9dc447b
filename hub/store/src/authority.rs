//! The hub's certificate authorities and serving keys. One replica makes each, all use it.

use aws_lc_rs::digest::{SHA256, digest};
use zeroize::Zeroizing;

use crate::{Store, StoreError};

/// A certificate and its private key, both PEM. The key does not print.
pub struct KeyPair {
    /// The certificate.
    pub certificate_pem: String,
    /// The private key (PKCS#8).
    pub key_pem: Zeroizing<String>,
}

impl std::fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyPair").field("certificate_pem", &self.certificate_pem).finish_non_exhaustive()
    }
}

/// What a key is sealed for: this authority with this certificate, so that neither can be put in place of another.
pub(crate) fn place(name: &str, certificate_pem: &str) -> Vec<u8> {
    let certificate = digest(&SHA256, certificate_pem.as_bytes());
    [b"authority\0", name.as_bytes(), b"\0", certificate.as_ref()].concat()
}

/// What versions before sealed a key for: the name only.
pub(crate) fn older_place(name: &str) -> &[u8] {
    name.as_bytes()
}

impl Store {
    /// The authority `name`; where there is none, `make` makes it, once for all replicas.
    ///
    /// # Errors
    /// Where the database refuses, the key file is another than the one it was sealed with, the certificate is another than
    /// the one that the key was made for, or `make` fails.
    pub async fn authority<E>(
        &self,
        name: &str,
        make: impl FnOnce() -> Result<KeyPair, E> + Send,
    ) -> Result<KeyPair, E>
    where
        E: From<StoreError>,
    {
        if let Some(pair) = self.stored_authority(name).await? {
            return Ok(pair);
        }
        let made = make()?;
        let place = place(name, &made.certificate_pem);
        let sealed = self.sealer.seal("seal a key", &place, made.key_pem.as_bytes())?;
        sqlx::query(
            "INSERT INTO authority (name, certificate_pem, key_sealed) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
        )
        .bind(name)
        .bind(&made.certificate_pem)
        .bind(sealed)
        .execute(&self.pool)
        .await
        .map_err(StoreError::query("store an authority"))?;
        // Whichever replica came first made the one that counts.
        let what = "read an authority";
        let stored = self.stored_authority(name).await?;
        Ok(stored.ok_or_else(|| StoreError::Corrupt { what, why: format!("{name} was removed again") })?)
    }

    async fn stored_authority(&self, name: &str) -> Result<Option<KeyPair>, StoreError> {
        let what = "read an authority";
        let row: Option<(String, Vec<u8>)> =
            sqlx::query_as("SELECT certificate_pem, key_sealed FROM authority WHERE name = $1")
                .bind(name)
                .fetch_optional(&self.pool)
                .await
                .map_err(StoreError::query(what))?;
        let Some((certificate_pem, sealed)) = row else { return Ok(None) };
        let key = self.sealer.open(what, &place(name, &certificate_pem), &sealed)?;
        let key_pem = std::str::from_utf8(&key)
            .map_err(|error| StoreError::Corrupt { what, why: error.to_string() })?
            .to_owned();
        Ok(Some(KeyPair { certificate_pem, key_pem: Zeroizing::new(key_pem) }))
    }
}
