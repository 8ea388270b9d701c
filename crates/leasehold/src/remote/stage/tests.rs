use std::pin::pin;
use std::task::Poll;

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::*;

const PACE: Pace = Pace { alone: 2, service: Duration::from_millis(1) };

/// Notes what is sent together, and answers when it is let. Whoever sends 13 fails.
struct Sender {
    stage: Stage<u32, u32>,
    sent: Mutex<Vec<Vec<u32>>>,
    let_go: Semaphore,
}

impl Sender {
    fn new(batching: bool) -> Arc<Self> {
        Arc::new(Self { stage: Stage::new(batching, PACE), sent: Mutex::default(), let_go: Semaphore::new(0) })
    }

    fn sent(&self) -> Vec<Vec<u32>> {
        lock(&self.sent).clone()
    }

    async fn answer(&self, requests: Vec<u32>) -> Vec<Result<u32, Error>> {
        lock(&self.sent).push(requests.clone());
        self.let_go.acquire().await.unwrap().forget();
        let answer = |number| if number == 13 { Err(Error::invalid("13")) } else { Ok(number * 2) };
        requests.into_iter().map(answer).collect()
    }
}

impl Batching<u32> for Sender {
    type Answer = u32;

    fn stage(&self) -> &Stage<u32, u32> {
        &self.stage
    }

    async fn send_one(&self, request: &u32) -> Result<u32, Error> {
        self.answer(vec![*request]).await.remove(0)
    }

    async fn send_many(&self, requests: Vec<u32>) -> Vec<Result<u32, Error>> {
        self.answer(requests).await
    }
}

fn start(sender: &Arc<Sender>, numbers: impl IntoIterator<Item = u32>) -> Vec<JoinHandle<Result<u32, Error>>> {
    let one = |number| {
        let sender = sender.clone();
        tokio::spawn(async move { send(&sender, &number).await })
    };
    numbers.into_iter().map(one).collect()
}

/// Lets everything happen that can happen at this time.
async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

async fn answers(tasks: Vec<JoinHandle<Result<u32, Error>>>) -> Vec<Result<u32, Error>> {
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    answers
}

fn is_idle(sender: &Sender) -> bool {
    let state = lock(&sender.stage.state);
    state.lanes == 0 && state.under_way == 0 && state.waiting.is_empty() && !state.watched
}

#[tokio::test(start_paused = true)]
async fn what_comes_alone_is_sent_at_once_by_who_asks() {
    let sender = Sender::new(true);
    for number in 0..5 {
        let before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let mut call = pin!(send(&sender, &number));
        assert!(std::future::poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_pending())).await);
        assert_eq!(sender.sent().last(), Some(&vec![number]), "nothing else had to run for it");
        assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), before);
        sender.let_go.add_permits(1);
        assert_eq!(call.await.unwrap(), number * 2);
    }
    assert!(is_idle(&sender));
}

#[tokio::test(start_paused = true)]
async fn what_comes_while_two_are_on_their_way_follows_together_when_one_is_answered() {
    let sender = Sender::new(true);
    let tasks = start(&sender, 0..10);
    settle().await;
    assert_eq!(sender.sent(), [vec![0], vec![1]]);
    sender.let_go.add_permits(1);
    settle().await;
    assert_eq!(sender.sent(), [vec![0], vec![1], (2..10).collect()]);
    sender.let_go.add_permits(10);
    let expected: Vec<u32> = (0..10).map(|number| number * 2).collect();
    assert_eq!(answers(tasks).await.into_iter().map(Result::unwrap).collect::<Vec<_>>(), expected);
    tokio::time::sleep(PATIENCE * 2).await;
    assert!(is_idle(&sender));
}

#[tokio::test(start_paused = true)]
async fn as_many_as_may_go_together_wait_for_nobody() {
    let sender = Sender::new(true);
    let most = u32::try_from(MOST_TOGETHER).unwrap();
    let tasks = start(&sender, 0..2 + 2 * most);
    settle().await;
    let sizes: Vec<_> = sender.sent().iter().map(Vec::len).collect();
    assert_eq!(sizes, [1, 1, MOST_TOGETHER, MOST_TOGETHER]);
    sender.let_go.add_permits(10);
    for (number, answer) in (0..).zip(answers(tasks).await) {
        assert_eq!(answer.ok(), (number != 13).then_some(number * 2));
    }
    tokio::time::sleep(PATIENCE * 2).await;
    assert!(is_idle(&sender));
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_long_behind_requests_that_take_long() {
    let sender = Sender::new(true);
    let tasks = start(&sender, 0..5);
    settle().await;
    assert_eq!(sender.sent().len(), 2);
    tokio::time::sleep(PATIENCE).await;
    settle().await;
    assert_eq!(sender.sent(), [vec![0], vec![1], vec![2, 3, 4]]);
    // And again, behind even more.
    let more = start(&sender, 5..7);
    settle().await;
    tokio::time::sleep(PATIENCE).await;
    settle().await;
    assert_eq!(sender.sent().last(), Some(&vec![5, 6]));
    sender.let_go.add_permits(10);
    assert_eq!(answers(tasks).await.len() + answers(more).await.len(), 7);
    tokio::time::sleep(PATIENCE * 2).await;
    assert!(is_idle(&sender));
}

#[tokio::test(start_paused = true)]
async fn futures_that_nobody_polls_hold_up_nobody() {
    let sender = Sender::new(true);
    let (mut first, mut second) = (pin!(send(&sender, &1)), pin!(send(&sender, &2)));
    for call in [&mut first, &mut second] {
        assert!(std::future::poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_pending())).await);
    }
    let others = start(&sender, 3..6);
    settle().await;
    tokio::time::sleep(PATIENCE).await;
    settle().await;
    assert_eq!(sender.sent(), [vec![1], vec![2], vec![3, 4, 5]]);
    sender.let_go.add_permits(10);
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (2, 4));
    assert!(answers(others).await.into_iter().all(|answer| answer.is_ok()));
}

