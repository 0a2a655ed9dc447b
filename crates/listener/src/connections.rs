//! The books of a listener: whose its connections are, which of them are idle, and which goes when room is short.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use roadstead_budget::{Exhausted, Pool, Reservation};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::connection::{Connection, State};

/// How often whoever makes room for a connection ends another one that is in its way, where the first does not go.
const AGAIN: Duration = Duration::from_millis(500);
/// So long a client that has said who it is waits until another connection has gone.
const PATIENCE: Duration = Duration::from_secs(3);
/// So often it is looked at least whether there is room.
const LOOK: Duration = Duration::from_millis(50);

/// How many connections there may be at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Of clients that have shown who they are.
    pub known: usize,
    /// Of those that have not, besides.
    pub anonymous: usize,
    /// Of one party.
    pub per_party: usize,
    /// What a party's new connection does where as many as may be are there, and busy.
    pub full: Full,
    /// So long an anonymous client has to show who it is before it may have to go for another.
    pub grace: Duration,
}

/// Which connection of a party goes where all of them are busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// The oldest: the client is one, and knows no more of what it has left behind.
    EndOldest,
    /// The new one: there are many clients, of which none is to lose what it has begun.
    RefuseNew,
}

/// What connections take of the process's memory.
#[derive(Debug, Clone)]
pub struct Costs {
    /// An anonymous client's connection.
    pub anonymous: Cost,
    /// A connection of somebody who is known.
    pub known: Cost,
}

/// So many bytes of this pool.
#[derive(Debug, Clone)]
pub struct Cost {
    /// Where they are reserved.
    pub pool: Pool,
    /// How many.
    pub bytes: u64,
}

impl Cost {
    fn reserve(&self) -> Result<Reservation, Exhausted> {
        self.pool.try_reserve(self.bytes)
    }
}

/// Who a client is: a cluster's uid, or what a user's name becomes.
pub type Party = u128;

/// Why a client that has said who it is has no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Its party has as many connections as it may.
    #[error("there are {0} connections of the same client already, and all are busy")]
    Party(usize),
    /// There are as many connections as may be.
    #[error("there are {0} connections already, and all are busy")]
    Places(usize),
    /// There is no memory for it.
    #[error(transparent)]
    Memory(#[from] Exhausted),
    /// It has had to go itself.
    #[error("the connection has ended")]
    Ended,
}

/// Whose a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Anonymous,
    Known(Party),
}

/// Those that count as one among anonymous clients: an address, or what one customer has of IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Net(IpAddr);

impl Net {
    /// The one that an address belongs to.
    #[must_use]
    pub fn of(peer: IpAddr) -> Self {
        Self(match peer.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
            address @ IpAddr::V4(_) => address,
        })
    }
}

/// All connections of a listener.
#[derive(Debug)]
pub struct Connections {
    bounds: Bounds,
    costs: Costs,
    open: Mutex<Open>,
    /// A place, or memory, has become free.
    freed: Notify,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    anonymous: usize,
    entries: HashMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    standing: Standing,
    net: Net,
    opened: Instant,
    state: Arc<State>,
    _memory: Reservation,
}

/// A connection's place; given up, and the connection's end signalled, when dropped.
#[derive(Debug)]
pub struct Registered {
    connection: Connection,
}

impl Registered {
    /// The connection.
    #[must_use]
    pub fn connection(&self) -> &Connection {
        &self.connection
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let Connection { all, id, state } = &self.connection;
        let mut open = all.lock();
        let gone = open.entries.remove(id);
        if gone.as_ref().is_some_and(|entry| entry.standing == Standing::Anonymous) {
            open.anonymous -= 1;
        }
        drop(open);
        // With its memory, before anybody is told that there is room.
        drop(gone);
        state.end.cancel();
        all.freed.notify_waiters();
    }
}

impl Entry {
    fn stays(&self) -> bool {
        !self.state.end.is_cancelled()
    }

    fn is_anonymous(&self) -> bool {
        self.standing == Standing::Anonymous
    }
}

impl Open {
    /// Those that are not about to end.
    fn staying(&self) -> impl Iterator<Item = (&u64, &Entry)> {
        self.entries.iter().filter(|(_, entry)| entry.stays())
    }

    fn staying_of(&self, party: Party) -> usize {
        self.staying().filter(|(_, entry)| entry.standing == Standing::Known(party)).count()
    }

    /// Of these, the one that has been idle for longest; with `busy_too`, if all are busy, the oldest of those.
    fn longest(&self, of: impl Fn(Standing) -> bool, not: u64, busy_too: bool) -> Option<&Arc<State>> {
        let ranked = self.staying().filter(|(id, entry)| **id != not && of(entry.standing));
        let ranked = ranked.filter_map(|(id, entry)| {
            let (is_busy, since) = entry.state.occupation();
            (busy_too || !is_busy).then_some(((is_busy, since, *id), &entry.state))
        });
        ranked.min_by_key(|(rank, _)| *rank).map(|(_, state)| state)
    }

    /// The oldest anonymous client of the address that has most of them, once it has had its time. So whoever comes in numbers
    /// makes room for its own.
    fn anonymous_to_go(&self, grace: Duration) -> Option<&Arc<State>> {
        let mut nets: HashMap<Net, (usize, &Entry)> = HashMap::new();
        for (_, entry) in self.staying().filter(|(_, entry)| entry.is_anonymous()) {
            let (count, oldest) = nets.entry(entry.net).or_insert((0, entry));
            *count += 1;
            if entry.opened < oldest.opened {
                *oldest = entry;
            }
        }
        let most =
            nets.into_values().max_by_key(|(count, oldest)| (*count, std::cmp::Reverse(oldest.opened)));
        most.filter(|(_, oldest)| oldest.opened.elapsed() >= grace).map(|(_, oldest)| &oldest.state)
    }

