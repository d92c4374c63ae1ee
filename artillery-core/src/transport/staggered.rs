//! Concurrent attempts at several addresses, without a burst.

use std::{future::poll_fn, pin::Pin, task::Poll, time::Duration};

use tokio::time::timeout;

/// After this time without an answer, the next address is tried as well.
pub(super) const NEXT_DELAY: Duration = Duration::from_millis(200);

/// Attempts the places one after the other: the next one when an attempt fails, or after `NEXT_DELAY` without success.
/// Returns the first success, or all failures in order of occurrence. Remaining attempts are dropped.
pub async fn first_of<P: Clone, T, E, F: Future<Output = Result<T, E>>>(
    places: impl IntoIterator<Item = P>,
    attempt: impl Fn(P) -> F,
) -> Result<T, Vec<(P, E)>> {
    let mut untried = places.into_iter().peekable();
    let mut running: Vec<(P, Pin<Box<F>>)> = Vec::new();
    let mut failures = Vec::new();
    loop {
        if let Some(place) = untried.next() {
            running.push((place.clone(), Box::pin(attempt(place))));
        }
        if running.is_empty() {
            return Err(failures);
        }
        let ended = poll_fn(|cx| {
            for at in 0..running.len() {
                if let Poll::Ready(done) = running[at].1.as_mut().poll(cx) {
                    return Poll::Ready((running.swap_remove(at).0, done));
                }
            }
            Poll::Pending
        });
        let ended = match untried.peek() {
            Some(_) => timeout(NEXT_DELAY, ended).await.ok(),
            None => Some(ended.await),
        };
        match ended {
            Some((_, Ok(success))) => return Ok(success),
            Some((place, Err(error))) => failures.push((place, error)),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::{pending, ready},
        net::SocketAddr,
    };

    use super::*;

    fn addrs(count: u16) -> Vec<SocketAddr> {
        (0..count).map(|port| ([10, 0, 0, 1], port).into()).collect()
    }

    #[tokio::test]
    async fn silent_addresses_keep_no_other_from_being_tried() {
        let answer = first_of(addrs(4), |addr| async move {
            if addr.port() == 3 { Ok(addr.port()) } else { pending::<Result<u16, ()>>().await }
        });
        assert_eq!(answer.await, Ok(3));
    }

    #[tokio::test]
    async fn all_failures_are_returned() {
        let answer = first_of(addrs(3), |addr| ready(Err::<(), _>(addr.port())));
        let expected: Vec<_> = addrs(3).into_iter().map(|addr| (addr, addr.port())).collect();
        assert_eq!(answer.await, Err(expected));
        assert_eq!(first_of(addrs(0), |_| ready(Err::<(), ()>(()))).await, Err(Vec::new()));
    }

    #[tokio::test]
    async fn the_first_that_answers_at_once_is_the_answer() {
        assert_eq!(first_of(addrs(3), |addr| ready(Ok::<_, ()>(addr.port()))).await, Ok(0));
    }
}