#[tokio::test(start_paused = true)]
async fn what_nobody_wants_any_more_is_not_sent_and_holds_up_nobody() {
    let sender = Sender::new(true);
    let first = start(&sender, 0..2);
    let waiting = start(&sender, 2..6);
    settle().await;
    waiting[1].abort();
    waiting[2].abort();
    settle().await;
    // One that is on its way is given up: its place goes to those who wait.
    first[0].abort();
    settle().await;
    assert_eq!(sender.sent(), [vec![0], vec![1], vec![2, 5]]);
    sender.let_go.add_permits(10);
    let mut answered = Vec::new();
    for task in first.into_iter().chain(waiting) {
        answered.extend(task.await.ok().map(Result::unwrap));
    }
    assert_eq!(answered, [2, 4, 10], "those who were not aborted");
    tokio::time::sleep(PATIENCE * 2).await;
    assert!(is_idle(&sender));
}

#[tokio::test(start_paused = true)]
async fn what_fails_for_one_fails_for_no_other() {
    let sender = Sender::new(true);
    let tasks = start(&sender, 0..20);
    settle().await;
    sender.let_go.add_permits(20);
    for (number, answer) in answers(tasks).await.into_iter().enumerate() {
        assert_eq!(answer.is_err(), number == 13, "{number}");
    }
    assert!(sender.sent().iter().any(|sent| sent.len() > 10), "13 was sent with others");
}

#[tokio::test(start_paused = true)]
async fn a_distant_server_is_sent_as_many_alone_as_it_can_answer_in_the_meantime() {
    let sender = Sender::new(true);
    let lanes = || sender.stage.lanes(&lock(&sender.stage.state));
    // Some slow answers say little; that all are slow says that the way is long.
    for slow in 1..=WINDOW {
        let call = start(&sender, [0]);
        settle().await;
        tokio::time::sleep(Duration::from_millis(11)).await;
        sender.let_go.add_permits(1);
        answers(call).await;
        assert!(slow == WINDOW || lanes() == 2);
    }
    // Of eleven milliseconds one is the server's own; the clock of the runtime adds one.
    assert!((10..=11).contains(&lanes()), "{}", lanes());
    let (before, most) = (sender.sent().len(), lanes());
    let tasks = start(&sender, 20..34);
    settle().await;
    assert_eq!(sender.sent().len() - before, most);
    sender.let_go.add_permits(20);
    assert!(answers(tasks).await.into_iter().all(|answer| answer.is_ok()));
    assert_eq!(lanes(), 2, "answers that come at once show that it is near, after all");
}

#[tokio::test]
async fn a_server_that_has_much_to_do_is_not_taken_for_a_distant_one() {
    let sender = Sender::new(true);
    let lanes = || sender.stage.lanes(&lock(&sender.stage.state));
    for _ in 0..WINDOW {
        sender.stage.note(Duration::from_millis(33), 32);
    }
    assert_eq!(lanes(), 2, "32 milliseconds for 32 requests");
    for _ in 0..WINDOW {
        sender.stage.note(Duration::from_millis(52), 32);
    }
    assert_eq!(lanes(), 20, "and 20 on the way");
}

#[tokio::test(start_paused = true)]
async fn without_batching_everything_is_sent_alone_and_at_once() {
    let sender = Sender::new(false);
    let tasks = start(&sender, 0..50);
    settle().await;
    assert!(sender.sent().len() == 50 && sender.sent().iter().all(|sent| sent.len() == 1));
    sender.let_go.add_permits(50);
    assert_eq!(answers(tasks).await.len(), 50);
}

#[test]
fn a_runtime_that_ends_leaves_nobody_waiting() {
    let ends = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let lives = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let sender = ends.block_on(async { Sender::new(true) });
    let call = |number| {
        let sender = sender.clone();
        lives.spawn(async move { send(&sender, &number).await })
    };
    // The two lanes go on elsewhere; those who wait depend on the runtime that ends.
    let calls: Vec<_> = (0..5).map(call).collect();
    lives.block_on(settle());
    drop(ends);
    let late: Vec<_> = (5..40).map(call).collect();
    lives.block_on(async {
        settle().await;
        sender.let_go.add_permits(2);
        let outcomes: Vec<_> = answers(calls.into_iter().chain(late).collect()).await;
        assert!(outcomes[..2].iter().all(Result::is_ok));
        assert!(outcomes[2..].iter().all(|outcome| outcome.as_ref().is_err_and(Error::outcome_unknown)));
    });
}
