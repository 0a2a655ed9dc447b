//! Lists and watches of objects, with what Kubernetes promises about resource versions.
//!
//! A list is of one moment, and says of which version; so are all its pages, whatever changes between them, and whoever
//! watches from that version on is told of just that. A page of a version that is forgotten is refused with a token that
//! goes on as of now.

use bytes::Bytes;
use roadstead_api::{KindId, Version, from_storage};
use roadstead_hub_store::{Event, EventType, Filter, Listed, Part, Stored, WatchError, Watcher};
use serde_json::Value;

use crate::HubError;
use crate::address::{Address, NextPage};
use crate::identity::auth::Identity;
use crate::objects::selector::Selector;
use crate::objects::{Objects, fields, forms};

/// How many rows are read at once where not all of them are wanted.
const PAGE: usize = 500;

/// Which objects a list or a watch is of.
#[derive(Debug, Clone, Default)]
pub struct ListOptions {
    /// Over labels.
    pub labels: Selector,
    /// Over name, namespace, and what a kind has besides.
    pub fields: Selector,
    /// At most this many; all where none.
    pub limit: Option<usize>,
    /// Where the last page ended.
    pub after: Option<NextPage>,
    /// Of which version.
    pub version: AtVersion,
}

/// Of which version a list is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AtVersion {
    /// The present one.
    #[default]
    Present,
    /// This one or a later one.
    NotOlderThan(i64),
    /// This very one, as long as it is kept.
    Exact(i64),
}

impl ListOptions {
    fn takes(&self, stored: &Stored) -> bool {
        (self.labels.is_empty() || self.labels.matches(&stored.labels())) && self.takes_fields(stored)
    }

    fn takes_fields(&self, stored: &Stored) -> bool {
        self.fields.is_empty() || self.fields.matches(&fields::of(stored))
    }

    /// The one object that is selected by name (`metadata.name=NAME`), which a right to that one object allows, as in
    /// Kubernetes; else empty.
    fn only_name(&self) -> &str {
        self.fields.exact("metadata.name").unwrap_or_default()
    }

    fn takes_all(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// At which version the list is to be; none for the present one.
    fn at(&self) -> Option<i64> {
        match (&self.after, self.version) {
            (Some(next), _) => Some(next.version),
            (None, AtVersion::Exact(wanted)) => Some(wanted),
            (None, AtVersion::Present | AtVersion::NotOlderThan(_)) => None,
        }
    }

    /// Whether the version asked for could be had.
    fn check(&self, listed: &Listed) -> Result<(), HubError> {
        if let Some(next) = &self.after {
            if listed.knows(next.version) {
                return Ok(());
            }
            return Err(HubError::PageGone(Box::new(NextPage { version: listed.version, ..next.clone() })));
        }
        let (AtVersion::NotOlderThan(wanted) | AtVersion::Exact(wanted)) = self.version else {
            return Ok(());
        };
        if wanted > listed.version {
            return Err(HubError::TooLargeVersion { wanted, present: listed.version });
        }
        if self.version == AtVersion::Exact(wanted) && !listed.knows(wanted) {
            return Err(HubError::Gone(format!(
                "The provided resource version is no longer available: {wanted}"
            )));
        }
        Ok(())
    }
}

/// A list, whole in memory.
#[derive(Debug)]
pub struct ObjectList {
    /// The objects, in the version asked for.
    pub items: Vec<Value>,
    /// What is said of the list as a whole.
    pub end: ListEnd,
}

/// What is said of a list as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListEnd {
    /// Whoever watches from here misses nothing.
    pub resource_version: i64,
    /// Where the next page begins; none where this is the last.
    pub next: Option<NextPage>,
    /// How many objects there are after this page; none where nobody counted.
    pub remaining: Option<i64>,
}

/// From where a watch begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchFrom {
    /// All present objects first, at this version or a later one.
    Objects(AtVersion),
    /// Now.
    Now,
    /// All changes above this version.
    Version(i64),
}

/// A watch of objects.
pub struct ObjectWatch {
    watcher: Watcher,
    address: Address,
    options: ListOptions,
}

/// A change as a watcher sees it.
pub struct ObjectEvent {
    /// How.
    pub type_: EventType,
    event: Event,
    version: &'static Version,
}

