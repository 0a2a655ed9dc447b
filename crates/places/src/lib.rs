//! A bounded number of places for work, which tenants share fairly.
//!
//! A tenant that is alone may have three quarters of the places; where several want some, each has its even share. Within
//! that, so many places at most are of one group (one server, say). Whoever holds a place for longer than a bound while
//! somebody waits for it is asked to leave ([`Place::asked_to_leave`]): sooner where their tenant has more than its share.
//! The bounds hold only while somebody waits.
//!
//! [`Places::try_take`] is for those who can come again later; [`Places::take`] waits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// Who was turned away counts as waiting for this long, as they come again; and holders look this often whether somebody
/// waits.
const TICK: Duration = Duration::from_millis(500);
const REMEMBERED: Duration = Duration::from_secs(5);
/// Of those who were turned away, so many are remembered.
const MOST_REMEMBERED: usize = 1_000;

/// How many places there are, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// All places; at least one.
    pub total: usize,
    /// Of these, the most of one group.
    pub per_group: usize,
    /// How long a place may be held while somebody waits for it.
    pub patience: Duration,
    /// The same for a tenant that has more than its share.
    pub patience_over_share: Duration,
}

/// The places. Clones share them.
#[derive(Debug, Clone)]
pub struct Places(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limits: Limits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    held: BTreeMap<u64, Held>,
    /// Who waits for the same, the oldest first: thousands may wait, for a few tenants. No list is empty.
    waiting: BTreeMap<Wish, BTreeMap<u64, Arc<Notify>>>,
    turned_away: VecDeque<(Instant, Wish)>,
    next: u64,
}

#[derive(Debug)]
struct Held {
    wish: Wish,
    since: Instant,
}

/// Whose place, and of which group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Wish {
    tenant: String,
    group: String,
}

/// What keeps a wish from being granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Obstacle {
    /// Its group has all that it may have.
    Group,
    /// Its tenant has its share.
    Share,
    /// There is no place.
    Full,
}

impl Places {
    /// So many places.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let limits = Limits { total: limits.total.max(1), per_group: limits.per_group.max(1), ..limits };
        Self(Arc::new(Inner { limits, state: Mutex::default() }))
    }

    /// A place, if there is one for this tenant and group now. Whoever gets none counts as waiting for a few seconds, and is
    /// to come again.
    #[must_use]
    pub fn try_take(&self, tenant: &str, group: &str) -> Option<Place> {
        self.try_take_at(tenant, group, Instant::now())
    }

    fn try_take_at(&self, tenant: &str, group: &str, now: Instant) -> Option<Place> {
        let wish = Wish { tenant: tenant.to_owned(), group: group.to_owned() };
        let mut state = self.lock();
        state.forget(now);
        if self.0.limits.obstacle(&state.count(), &wish).is_none() {
            state.turned_away.retain(|(_, other)| *other != wish);
            return Some(self.seat(&mut state, wish, now));
        }
        if state.turned_away.len() < MOST_REMEMBERED {
            state.turned_away.push_back((now, wish));
        }
        None
    }

    /// A place, once there is one: the tenant with the fewest goes first, and of its wishes the oldest.
    pub async fn take(&self, tenant: &str, group: &str) -> Place {
        let wish = Wish { tenant: tenant.to_owned(), group: group.to_owned() };
        let turn = Arc::new(Notify::new());
        let ticket = {
            let mut state = self.lock();
            state.next += 1;
            let id = state.next;
            state.waiting.entry(wish.clone()).or_default().insert(id, Arc::clone(&turn));
            Ticket { places: self.clone(), wish, id }
        };
        loop {
            let shares_change = {
                let mut state = self.lock();
                state.forget(Instant::now());
                if self.0.limits.goes_next(&state).is_some_and(|(id, _)| id == ticket.id) {
                    state.stop_waiting(&ticket.wish, ticket.id);
                    return self.seat(&mut state, ticket.wish.clone(), Instant::now());
                }
                !state.turned_away.is_empty()
            };
            // By themselves, when who was turned away is forgotten: nobody is woken for that.
            let soon = if shares_change { TICK } else { REMEMBERED };
            let _ = tokio::time::timeout(soon, turn.notified()).await;
        }
    }

    /// Wakes whoever goes next.
    fn wake_next(&self, state: &State) {
        if let Some((_, turn)) = self.0.limits.goes_next(state) {
            turn.notify_one();
        }
    }

    /// How many of a tenant's wishes wait or were turned away in the last seconds: for coming again the later, the more of
    /// them there are.
    #[must_use]
    pub fn waiting(&self, tenant: &str) -> usize {
        let mut state = self.lock();
        state.forget(Instant::now());
        let of_tenant = |wish: &Wish| wish.tenant == tenant;
        let waiting = state.waiting.iter().filter(|(wish, _)| of_tenant(wish)).map(|(_, ids)| ids.len());
        waiting.sum::<usize>() + state.turned_away.iter().filter(|(_, wish)| of_tenant(wish)).count()
    }

    fn seat(&self, state: &mut State, wish: Wish, now: Instant) -> Place {
        state.next += 1;
        let id = state.next;
        state.held.insert(id, Held { wish, since: now });
        // There may be a place for another one, too.
        self.wake_next(state);
        Place { places: self.clone(), id }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The lists are whole at any time: a panic elsewhere does not spoil them.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn forget(&mut self, now: Instant) {
        while self.turned_away.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) > REMEMBERED)
        {
            self.turned_away.pop_front();
        }
    }

    fn stop_waiting(&mut self, wish: &Wish, id: u64) {
        if let Some(ids) = self.waiting.get_mut(wish) {
            ids.remove(&id);
            if ids.is_empty() {
                self.waiting.remove(wish);
            }
        }
    }

    /// What is wished for, whoever wishes for the same.
    fn wishes(&self) -> impl Iterator<Item = &Wish> {
        self.waiting.keys().chain(self.turned_away.iter().map(|(_, wish)| wish))
    }

    fn count(&self) -> Counts<'_> {
        let mut counts = Counts::default();
        for Held { wish, .. } in self.held.values() {
            *counts.of_tenant.entry(&wish.tenant).or_default() += 1;
            *counts.of_group.entry(&wish.group).or_default() += 1;
        }
        for wish in self.wishes() {
            counts.of_tenant.entry(&wish.tenant).or_default();
        }
        counts.held = self.held.len();
        counts
    }
}

