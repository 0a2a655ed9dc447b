//! Who stays and who goes.

use std::net::Ipv4Addr;

use super::*;

const GRACE: Duration = Duration::from_millis(200);

fn ended(registered: &Registered) -> bool {
    registered.connection().end_token().is_cancelled()
}

fn address(last: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, last).into()
}

fn pool(bytes: u64) -> Pool {
    Pool::new("test", bytes)
}

/// Without grace, and with all memory that there may be.
fn connections(known: usize, anonymous: usize, per_party: usize) -> Arc<Connections> {
    within(known, anonymous, per_party, Full::EndOldest, &pool(1 << 30))
}

fn within(known: usize, anonymous: usize, per_party: usize, full: Full, memory: &Pool) -> Arc<Connections> {
    let bounds = Bounds { known, anonymous, per_party, full, grace: Duration::ZERO };
    let cost = Cost { pool: memory.clone(), bytes: 1024 };
    Connections::new(bounds, Costs { anonymous: cost.clone(), known: cost })
}

impl Connections {
    /// (known, anonymous clients)
    fn count(&self) -> (usize, usize) {
        let open = self.lock();
        (open.entries.len() - open.anonymous, open.anonymous)
    }
}

/// A connection whose task gives it up when it is told to, as listeners' tasks do.
async fn served(all: &Arc<Connections>, peer: IpAddr) -> Connection {
    let registered = all.admit(peer).await;
    let connection = registered.connection().clone();
    tokio::spawn(async move {
        registered.connection().ended().await;
        drop(registered);
    });
    connection
}

fn over(connection: &Connection) -> bool {
    connection.end_token().is_cancelled()
}

#[tokio::test]
async fn anonymous_clients_take_places_from_anonymous_clients_only() {
    let all = connections(2, 2, 9);
    let known = served(&all, address(1)).await;
    known.known(1).await.unwrap();
    let mut anonymous = Vec::new();
    for _ in 0..5 {
        anonymous.push(served(&all, address(1)).await);
    }
    let gone: Vec<bool> = anonymous.iter().map(over).collect();
    assert_eq!(gone, [true, true, true, false, false]);
    assert!(!over(&known));
    assert_eq!(all.count(), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn whoever_comes_in_numbers_makes_room_for_its_own() {
    let memory = pool(1 << 20);
    let cost = Cost { pool: memory, bytes: 1024 };
    let bounds = Bounds { known: 1, anonymous: 4, per_party: 1, full: Full::EndOldest, grace: GRACE };
    let all = Connections::new(bounds, Costs { anonymous: cost.clone(), known: cost });
    let honest = served(&all, address(1)).await;
    for _ in 0..100 {
        let begun = Instant::now();
        let one = served(&all, address(2)).await;
        tokio::time::sleep(GRACE / 10).await;
        // Nobody goes before he has had his time, however many come.
        assert!(!over(&one), "{:?}", begun.elapsed());
    }
    assert!(!over(&honest));
}

#[tokio::test]
async fn an_address_of_ipv6_is_as_good_as_its_neighbours() {
    let all = connections(2, 3, 9);
    let net = |host: u16| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, host));
    let honest = served(&all, address(1)).await;
    for host in 0..10 {
        served(&all, net(host)).await;
    }
    assert!(!over(&honest));
    assert_eq!(Net::of("::ffff:10.0.0.1".parse().unwrap()), Net::of(address(1)));
}

#[tokio::test]
async fn memory_bounds_anonymous_clients_as_places_do() {
    let memory = pool(3 * 1024);
    let all = within(9, 100, 9, Full::EndOldest, &memory);
    let mut anonymous = Vec::new();
    for _ in 0..10 {
        anonymous.push(served(&all, address(1)).await);
    }
    assert_eq!(anonymous.iter().filter(|one| !over(one)).count(), 3);
    assert_eq!(memory.used(), 3 * 1024);
}

#[tokio::test]
async fn a_full_house_of_known_ones_ends_who_is_idle_and_else_refuses() {
    let all = connections(2, 9, 9);
    let (busy, idle) = (served(&all, address(1)).await, served(&all, address(1)).await);
    let (late, last) = (served(&all, address(1)).await, served(&all, address(1)).await);
    let _request = busy.request();
    busy.known(1).await.unwrap();
    idle.known(2).await.unwrap();
    late.known(3).await.unwrap();
    assert!(over(&idle) && !over(&busy) && !over(&late));
    let _other = late.request();
    assert_eq!(last.known(4).await, Err(Refused::Places(2)));
    assert!(last.is_anonymous() && !over(&busy) && !over(&late));
}