impl ObjectEvent {
    /// The object, in the version asked for.
    ///
    /// # Errors
    /// Where a Secret cannot be opened.
    pub fn object(&self) -> Result<Value, HubError> {
        Ok(shown(self.event.open()?, self.version))
    }

    /// The change as bytes in a form that the caller names: made once for all watchers that want the same.
    ///
    /// # Errors
    /// Where a Secret cannot be opened.
    pub fn rendered(&self, form: &'static str, make: impl FnOnce(Value) -> Bytes) -> Result<Bytes, HubError> {
        self.event.rendered((self.version.name, form, self.type_), || Ok(make(self.object()?)))
    }
}

/// An object as `version` shows it.
fn shown(stored: Stored, version: &Version) -> Value {
    if stored.secret.is_some() {
        return forms::show(&stored, version);
    }
    from_storage(stored.kind, version, stored.object)
}

impl Objects {
    /// A page of objects, by namespace and name; `each` is given one after the other as they are read.
    ///
    /// # Errors
    /// [`HubError::Forbidden`]; [`HubError::PageGone`], [`HubError::Gone`] and [`HubError::TooLargeVersion`] where the
    /// version asked for cannot be had. Then what `each` was given is to be thrown away.
    pub async fn list_with(
        &self,
        who: &Identity,
        address: &Address,
        options: &ListOptions,
        mut each: impl FnMut(Value) + Send,
    ) -> Result<ListEnd, HubError> {
        who.authorize("list", address.kind.get(), "", &address.namespace, options.only_name())?;
        self.audit.note_read(who, "list", address).await?;
        if address.kind == KindId::ResourceQuota {
            let (quotas, end) = self.list_stored(address, options).await?;
            for mut stored in quotas {
                self.count_used(&mut stored).await?;
                each(shown(stored, address.version));
            }
            return Ok(end);
        }
        self.list_each(address, options, |stored| each(shown(stored, address.version))).await
    }

    /// The same, as a whole.
    ///
    /// # Errors
    /// As [`Self::list_with`].
    pub async fn list(
        &self,
        who: &Identity,
        address: &Address,
        options: &ListOptions,
    ) -> Result<ObjectList, HubError> {
        let mut items = Vec::new();
        let end = self.list_with(who, address, options, |object| items.push(object)).await?;
        Ok(ObjectList { items, end })
    }

    /// As it is stored.
    pub(crate) async fn list_stored(
        &self,
        address: &Address,
        options: &ListOptions,
    ) -> Result<(Vec<Stored>, ListEnd), HubError> {
        let mut items = Vec::new();
        let end = self.list_each(address, options, |stored| items.push(stored)).await?;
        Ok((items, end))
    }

    async fn list_each(
        &self,
        address: &Address,
        options: &ListOptions,
        mut each: impl FnMut(Stored) + Send,
    ) -> Result<ListEnd, HubError> {
        let filter = Filter {
            namespace: address.namespace.clone(),
            name: options.fields.exact("metadata.name").unwrap_or_default().to_owned(),
            labels: options.labels.equalities(),
        };
        let limit = options.limit.unwrap_or(usize::MAX);
        let mut at = options.at();
        let mut after = options.after.as_ref().map(|next| (next.namespace.clone(), next.name.clone()));
        let mut count = 0;
        loop {
            let rows = match limit {
                // One statement, so one moment.
                usize::MAX => usize::MAX,
                // One more than is wanted says whether there is more.
                _ if options.takes_all() => limit.saturating_add(1),
                _ => PAGE,
            };
            let (mut read, mut full) = (0, false);
            let from = after.clone();
            let from = from.as_ref().map(|(namespace, name)| (namespace.as_str(), name.as_str()));
            let part = Part { at, after: from };
            let listed = self
                .store
                .list_each(address.kind, &filter, part, i64::try_from(rows).unwrap_or(i64::MAX), |stored| {
                    read += 1;
                    if full || count == limit {
                        full = true;
                        return;
                    }
                    if limit != usize::MAX {
                        after = Some((stored.namespace.clone(), stored.name.clone()));
                    }
                    if options.takes(&stored) {
                        count += 1;
                        each(stored);
                    }
                })
                .await?;
            options.check(&listed)?;
            // What else is read is of the moment of what was read first.
            let version = *at.get_or_insert(listed.version);
            if full {
                return self.page_end(address, options, version, after).await;
            }
            if read < rows {
                return Ok(ListEnd { resource_version: version, next: None, remaining: None });
            }
        }
    }

