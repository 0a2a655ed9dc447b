//! Questions of one kind that come while one of them is under way, asked in one statement.
//!
//! A commit has many passes gather the same at once. Each asks for itself; what waits for the database meanwhile is asked together by
//! the next statement, and the same question once. One that comes alone is asked at once. No answer is older than its question.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use roadstead_api::KindId;
use roadstead_model::{ApplierUid, ClusterUid, Digest, ObjectRef, ResourceUid};
use tokio::sync::oneshot::{self, Sender};

use crate::build_cache::BuildReads;
use crate::health::Health;
use crate::{AgentSession, Descent, Holdings, Reconciliation, SetAside, StoreError, Stored};

/// What passes ask of the database together.
#[derive(Clone, Default)]
pub(crate) struct Questions {
    /// Objects by their uids.
    pub(crate) objects: Together<ResourceUid, Stored>,
    /// Objects by their kinds, namespaces and names.
    pub(crate) named: Together<Named, Stored>,
    /// Appliers' newest attempts.
    pub(crate) newest: Together<ApplierUid, Reconciliation>,
    /// What appliers own.
    pub(crate) holdings: Together<ApplierUid, Holdings>,
    /// The newest sessions of clusters' agents.
    pub(crate) sessions: Together<ClusterUid, AgentSession>,
    /// From whom objects have their rights, up to so many above them.
    pub(crate) descents: Together<(Named, usize), Descent>,
    /// Objects on clusters, of kinds that go to the hub.
    pub(crate) children: Together<(ApplierUid, ClusterUid), Vec<ObjectRef>>,
    /// What is set aside.
    pub(crate) set_aside: Together<Digest, SetAside>,
    /// What the newest builds by recipes read, up to so many of each.
    pub(crate) built: Together<(Digest, i64), Vec<BuildReads>>,
}

/// Kind, namespace and name.
pub(crate) type Named = (KindId, String, String);

/// Questions of one statement at most. Each answer may be an object of 3 MiB, and those of a statement are in memory at once, of the two kinds
/// of questions that are about objects: no more than the passes that asked would hold of them by themselves.
const MOST: usize = 16;

/// Answers by their questions. What was not found is not among them.
pub(crate) type Answers<Q, A> = HashMap<Q, Result<A, StoreError>>;

/// Questions of one kind.
pub(crate) struct Together<Q, A>(Arc<Mutex<State<Q, A>>>);

struct State<Q, A> {
    waiting: Vec<(Q, Asker<A>)>,
    /// A statement is under way, and whoever waits for it takes up what comes meanwhile.
    is_asking: bool,
}

type Asker<A> = Sender<Result<Option<A>, Arc<StoreError>>>;

impl<Q, A> Default for Together<Q, A> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(State { waiting: Vec::new(), is_asking: false })))
    }
}