#[tokio::test]
async fn where_memory_is_short_who_is_idle_makes_room() {
    let memory = pool(4 * 1024);
    let all = within(99, 99, 99, Full::RefuseNew, &memory);
    let mut known = Vec::new();
    for party in [1, 1, 1] {
        let one = served(&all, address(1)).await;
        one.known(party).await.unwrap();
        known.push(one);
    }
    // Anonymous clients have their own share in life; here the last KiB is the new one's.
    let new = served(&all, address(2)).await;
    new.known(2).await.unwrap();
    assert!(over(&known[0]) && !over(&known[1]) && !over(&known[2]));
}

#[tokio::test]
async fn where_all_are_busy_the_party_with_most_makes_room() {
    let all = connections(4, 9, 9);
    let mut requests = Vec::new();
    let mut known = Vec::new();
    for party in [1, 2, 2, 2] {
        let one = served(&all, address(1)).await;
        requests.push(one.request());
        one.known(party).await.unwrap();
        known.push(one);
    }
    let new = served(&all, address(1)).await;
    requests.push(new.request());
    new.known(3).await.unwrap();
    assert_eq!(known.iter().map(over).collect::<Vec<_>>(), [false, true, false, false]);
    // And not where the new one's party would have as many as that.
    let more = served(&all, address(1)).await;
    assert_eq!(more.known(3).await, Err(Refused::Places(4)));
}

#[tokio::test]
async fn a_party_has_its_own_bound_and_its_newest_stays() {
    let all = connections(10, 9, 2);
    let (first, second) = (served(&all, address(1)).await, served(&all, address(1)).await);
    let (third, other) = (served(&all, address(1)).await, served(&all, address(1)).await);
    let _busy = first.request();
    let _too = second.request();
    first.known(1).await.unwrap();
    second.known(1).await.unwrap();
    other.known(2).await.unwrap();
    third.known(1).await.unwrap();
    assert!(over(&first) && !over(&second) && !over(&third) && !over(&other));
}

#[tokio::test]
async fn a_party_of_many_clients_loses_nothing_that_was_begun() {
    let all = within(10, 9, 2, Full::RefuseNew, &pool(1 << 20));
    let (first, second) = (served(&all, address(1)).await, served(&all, address(1)).await);
    let (third, fourth) = (served(&all, address(1)).await, served(&all, address(1)).await);
    let busy = first.request();
    let _too = second.request();
    first.known(1).await.unwrap();
    second.known(1).await.unwrap();
    assert_eq!(third.known(1).await, Err(Refused::Party(2)));
    assert!(!over(&first) && !over(&second));
    drop(busy);
    third.known(1).await.unwrap();
    assert!(over(&first));
    fourth.known(2).await.unwrap();
}

#[tokio::test]
async fn a_place_and_its_memory_are_given_back() {
    let memory = pool(1 << 20);
    let all = within(2, 2, 2, Full::EndOldest, &memory);
    let (known, anonymous) = (all.admit(address(1)).await, all.admit(address(1)).await);
    known.connection().known(1).await.unwrap();
    assert_eq!((all.count(), memory.used()), ((1, 1), 2 * 1024));
    drop((known, anonymous));
    assert_eq!((all.count(), memory.used()), ((0, 0), 0));
}

#[tokio::test(start_paused = true)]
async fn idleness_begins_with_the_end_of_the_last_request() {
    let all = connections(2, 2, 2);
    let one = all.admit(address(1)).await;
    let connection = one.connection();
    let (request, other) = (connection.request(), connection.request());
    let limit = Duration::from_secs(60);
    drop(request);
    tokio::time::sleep(2 * limit).await;
    let idle = |limit| tokio::time::timeout(Duration::from_secs(1), connection.idle_for(limit, limit));
    assert!(idle(limit).await.is_err());
    drop(other);
    let over = Instant::now();
    connection.idle_for(limit, limit).await;
    assert!(over.elapsed() >= limit);
    // An anonymous client has less time.
    let asked = Instant::now();
    drop(connection.request());
    connection.idle_for(limit, limit / 10).await;
    assert!(asked.elapsed() < limit && !ended(&one));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_nothing_is_told_from_one_that_there_is_nothing_for() {
    let all = connections(2, 2, 2);
    let one = all.admit(address(1)).await;
    let connection = one.connection();
    let limit = Duration::from_secs(30);
    let request = connection.request();
    let stalled = || tokio::time::timeout(limit * 3, connection.stalled_for(limit));
    assert!(stalled().await.is_err());
    request.offer();
    request.taken();
    assert!(stalled().await.is_err());
    request.offer();
    let begun = Instant::now();
    stalled().await.unwrap();
    assert!(begun.elapsed() >= limit);
    request.offer();
    drop(request);
    assert!(stalled().await.is_err());
}
