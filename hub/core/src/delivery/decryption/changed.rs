//! Keys and variables of a cluster that have changed, as its agent tells.

use roadstead_model::{DispatchKey, Queue};

use crate::HubError;
use crate::clusters::Session;
use crate::delivery::Delivery;

impl Delivery {
    /// Notes that keys in the cluster by which an attempt decrypted, or which it did not find, or variables that it read there, have changed
    /// since. Like a changed object of the hub that it was rendered by, that leads to another attempt; it has no effect where a newer one was
    /// made already.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn keys_changed(&self, session: &Session, key: &DispatchKey) -> Result<(), HubError> {
        let mut tx = self.store.begin().await?;
        if !tx.note_keys_changed(session.cluster, session.id, key).await? {
            return Ok(());
        }
        tx.enqueue(Queue::Applier, &[key.applier.into()]).await?;
        tx.commit().await?;
        tracing::info!(
            applier = %key.applier, cluster = session.name, attempt = key.attempt.0,
            "keys or variables in the cluster have changed: what is made with them is reconciled again"
        );
        Ok(())
    }
}