/// How many places are held, counted once for all that is asked at one moment.
#[derive(Debug, Default)]
struct Counts<'a> {
    held: usize,
    /// Of all tenants that hold places or want some.
    of_tenant: BTreeMap<&'a str, usize>,
    of_group: BTreeMap<&'a str, usize>,
}

impl Counts<'_> {
    fn held_by(&self, tenant: &str) -> usize {
        self.of_tenant.get(tenant).copied().unwrap_or_default()
    }
}

impl Limits {
    /// How many places each tenant may have now, if `another` wants some as well.
    fn share(&self, counts: &Counts<'_>, another: &str) -> usize {
        match counts.of_tenant.len() + usize::from(!counts.of_tenant.contains_key(another)) {
            // The rest is for whoever comes.
            0 | 1 => self.total - self.total / 4,
            several => self.total.div_ceil(several),
        }
    }

    fn obstacle(&self, counts: &Counts<'_>, wish: &Wish) -> Option<Obstacle> {
        let of_group = counts.of_group.get(wish.group.as_str()).copied().unwrap_or_default();
        if of_group >= self.per_group {
            Some(Obstacle::Group)
        } else if counts.held_by(&wish.tenant) >= self.share(counts, &wish.tenant) {
            Some(Obstacle::Share)
        } else if counts.held >= self.total {
            Some(Obstacle::Full)
        } else {
            None
        }
    }

