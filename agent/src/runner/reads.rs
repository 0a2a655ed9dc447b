//! Objects that the hub asks for, to render by: read as the account that the dispatch names, under the cluster's own policy, and
//! within bounds.

use roadstead_agent_policy::{Action, Object};
use roadstead_apply::Run;
use roadstead_model::{ObjectRef, ReadObject, Stage};
use roadstead_proto::Failure;
use roadstead_proto::limits::{MAX_READ_BYTES, MAX_READS};
use tokio::time::Instant;

use super::work::{On, Record, Work, failed, failure_while};
use crate::cluster::Cluster;

impl<C: Cluster> Work<'_, C> {
    /// Reads objects; one that is not there is told as such.
    pub(super) async fn read(
        &self,
        on: &On<'_, C>,
        objects: &[ObjectRef],
        record: &mut Record,
    ) -> Result<(), Box<Failure>> {
        on.tell(self.outbox, Stage::Finish);
        let began = Instant::now();
        let policy = self.policy(on, record).await?;
        let mut ignore = |_| ();
        let mut run = Run::new(began + on.dispatch.spec.timeout, on.cancel.clone(), &mut ignore);
        for object in objects {
            let about = |message: String| {
                Box::new(Failure { object: Some(object.clone()), ..*failed(Stage::Finish, message) })
            };
            if object.group.is_empty() && object.kind == "Secret" {
                return Err(about(format!(
                    "{object} is not read for the hub: Secrets do not leave their cluster"
                )));
            }
            let asked = Object { reference: object, content: None };
            policy
                .evaluate(Action::Read, &asked, on.account.as_ref())
                .map_err(|refused| about(refused.to_string()))?;
            let read = on.cluster.read(object, &mut run).await;
            let mut found = read.map_err(|error| failure_while(Stage::Finish, &error))?;
            if let Some(metadata) = found.as_mut().and_then(|found| found["metadata"].as_object_mut()) {
                // Nobody renders by it, and it is often more than the rest.
                metadata.remove("managedFields");
            }
            let json = found.map(|found| found.to_string().into_bytes());
            let read = ReadObject { object: object.clone(), json };
            record.reads.push(read);
            let bytes: usize = record.reads.iter().filter_map(|read| read.json.as_ref()).map(Vec::len).sum();
            if bytes > MAX_READ_BYTES || record.reads.len() > MAX_READS {
                record.reads.clear();
                return Err(about(format!(
                    "{object}: more than {MAX_READ_BYTES} bytes, or {MAX_READS} objects, are to be read for one render"
                )));
            }
        }
        record.spent_since(Stage::Finish, began);
        Ok(())
    }
}
