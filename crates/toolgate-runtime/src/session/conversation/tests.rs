use proptest::prelude::*;
use toolgate_core::{
    Delta, MemoryStore, Model, ModelError, ModelName, RecordKey, Registry, Reply, StoreRecord,
    ToolAnswer, ToolRequest,
};
use toolgate_testkit::ReadCount;
use uuid::Uuid;

use super::*;
use crate::Session;

fn turn(n: u64) -> TurnId {
    TurnId::new(Uuid::from_u128(u128::from(n) + 1))
}

fn asking(n: u64, calls: usize) -> Message {
    let call = |c| {
        MessagePart::from(PartContent::Call(ToolRequest::from_text(
            &format!("{n}-{c}"),
            "t",
            "{}",
        )))
    };
    Message::new(Role::Assistant, (0..calls).map(call).collect())
}

fn answering(n: u64, calls: usize, text: &str) -> Message {
    let answer = |c| {
        let call_id = format!("{n}-{c}");
        let tool = "t".to_owned();
        let text = text.to_owned();
        MessagePart::from(PartContent::Result(ToolAnswer {
            call_id,
            tool,
            text,
            is_error: false,
            media: Vec::new(),
        }))
    };
    Message::new(Role::Tool, (0..calls).map(answer).collect())
}

fn message_record(n: u64, run: u64, message: Message) -> MessageRecord {
    MessageRecord::new(turn(n), 0, run, Arc::new(message))
}

/// Checks that every result directly follows its calls, and that nothing else has results.
fn assert_pairs_are_whole(messages: &[Arc<Message>]) {
    for (at, message) in messages.iter().enumerate() {
        let calls: Vec<_> = message
            .calls()
            .map(|call| call.provider_call_id.clone())
            .collect();
        let answers = |message: &Message| -> Vec<String> {
            let answer = |part: &MessagePart| match &part.content {
                PartContent::Result(answer) => Some(answer.call_id.clone()),
                _ => None,
            };
            message.parts.iter().filter_map(answer).collect()
        };
        if message.role == Role::Tool {
            assert!(
                at > 0 && messages[at - 1].role == Role::Assistant,
                "results without calls"
            );
        }
        if let (false, Some(next)) = (calls.is_empty(), messages.get(at + 1)) {
            assert_eq!(answers(next), calls, "calls without results");
        }
    }
}

#[test]
fn messages_during_calls_come_after_their_results() {
    let mut conversation = Conversation::default();
    conversation.push(&message_record(0, 0, Message::user("do it")));
    conversation.push(&message_record(1, 0, asking(1, 2)));
    assert_eq!(conversation.state(), ConversationState::Open(turn(1)));
    conversation.push(&message_record(2, 0, Message::user("and that")));
    assert_eq!(conversation.state(), ConversationState::Open(turn(1)));
    conversation.push(&message_record(1, 0, answering(1, 2, "done")));
    assert_eq!(conversation.state(), ConversationState::Ask);
    let roles: Vec<_> = conversation
        .request
        .messages
        .iter()
        .map(|message| message.role)
        .collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool, Role::User]);
    conversation.push(&message_record(2, 0, Message::assistant("both are done")));
    assert_eq!(
        (conversation.state(), conversation.last_text().as_str()),
        (ConversationState::Answered, "both are done")
    );
}

#[test]
fn a_paused_model_is_asked_again_and_the_iteration_counts() {
    let mut conversation = Conversation::default();
    conversation.push(&message_record(0, 0, Message::user("search for it")));
    conversation.push(&MessageRecord {
        paused: true,
        ..message_record(0, 0, Message::assistant("I am searching"))
    });
    assert_eq!(
        (conversation.state(), conversation.counted_iterations()),
        (ConversationState::Ask, 1)
    );
    conversation.push(&message_record(1, 0, Message::assistant("found")));
    assert_eq!(conversation.state(), ConversationState::Answered);
}