    /// Of those who wait and could have a place, the one whose tenant has the fewest.
    fn goes_next<'a>(&self, state: &'a State) -> Option<(u64, &'a Notify)> {
        let counts = state.count();
        let free = state.waiting.iter().filter(|(wish, _)| self.obstacle(&counts, wish).is_none());
        let oldest = free.filter_map(|(wish, ids)| Some((wish, ids.first_key_value()?)));
        let next = oldest.min_by_key(|(wish, (id, _))| (counts.held_by(&wish.tenant), **id));
        next.map(|(_, (id, turn))| (*id, &**turn))
    }

    /// Whether the holder of `id` is the one who has to make room for somebody who waits.
    fn must_go(&self, state: &State, id: u64, now: Instant) -> bool {
        let Some(mine) = state.held.get(&id) else { return false };
        let counts = state.count();
        // However often each is wished for.
        let wishes: BTreeSet<&Wish> = state.wishes().collect();
        wishes.into_iter().any(|wish| {
            let Some(obstacle) = self.obstacle(&counts, wish) else { return false };
            let share = self.share(&counts, &wish.tenant);
            let over = |held: &Held| counts.held_by(&held.wish.tenant) > share;
            let patience = if over(mine) && obstacle == Obstacle::Full {
                self.patience_over_share
            } else {
                self.patience
            };
            if now.saturating_duration_since(mine.since) < patience {
                return false;
            }
            let in_the_way = |held: &Held| match obstacle {
                Obstacle::Group => held.wish.group == wish.group,
                Obstacle::Share => held.wish.tenant == wish.tenant,
                Obstacle::Full => true,
            };
            // Those above their share first, then whoever has been there longest.
            let longest = state
                .held
                .iter()
                .filter(|(_, held)| in_the_way(held))
                .min_by_key(|(_, held)| (!over(held), held.since));
            longest.is_some_and(|(longest, _)| *longest == id)
        })
    }
}

/// A place; given back on drop.
#[derive(Debug)]
pub struct Place {
    places: Places,
    id: u64,
}

impl Place {
    /// Resolves once somebody waits for this place and its holder has had it for long enough.
    pub async fn asked_to_leave(&self) {
        loop {
            if self.must_go_at(Instant::now()) {
                return;
            }
            tokio::time::sleep(TICK).await;
        }
    }

    fn must_go_at(&self, now: Instant) -> bool {
        let mut state = self.places.lock();
        state.forget(now);
        self.places.0.limits.must_go(&state, self.id, now)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.places.lock();
        state.held.remove(&self.id);
        self.places.wake_next(&state);
    }
}

