//! Keeps openraft's routine messages out of an application's log. Its errors remain. Its warnings are routine too,
//! since each election causes some.

use tracing::{
    Dispatch, Event, Level, Metadata, Subscriber,
    instrument::WithSubscriber,
    level_filters::LevelFilter,
    span::{Attributes, Id, Record},
    subscriber::{Interest, NoSubscriber},
};

/// The subscriber of the task that starts openraft, without openraft's messages below an error. `None`: nothing is
/// filtered, since the process logs at `debug` or finer, or has no subscriber yet.
pub(super) fn of_this_task() -> Option<Dispatch> {
    let level = LevelFilter::current();
    let inner = tracing::dispatcher::get_default(Dispatch::clone);
    let wants_all = level >= LevelFilter::DEBUG;
    (!wants_all && !inner.is::<NoSubscriber>()).then(|| Dispatch::new(WithoutRoutine { inner, level }))
}

pub(super) async fn run<F: Future>(log: Option<Dispatch>, future: F) -> F::Output {
    match log {
        Some(log) => future.with_subscriber(log).await,
        None => future.await,
    }
}

struct WithoutRoutine {
    inner: Dispatch,
    /// The level of the process, reported as this subscriber's hint. Without a hint, tracing would ask the subscribers
    /// about every event of the process.
    level: LevelFilter,
}

fn is_routine(metadata: &Metadata<'_>) -> bool {
    metadata.is_event() && *metadata.level() >= Level::WARN && metadata.target().starts_with("openraft")
}

impl Subscriber for WithoutRoutine {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if is_routine(metadata) { Interest::never() } else { self.inner.register_callsite(metadata) }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        !is_routine(metadata) && self.inner.enabled(metadata)
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.inner.new_span(span)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        self.inner.record(span, values);
    }

    fn record_follows_from(&self, span: &Id, follows: &Id) {
        self.inner.record_follows_from(span, follows);
    }

    fn event(&self, event: &Event<'_>) {
        self.inner.event(event);
    }

    fn enter(&self, span: &Id) {
        self.inner.enter(span);
    }

    fn exit(&self, span: &Id) {
        self.inner.exit(span);
    }

    fn clone_span(&self, id: &Id) -> Id {
        self.inner.clone_span(id)
    }

    fn try_close(&self, id: Id) -> bool {
        self.inner.try_close(id)
    }
}
