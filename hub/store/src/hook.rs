//! Where Receivers are called.

use roadstead_model::ResourceUid;
use uuid::Uuid;

use crate::{Store, StoreError, Tx};

impl Tx {
    /// Notes the digest of a Receiver's path, in the place of what it had; with none it is not called any more. False where another
    /// Receiver has that path: then it has none.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn set_hook(
        &mut self,
        receiver: ResourceUid,
        digest: Option<&[u8]>,
    ) -> Result<bool, StoreError> {
        let what = "note where a Receiver is called";
        sqlx::query("DELETE FROM hook WHERE receiver = $1 AND digest IS DISTINCT FROM $2")
            .bind(receiver.0)
            .bind(digest)
            .execute(self.written().await?)
            .await
            .map_err(StoreError::query(what))?;
        let Some(digest) = digest else { return Ok(true) };
        sqlx::query("INSERT INTO hook (digest, receiver) VALUES ($1, $2) ON CONFLICT DO NOTHING")
            .bind(digest)
            .bind(receiver.0)
            .execute(self.written().await?)
            .await
            .map_err(StoreError::query(what))?;
        sqlx::query_scalar("SELECT EXISTS (SELECT FROM hook WHERE digest = $1 AND receiver = $2)")
            .bind(digest)
            .bind(receiver.0)
            .fetch_one(self.written().await?)
            .await
            .map_err(StoreError::query(what))
    }
}

impl Store {
    /// The Receiver that is called at the path with this digest.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn receiver_at(&self, digest: &[u8]) -> Result<Option<ResourceUid>, StoreError> {
        let found: Option<Uuid> = sqlx::query_scalar("SELECT receiver FROM hook WHERE digest = $1")
            .bind(digest)
            .fetch_optional(&self.pool)
            .await
            .map_err(StoreError::query("look up which Receiver is called"))?;
        Ok(found.map(ResourceUid))
    }
}