impl<Q, A> Clone for Together<Q, A> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<Q, A> Together<Q, A> {
    fn state(&self) -> MutexGuard<'_, State<Q, A>> {
        // Nothing under the lock can panic half-way through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<Q, A> Together<Q, A>
where
    Q: Clone + Eq + Hash + Send + 'static,
    A: Clone + Send + Sync + 'static,
{
    /// The answer to a question, where there is one. `ask` asks several at once, of `whom`.
    ///
    /// # Errors
    /// Where `ask` fails, or the database goes away, for all whose questions were about to be asked; and where the answer to this question is
    /// an error.
    pub(crate) async fn ask<W, R>(
        &self,
        health: &Health,
        whom: &W,
        question: Q,
        ask: impl Fn(W, Vec<Q>) -> R + Send + Sync + 'static,
    ) -> Result<Option<A>, StoreError>
    where
        W: Clone + Send + Sync + 'static,
        R: Future<Output = Result<Answers<Q, A>, StoreError>> + Send + 'static,
    {
        let (asker, answer) = oneshot::channel();
        let begins = {
            let mut state = self.state();
            state.waiting.push((question, asker));
            !std::mem::replace(&mut state.is_asking, true)
        };
        if begins {
            // Not by whoever asks first: others rely on it, and that one may go away at any time.
            tokio::spawn(Round { of: self.clone(), is_over: false }.ask_all(
                health.clone(),
                whom.clone(),
                ask,
            ));
        }
        match answer.await {
            Ok(answer) => answer.map_err(StoreError::Shared),
            // The process is about to end, or a statement's answer made it panic.
            Err(_) => {
                Err(StoreError::query("ask the database together with others")(sqlx::Error::WorkerCrashed))
            }
        }
    }

    /// What is asked next, and by whom. Where that is nothing, whoever asks from now on starts a statement.
    fn take(&self) -> HashMap<Q, Vec<Asker<A>>> {
        let mut state = self.state();
        let mut taken: HashMap<Q, Vec<Asker<A>>> = HashMap::new();
        for (question, asker) in std::mem::take(&mut state.waiting) {
            let is_full = taken.len() == MOST;
            match taken.entry(question) {
                Entry::Occupied(askers) => askers.into_mut().push(asker),
                Entry::Vacant(question) if is_full => state.waiting.push((question.into_key(), asker)),
                Entry::Vacant(question) => {
                    question.insert(vec![asker]);
                }
            }
        }
        state.is_asking = !taken.is_empty();
        taken
    }
}

/// Statements, one after the other, until nobody asks any more.
struct Round<Q, A> {
    of: Together<Q, A>,
    is_over: bool,
}

impl<Q, A> Round<Q, A>
where
    Q: Clone + Eq + Hash + Send + 'static,
    A: Clone + Send + Sync + 'static,
{
    async fn ask_all<W, R>(mut self, health: Health, whom: W, ask: impl Fn(W, Vec<Q>) -> R + Send + Sync)
    where
        W: Clone + Send + Sync,
        R: Future<Output = Result<Answers<Q, A>, StoreError>> + Send,
    {
        loop {
            let taken = self.of.take();
            if taken.is_empty() {
                self.is_over = true;
                return;
            }
            let answers = tokio::select! {
                biased;
                answers = ask(whom.clone(), taken.keys().cloned().collect()) => answers,
                // A statement to a server that does not answer may never end, and others wait for it.
                why = health.lost() => Err(StoreError::Away(why)),
            };
            match answers {
                Ok(mut answers) => {
                    for (question, askers) in taken {
                        tell(askers, answers.remove(&question).transpose().map_err(Arc::new));
                    }
                }
                Err(error) => {
                    let error = Arc::new(error);
                    taken.into_values().for_each(|askers| tell(askers, Err(Arc::clone(&error))));
                }
            }
        }
    }
}

impl<Q, A> Drop for Round<Q, A> {
    fn drop(&mut self) {
        if !self.is_over {
            // It ends before its time: who waits is told so by the end of the channel.
            let mut state = self.of.state();
            state.waiting.clear();
            state.is_asking = false;
        }
    }
}

fn tell<A: Clone>(mut askers: Vec<Asker<A>>, answer: Result<Option<A>, Arc<StoreError>>) {
    let last = askers.pop();
    for asker in askers {
        // Who has gone need not know.
        let _gone = asker.send(answer.clone());
    }
    if let Some(last) = last {
        let _gone = last.send(answer);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::future::{BoxFuture, join_all};
    use futures::{FutureExt as _, poll};
    use tokio::sync::Semaphore;
    use tokio::task::JoinHandle;
    use tokio::time::timeout;

    use super::*;

    type Statement = BoxFuture<'static, Result<Answers<u32, u32>, StoreError>>;

    /// A database that doubles even numbers, cannot read 13, does not know other odd ones, and does not survive 666.
    #[derive(Clone)]
    struct Database {
        questions: Together<u32, u32>,
        health: Health,
        asked: Arc<Mutex<Vec<Vec<u32>>>>,
        /// A statement needs one.
        goes_on: Arc<Semaphore>,
        is_away: bool,
    }

    impl Database {
        fn new(is_away: bool) -> Self {
            let (questions, asked, goes_on) =
                (Together::default(), Arc::default(), Arc::new(Semaphore::new(0)));
            Self { questions, health: Health::unasked(), asked, goes_on, is_away }
        }

        fn statement(&self, mut numbers: Vec<u32>) -> Statement {
            let this = self.clone();
            async move {
                numbers.sort_unstable();
                this.asked.lock().unwrap().push(numbers.clone());
                this.goes_on.acquire().await.unwrap().forget();
                assert!(!numbers.contains(&666));
                if this.is_away {
                    return Err(StoreError::query("read numbers")(sqlx::Error::PoolTimedOut));
                }
                let unreadable = || StoreError::Corrupt { what: "read a number", why: "it is 13".to_owned() };
                let known = numbers.into_iter().filter(|number| number % 2 == 0 || *number == 13);
                Ok(known
                    .map(|number| (number, (number != 13).then_some(number * 2).ok_or_else(unreadable)))
                    .collect())
            }
            .boxed()
        }

        async fn ask(&self, number: u32) -> Result<Option<u32>, StoreError> {
            self.questions.ask(&self.health, self, number, |this, numbers| this.statement(numbers)).await
        }

        fn asked(&self) -> Vec<Vec<u32>> {
            self.asked.lock().unwrap().clone()
        }

        /// Asks in a task of its own, until a statement with this question is under way.
        async fn begin(&self, number: u32) -> JoinHandle<Result<Option<u32>, StoreError>> {
            let this = self.clone();
            let asks = tokio::spawn(async move { this.ask(number).await });
            let is_asked = async {
                while !self.asked().iter().flatten().any(|asked| *asked == number) {
                    tokio::task::yield_now().await;
                }
            };
            timeout(Duration::from_secs(10), is_asked).await.unwrap();
            asks
        }
    }

    #[tokio::test]
    async fn what_comes_while_a_statement_is_under_way_is_asked_by_the_next_one() {
        let database = Database::new(false);
        let first = database.begin(2).await;
        let mut others = join_all([4, 5, 4, 2, 13].map(|number| database.ask(number)));
        assert!(poll!(&mut others).is_pending());
        database.goes_on.add_permits(2);
        assert_eq!(first.await.unwrap().unwrap(), Some(4));
        let others = others.await;
        // The same question once; and once more what was asked before the first answer was there: it may be another one by now.
        assert_eq!(database.asked(), [vec![2], vec![2, 4, 5, 13]]);
        let answers: Vec<_> = others.iter().map(|answer| answer.as_ref().ok().copied()).collect();
        assert_eq!(answers, [Some(Some(8)), Some(None), Some(Some(8)), Some(Some(4)), None]);
        assert_eq!(
            others[4].as_ref().unwrap_err().to_string(),
            "read a number: the stored value is not readable: it is 13"
        );
    }

    #[tokio::test]
    async fn a_statement_has_so_many_questions() {
        let database = Database::new(false);
        database.goes_on.add_permits(3);
        let many: Vec<u32> = (0..2 * u32::try_from(MOST).unwrap() + 1).map(|number| number * 2).collect();
        let answers = join_all(many.iter().map(|number| database.ask(*number))).await;
        for (number, answer) in many.iter().zip(answers) {
            assert_eq!(answer.unwrap(), Some(number * 2));
        }
        let counts: Vec<usize> = database.asked().iter().map(Vec::len).collect();
        assert_eq!(counts, [MOST, MOST, 1]);
    }

    #[tokio::test]
    async fn a_statement_that_fails_fails_all_who_asked_it_and_nobody_else() {
        let mut database = Database::new(true);
        database.goes_on.add_permits(2);
        for answer in join_all([2, 4].map(|number| database.ask(number))).await {
            let error = answer.unwrap_err();
            assert!(error.outage().is_some(), "{error:?}");
            assert_eq!(error.to_string(), "read numbers");
        }
        database.is_away = false;
        assert_eq!(database.ask(2).await.unwrap(), Some(4));
    }

    #[tokio::test]
    async fn who_goes_away_takes_nobody_along() {
        let database = Database::new(false);
        let first = database.begin(2).await;
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        database.goes_on.add_permits(2);
        assert_eq!(database.ask(4).await.unwrap(), Some(8));
    }

    #[tokio::test]
    async fn a_panic_is_an_error_and_the_next_question_is_asked() {
        let database = Database::new(false);
        database.goes_on.add_permits(2);
        database.ask(666).await.unwrap_err();
        assert_eq!(database.ask(2).await.unwrap(), Some(4));
    }

    #[tokio::test]
    async fn a_statement_that_never_ends_keeps_nobody_once_the_database_is_known_to_be_away() {
        let database = Database::new(false);
        let first = database.begin(2).await;
        let mut others = join_all([2, 4].map(|number| database.ask(number)));
        assert!(poll!(&mut others).is_pending());
        database.health.is(Some("it does not answer"));
        for answer in others.await.into_iter().chain([first.await.unwrap()]) {
            assert_eq!(answer.unwrap_err().outage(), Some("it does not answer"));
        }
        // It has failed over meanwhile.
        database.health.is(None);
        database.goes_on.add_permits(1);
        assert_eq!(database.ask(4).await.unwrap(), Some(8));
    }
}