/// A wish that waits; taken back on drop.
struct Ticket {
    places: Places,
    wish: Wish,
    id: u64,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.places.lock();
        state.stop_waiting(&self.wish, self.id);
        // It may have been woken and not taken its turn.
        self.places.wake_next(&state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(total: usize) -> Places {
        Places::new(Limits {
            total,
            per_group: 4,
            patience: Duration::from_secs(60),
            patience_over_share: Duration::from_secs(10),
        })
    }

    fn as_many_as_possible(
        places: &Places,
        now: Instant,
        tenant: &str,
        group: impl Fn(usize) -> String,
    ) -> Vec<Place> {
        (0..100).map_while(|n| places.try_take_at(tenant, &group(n), now)).collect()
    }

    #[test]
    fn a_tenant_that_is_alone_leaves_a_quarter_free() {
        let (places, now) = (places(16), Instant::now());
        let held = as_many_as_possible(&places, now, "a", |n| n.to_string());
        assert_eq!(held.len(), 12);
        // Whoever comes has it at once.
        let other = as_many_as_possible(&places, now, "b", |n| format!("b{n}"));
        assert_eq!(other.len(), 4);
        // Both want more: each has an even share, and when one does not any more the other may have it.
        drop(held);
        assert_eq!(as_many_as_possible(&places, now, "b", |n| format!("c{n}")).len(), 4);
        let later = now + REMEMBERED * 2;
        let (b, a) = (
            as_many_as_possible(&places, later, "b", |n| format!("d{n}")).len(),
            as_many_as_possible(&places, later, "a", |n| format!("e{n}")).len(),
        );
        assert_eq!((b, a), (8, 4), "b has twelve in all, and leaves the rest to a");
    }

    #[test]
    fn one_group_has_no_more_than_its_places() {
        let (places, now) = (places(16), Instant::now());
        let held = as_many_as_possible(&places, now, "a", |_| "slow".to_owned());
        assert_eq!(held.len(), 4);
        assert!(places.try_take("b", "slow").is_none());
        assert!(places.try_take("b", "other").is_some());
    }

    #[test]
    fn who_has_more_than_their_share_leaves_soon_to_those_who_wait() {
        let (places, began) = (places(8), Instant::now());
        let after = |seconds| began + Duration::from_secs(seconds);
        let mut first: Vec<Place> =
            (0..6).map(|n| places.try_take_at("a", &n.to_string(), after(n)).unwrap()).collect();
        let second = as_many_as_possible(&places, after(6), "b", |n| format!("b{n}"));
        assert_eq!(second.len(), 2);
        // Nobody waits any more, and nobody has to go.
        assert!(first.iter().chain(&second).all(|place| !place.must_go_at(after(400))));
        // Somebody comes: the one that has been there longest goes, and no other.
        assert!(places.try_take_at("c", "c", after(401)).is_none());
        assert!(first[0].must_go_at(after(402)));
        assert!(first[1..].iter().chain(&second).all(|place| !place.must_go_at(after(402))));
        drop(first.remove(0));
        let _third = places.try_take_at("c", "c", after(403)).unwrap();
        assert!(first.iter().chain(&second).all(|place| !place.must_go_at(after(403))));
    }

    #[test]
    fn who_has_their_share_keeps_it_for_a_while() {
        let (places, began) = (places(2), Instant::now());
        let after = |seconds| began + Duration::from_secs(seconds);
        let a = places.try_take_at("a", "1", began).unwrap();
        let b = places.try_take_at("b", "2", after(1)).unwrap();
        for (seconds, goes) in [(20, false), (58, false), (61, true)] {
            assert!(places.try_take_at("c", "3", after(seconds)).is_none());
            assert_eq!(a.must_go_at(after(seconds)), goes, "{seconds}");
            assert!(!b.must_go_at(after(seconds)));
        }
        // Of a group, too.
        let grouped = self::places(16);
        let held = as_many_as_possible(&grouped, began, "a", |_| "slow".to_owned());
        assert!(held.iter().all(|place| !place.must_go_at(after(59))));
        assert!(grouped.try_take_at("b", "slow", after(60)).is_none());
        assert_eq!(held.iter().filter(|place| place.must_go_at(after(60))).count(), 1);
    }

    #[tokio::test]
    async fn who_has_the_fewest_goes_next() {
        let (places, now) = (places(4), Instant::now());
        let mut held = as_many_as_possible(&places, now, "a", |n| n.to_string());
        held.push(places.take("b", "b").await);
        let (sender, mut order) = tokio::sync::mpsc::unbounded_channel();
        for tenant in ["a", "a", "c"] {
            let (places, sender) = (places.clone(), sender.clone());
            tokio::spawn(async move {
                let place = places.take(tenant, tenant).await;
                // Given on with the place, so that the next one comes after it was read.
                sender.send((tenant, place)).unwrap();
            });
        }
        let waiting = || places.lock().waiting.values().map(BTreeMap::len).sum::<usize>();
        while waiting() < 3 {
            tokio::task::yield_now().await;
        }
        drop(held.remove(0));
        let (tenant, place) = order.recv().await.unwrap();
        assert_eq!(tenant, "c");
        drop((place, held));
        for _ in 0..2 {
            assert_eq!(order.recv().await.unwrap().0, "a");
        }
        // Whoever gives up is not waited for.
        let all = as_many_as_possible(&places, Instant::now(), "z", |n| n.to_string());
        let waits = tokio::time::timeout(Duration::from_millis(20), places.take("z", "z"));
        assert!(waits.await.is_err());
        drop(all);
        assert!(places.lock().waiting.is_empty());
    }

    /// Each of many tenants' many wishes is granted, each wakes one other, and one tenant's do not go before all others'.
    #[tokio::test]
    async fn thousands_wait_and_each_has_its_turn() {
        let places = places(8);
        let done = Arc::new(Mutex::new(Vec::new()));
        let all: Vec<_> = (0..4_000)
            .map(|n| {
                let (places, done) = (places.clone(), Arc::clone(&done));
                let tenant = if n < 3_000 { "many" } else { ["b", "c"][n % 2] };
                tokio::spawn(async move {
                    let place = places.take(tenant, &(n % 4).to_string()).await;
                    tokio::task::yield_now().await;
                    done.lock().unwrap().push(tenant);
                    drop(place);
                })
            })
            .collect();
        let began = Instant::now();
        for one in all {
            one.await.unwrap();
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
        let done = done.lock().unwrap();
        let before_the_last = |tenant| done.iter().rposition(|one| *one == tenant);
        assert!(
            before_the_last("b") < before_the_last("many") && before_the_last("c") < before_the_last("many")
        );
        assert!(places.lock().held.is_empty() && places.lock().waiting.is_empty());
    }
}