    /// Who of those who are known goes for one more of `party`: whoever has been idle for longest; where nobody is, the
    /// oldest of the party that has most, if that is more than the new one's has.
    fn known_to_go(&self, party: Party, not: u64) -> Option<&Arc<State>> {
        if let Some(idle) = self.longest(|standing| standing != Standing::Anonymous, not, false) {
            return Some(idle);
        }
        let mut counts: HashMap<Party, usize> = HashMap::new();
        for (_, entry) in self.staying() {
            if let Standing::Known(party) = entry.standing {
                *counts.entry(party).or_default() += 1;
            }
        }
        let own = counts.get(&party).copied().unwrap_or(0) + 1;
        let (most, _) =
            counts.into_iter().filter(|(_, count)| *count > own).max_by_key(|(_, count)| *count)?;
        self.longest(|standing| standing == Standing::Known(most), not, true)
    }
}

impl Connections {
    /// None yet.
    #[must_use]
    pub fn new(bounds: Bounds, costs: Costs) -> Arc<Self> {
        let Bounds { known, anonymous, per_party, .. } = bounds;
        let bounds = Bounds {
            known: known.max(1),
            anonymous: anonymous.max(1),
            per_party: per_party.max(1),
            ..bounds
        };
        Arc::new(Self { bounds, costs, open: Mutex::default(), freed: Notify::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        // Entries are whole at any time: a panic elsewhere does not spoil them.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection in, as an anonymous client's. Where those have no place or no memory left, the oldest of the address
    /// that has most of them is ended, once it has had its time; until it has gone, this waits.
    pub async fn admit(self: &Arc<Self>, peer: IpAddr) -> Registered {
        loop {
            let mut freed = std::pin::pin!(self.freed.notified());
            freed.as_mut().enable();
            if let Some(registered) = self.try_admit(peer) {
                return registered;
            }
            let _ =
                tokio::time::timeout(LOOK.min(self.bounds.grace.max(Duration::from_millis(1))), freed).await;
        }
    }

    fn try_admit(self: &Arc<Self>, peer: IpAddr) -> Option<Registered> {
        let mut open = self.lock();
        let has_place = open.anonymous < self.bounds.anonymous;
        let Some(memory) = has_place.then(|| self.costs.anonymous.reserve().ok()).flatten() else {
            if let Some(state) = open.anonymous_to_go(self.bounds.grace) {
                tracing::debug!("a connection without credentials was closed to make room");
                state.end.cancel();
            }
            return None;
        };
        let id = open.next;
        open.next += 1;
        let state = Arc::new(State::new());
        let entry = Entry {
            standing: Standing::Anonymous,
            net: Net::of(peer),
            opened: Instant::now(),
            state: Arc::clone(&state),
            _memory: memory,
        };
        open.entries.insert(id, entry);
        open.anonymous += 1;
        Some(Registered { connection: Connection { all: Arc::clone(self), id, state } })
    }

    /// Whether nobody has said yet who is at this connection.
    pub(crate) fn is_anonymous(&self, id: u64) -> bool {
        self.lock().entries.get(&id).is_some_and(Entry::is_anonymous)
    }

    /// See [`Connection::known`].
    pub(crate) async fn make_known(&self, id: u64, party: Party) -> Result<(), Refused> {
        let begun = Instant::now();
        let mut ended: Option<Instant> = None;
        loop {
            let mut freed = std::pin::pin!(self.freed.notified());
            freed.as_mut().enable();
            let may_end = ended.is_none_or(|ended| ended.elapsed() >= AGAIN);
            match self.try_make_known(id, party, may_end) {
                Ok(None) => return Ok(()),
                Ok(Some(EndedOne)) => ended = Some(Instant::now()),
                // What was ended goes in a moment.
                Err(_) if ended.is_some() && begun.elapsed() < PATIENCE => {}
                Err(refused) => return Err(refused),
            }
            let _ = tokio::time::timeout(LOOK, freed).await;
        }
    }

    fn try_make_known(&self, id: u64, party: Party, may_end: bool) -> Result<Option<EndedOne>, Refused> {
        let Bounds { known: places, per_party, full, .. } = self.bounds;
        let mut open = self.lock();
        match open.entries.get(&id) {
            Some(entry) if !entry.is_anonymous() => return Ok(None),
            Some(entry) if entry.stays() => {}
            _ => return Err(Refused::Ended),
        }
        if open.staying_of(party) >= per_party {
            let of_party = |standing| standing == Standing::Known(party);
            let oldest = open.longest(of_party, id, full == Full::EndOldest);
            oldest.ok_or(Refused::Party(per_party))?.end.cancel();
            tracing::debug!("an older connection of the same client was closed to make room");
        }
        let known = open.staying().filter(|(_, entry)| !entry.is_anonymous()).count();
        let refused = if known >= places {
            Refused::Places(places)
        } else {
            match self.costs.known.reserve() {
                Ok(memory) => {
                    open.anonymous -= 1;
                    if let Some(entry) = open.entries.get_mut(&id) {
                        entry.standing = Standing::Known(party);
                        entry._memory = memory;
                    }
                    drop(open);
                    self.freed.notify_waiters();
                    return Ok(None);
                }
                Err(error) => error.into(),
            }
        };
        let to_go = may_end.then(|| open.known_to_go(party, id)).flatten();
        let state = to_go.ok_or(refused)?;
        tracing::debug!("a connection was closed to make room for another client's");
        state.end.cancel();
        Ok(Some(EndedOne))
    }
}

/// A connection was told to end, and has not gone yet.
struct EndedOne;

#[cfg(test)]
mod tests;