#[test]
fn instructions_are_stored_with_the_first_run_and_named_by_later_ones() {
    let mut conversation = Conversation::default();
    let text: Arc<str> = "Be brief.".into();
    let whole = RunInstructions::Text(text.clone());
    assert_eq!(conversation.instructions_record(4, &text), whole);
    // The same number again: the write of the first one failed.
    assert_eq!(conversation.instructions_record(4, &text), whole);
    let later = conversation.instructions_record(6, &text);
    assert_eq!(later, RunInstructions::SameAs(4));
}

#[test]
fn a_new_message_begins_a_new_run() {
    let mut conversation = Conversation::default();
    conversation.push(&message_record(0, 0, Message::user("one")));
    conversation.push(&message_record(0, 0, Message::assistant("1")));
    assert_eq!(conversation.iteration, 1);
    conversation.push(&message_record(1, 2, Message::user("two")));
    assert_eq!(
        (
            conversation.iteration,
            conversation.run,
            conversation.run_messages().len()
        ),
        (0, 2, 1)
    );
}

proptest! {
    #[test]
    fn calls_and_their_results_are_never_parted(
        script in prop::collection::vec((0usize..4, 0usize..400, any::<bool>()), 1..40), most in 200usize..3000,
    ) {
        let (mut conversation, mut n) = (Conversation::default(), 0);
        let store = MemoryStore::new();
        let session = SessionId::new(Uuid::from_u128(9));
        let mut log = Vec::new();
        let mut say = |conversation: &mut Conversation, said: MessageRecord| {
            let number = conversation.push(&said);
            log.push((number, said));
        };
        for (calls, size, meanwhile) in script {
            let first = message_record(n, conversation.next, Message::user("x".repeat(size)));
            say(&mut conversation, first);
            n += 1;
            if calls > 0 {
                let run = conversation.run;
                say(&mut conversation, message_record(n, run, asking(n, calls)));
                if meanwhile {
                    say(&mut conversation, message_record(n, run, Message::user("hurry")));
                }
                prop_assert_eq!(conversation.compact(most), None, "not while calls are open");
                say(&mut conversation, message_record(n, run, answering(n, calls, &"r".repeat(size))));
            }
            conversation.compact(most);
            assert_pairs_are_whole(&conversation.request.messages);
            prop_assert!(conversation.request.messages.first().is_some_and(|first| first.role == Role::User));
            let run = conversation.run;
            say(&mut conversation, message_record(n, run, Message::assistant("ok")));
            prop_assert_eq!(conversation.state(), ConversationState::Answered);
        }
        // Another process loads the same.
        let store = StoreHandle::new(store);
        futures::executor::block_on(async {
            for (number, said) in log {
                let record = StoreRecord::Message(Arc::new(said));
                store.put_record_once(RecordKey::Message(session, number), record).await.expect("is stored");
            }
            let loaded = Conversation::load(&store, session, most).await.expect("is loaded");
            let opened = Conversation::open(&store, session, most).await.expect("is opened");
            assert_eq!((opened.next, opened.run, opened.state()), (loaded.next, loaded.run, loaded.state()));
            if !opened.is_partial {
                assert_eq!(opened.request.messages, loaded.request.messages);
            }
            assert_eq!((loaded.next, loaded.run, loaded.state()), (conversation.next, conversation.run, ConversationState::Answered));
            assert_pairs_are_whole(&loaded.request.messages);
        });
    }
}