    async fn page_end(
        &self,
        address: &Address,
        options: &ListOptions,
        version: i64,
        after: Option<(String, String)>,
    ) -> Result<ListEnd, HubError> {
        let Some((namespace, name)) = after else {
            return Ok(ListEnd { resource_version: version, next: None, remaining: None });
        };
        let remaining = if options.takes_all() {
            let place = (namespace.as_str(), name.as_str());
            Some(self.store.count_after(address.kind, &address.namespace, place).await?)
        } else {
            None
        };
        let next = Some(NextPage { version, namespace, name });
        Ok(ListEnd { resource_version: version, next, remaining })
    }

    /// Watches objects; `each` is given those that are there already, where they are wanted first. Returns the version
    /// that those are of.
    ///
    /// # Errors
    /// [`HubError::Gone`] where that version is no longer kept.
    pub async fn watch(
        &self,
        who: &Identity,
        address: Address,
        options: ListOptions,
        from: WatchFrom,
        mut each: impl FnMut(Value) + Send,
    ) -> Result<(i64, ObjectWatch), HubError> {
        let kind = address.kind.get();
        who.authorize("watch", kind, "", &address.namespace, options.only_name())?;
        self.audit.note_read(who, "watch", &address).await?;
        let version = match from {
            WatchFrom::Version(version) => version,
            WatchFrom::Now => self.store.last_version().await?,
            WatchFrom::Objects(version) => {
                let options = ListOptions { limit: None, after: None, version, ..options.clone() };
                let shown = |stored| each(shown(stored, address.version));
                self.list_each(&address, &options, shown).await?.resource_version
            }
        };
        let watcher = self.store.watch(address.kind, version).await.map_err(watch_error)?;
        Ok((version, ObjectWatch { watcher, address, options }))
    }
}

pub(crate) fn watch_error(error: WatchError) -> HubError {
    match error {
        WatchError::Gone(version) => {
            HubError::Gone(format!("too old resource version: {version}: list again and watch from there"))
        }
        WatchError::Closed => HubError::Unavailable(error.to_string()),
        WatchError::Store(error) => error.into(),
    }
}

impl ObjectWatch {
    /// Ends when whoever watches may do so no longer.
    pub fn until_refused(&self, who: Identity) -> impl Future<Output = ()> + Send + use<> {
        let (kind, namespace) = (self.address.kind.get(), self.address.namespace.clone());
        let name = self.options.only_name().to_owned();
        async move { who.until_refused("watch", kind, &namespace, &name).await }
    }

    /// All changes up to this version have been given out, or were none of this watch's.
    #[must_use]
    pub fn resource_version(&self) -> i64 {
        self.watcher.version()
    }

    /// The next change that this watch selects. May be dropped and called again without missing any.
    ///
    /// # Errors
    /// [`HubError::Gone`] where what was not read yet is no longer kept.
    pub async fn next(&mut self) -> Result<ObjectEvent, HubError> {
        loop {
            let event = self.watcher.next().await.map_err(watch_error)?;
            if let Some(type_) = self.seen(&event) {
                return Ok(ObjectEvent { type_, event, version: self.address.version });
            }
        }
    }

    /// What a change is to this watch: an object whose labels left the selector is deleted, as far as it can tell.
    fn seen(&self, event: &Event) -> Option<EventType> {
        let object = event.object();
        let here = self.address.namespace.is_empty() || self.address.namespace == object.namespace;
        if !here || !self.options.takes_fields(object) {
            return None;
        }
        let labels = &self.options.labels;
        let before = event.labels_before().is_some_and(|before| labels.matches(before));
        let there = event.type_() != EventType::Deleted;
        let now = there && (labels.is_empty() || labels.matches(&object.labels()));
        match (before, now) {
            (false, false) => None,
            (false, true) => Some(EventType::Added),
            (true, true) => Some(EventType::Modified),
            (true, false) => Some(EventType::Deleted),
        }
    }
}
