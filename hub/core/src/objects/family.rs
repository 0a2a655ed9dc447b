//! What a person changes of an object that acts by the rights of another namespace's root. Whoever may write the object's namespace need not have
//! those rights: so a change of what it asks for needs the right to change that root, as if the same were written there.

use roadstead_api::{ChildRule, KindId};
use roadstead_hub_store::{Root, Stored, Tx};

use crate::HubError;
use crate::address::named;
use crate::identity::Identity;
use crate::identity::access::{ADOPTED_BY, MAX_DEPTH};
use crate::identity::auth::wants_the_same;
use crate::objects::forms;

/// Whether a person may write this, which is stored already: where it is a root's of another namespace, or has the name of what such a one is about
/// to make, whoever writes it has to be one who may change the root. To suspend it, to have it reconciled and to label it does not need that.
///
/// # Errors
/// [`HubError::Forbidden`].
pub(crate) async fn check(
    tx: &mut Tx,
    who: &Identity,
    before: Option<&Stored>,
    after: &Stored,
) -> Result<(), HubError> {
    if who.is_master() || who.is_applier() || after.kind.get().child == ChildRule::Never {
        return Ok(());
    }
    if before.is_some_and(|before| asks_the_same(before, after)) {
        return Ok(());
    }
    let before = before.map(|before| before.uid);
    let is_handed = handed_to(after).is_some();
    match tx.root_of(after, before, is_handed, MAX_DEPTH + 1).await? {
        Some(root) if root.namespace != after.namespace => may_change(who, &root, after),
        _ => Ok(()),
    }
}

fn may_change(who: &Identity, root: &Root, after: &Stored) -> Result<(), HubError> {
    let Root { kind, namespace, name, delegates } = root;
    let may = |verb: &str| who.authorize(verb, kind.get(), "", namespace, name);
    let done = may("patch").and_then(|()| if *delegates { may("delegate") } else { Ok(()) });
    done.map_err(|error| match error {
        HubError::Forbidden(why) => HubError::Forbidden(format!(
            "{} is forbidden: it is {kind} {namespace}/{name}'s, by whose rights it acts: change it where that is built from. Whoever changes it \
             here has to be one who may change that: {why}",
            named(after.kind.get(), &after.name)
        )),
        error => error,
    })
}

/// The applier that an object is handed over to.
fn handed_to(stored: &Stored) -> Option<&str> {
    stored.object["metadata"]["annotations"][ADOPTED_BY].as_str()
}

fn asks_the_same(before: &Stored, after: &Stored) -> bool {
    // Who takes it back has it act by its own namespace's rights; who hands it over again has to be one who could write it.
    let is_handed_over = handed_to(after).is_some() && handed_to(before) != handed_to(after);
    let suspended = match after.kind {
        // Their data has no such field.
        KindId::ConfigMap | KindId::Secret => None,
        _ => Some("suspend"),
    };
    let rest = |stored: &Stored| {
        let fields = forms::wanted(&stored.object).into_iter().filter(|(field, _)| *field != "spec");
        fields.map(|(field, value)| (field.clone(), value.clone())).collect::<Vec<_>>()
    };
    !is_handed_over
        && before.secret == after.secret
        && wants_the_same(before, after, suspended)
        && rest(before) == rest(after)
}