/// Returns the messages of a request from all of its messages, as a session that was never closed
/// has it, and then leaves out what a new process does not load.
fn messages_of_all(log: &[(u64, MessageRecord)], most: usize) -> Vec<Arc<Message>> {
    let mut size = 0;
    let mut first = log.len();
    // Whole pages are loaded: the first has 64 messages, and each after it twice as many.
    let mut page = 64;
    while first > 0 && size <= most {
        let next = first.saturating_sub(page);
        size += log[next..first]
            .iter()
            .map(|(_, said)| said.message.size())
            .sum::<usize>();
        first = next;
        page = (page * 2).min(1_024);
    }
    let mut conversation = Conversation::default();
    for (number, said) in &log[first..] {
        conversation.next = *number;
        conversation.push(said);
    }
    if first > 0 {
        conversation.left_out = first as u64;
        let note = Arc::new(Message::user(""));
        conversation.request.messages.insert(0, note);
        conversation.replace_oldest(1);
    }
    conversation.request.messages
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_is_opened_in_part_and_then_loaded_gives_the_same_request(
        script in prop::collection::vec((0usize..4, 0usize..300, any::<bool>()), 1..150), most in 200usize..60_000,
    ) {
        let mut log: Vec<(u64, MessageRecord)> = Vec::new();
        for (calls, size, meanwhile) in script {
            let run = log.len() as u64;
            let mut say = |message| {
                let number = log.len() as u64;
                log.push((number, message_record(number, run, message)));
            };
            say(Message::user("x".repeat(size)));
            if calls > 0 {
                say(asking(run, calls));
                if meanwhile {
                    say(Message::user("hurry"));
                }
                say(answering(run, calls, &"r".repeat(size)));
            }
            say(Message::assistant("ok"));
        }
        let store = StoreHandle::new(MemoryStore::new());
        let session = SessionId::new(Uuid::from_u128(9));
        futures::executor::block_on(async {
            for (number, said) in &log {
                let record = StoreRecord::Message(Arc::new(said.clone()));
                store.put_record_once(RecordKey::Message(session, *number), record).await.expect("is stored");
            }
            let mut conversation = Conversation::open(&store, session, most).await.expect("is opened");
            let next = conversation.next;
            if conversation.is_partial {
                conversation = Conversation::load(&store, session, most).await.expect("is loaded");
            }
            assert!(!conversation.is_partial);
            assert_eq!(conversation.next, next);
            assert_pairs_are_whole(&conversation.request.messages);
            assert_eq!(conversation.request.messages, messages_of_all(&log, most));
        });
    }
}

/// A model that keeps what it was sent, and answers.
struct RecordingModel {
    name: ModelName,
    seen: Arc<std::sync::Mutex<Vec<Arc<Message>>>>,
}

impl Model for RecordingModel {
    fn name(&self) -> &ModelName {
        &self.name
    }

    fn reply<'a>(
        &'a self,
        request: &'a ModelRequest,
    ) -> futures::stream::BoxStream<'a, Result<Delta, ModelError>> {
        *self.seen.lock().expect("no panic") = request.messages.clone();
        let reply = Reply::new(Message::assistant("ok"));
        Box::pin(futures::stream::iter([Ok(Delta::Done(Box::new(reply)))]))
    }
}

#[tokio::test]
async fn opening_reads_as_much_of_a_long_session_as_of_a_short_one() {
    let mut reads = Vec::new();
    for runs in [50, 500] {
        let (store, count) = ReadCount::of(MemoryStore::new());
        let seen: Arc<std::sync::Mutex<Vec<Arc<Message>>>> = Arc::default();
        let open = async |id: Option<SessionId>| {
            let model = RecordingModel {
                name: ModelName::new("test", "recording"),
                seen: seen.clone(),
            };
            let store = store.clone();
            let session = Session::ungated(model, Registry::new()).dispatcher(move |dispatcher| {
                let dispatcher = dispatcher.store(store);
                match id {
                    Some(id) => dispatcher.session(id).take_over(),
                    None => dispatcher,
                }
            });
            session.build().await.expect("opens")
        };
        let session = open(None).await;
        for run in 0..runs {
            session.run(format!("message {run}")).await.expect("runs");
        }
        let mut expected = seen.lock().expect("no panic").clone();
        let id = session.id();
        drop(session);
        let before = count.reads();
        let session = open(Some(id)).await;
        reads.push(count.reads() - before);
        session.run("and now?").await.expect("runs");
        expected.push(Arc::new(Message::assistant("ok")));
        expected.push(Arc::new(Message::user("and now?")));
        // What the model is sent does not depend on whether the session was closed in between.
        assert_eq!(*seen.lock().expect("no panic"), expected);
    }
    assert_eq!(reads[0], reads[1], "reads of 50 and of 500 runs");
}
