use super::*;

const RETRY: Result<End, Again> = Err(Again::Retry { after: None });

fn linger(ms: u64, max_items: usize) -> Policy {
    Policy { dispatch: Dispatch::Linger(ms * MS), max_items, ..policy() }
}

/// A trickle of items must not put the linger off: it runs from the oldest.
#[test]
fn linger_is_not_reset_by_later_items() {
    let mut bench = Bench::new(linger(100, 100));
    for ms in 0..10 {
        bench.at(ms * 10).push(0, 1);
    }
    assert_eq!(bench.at(99).sent(), None);
    assert_eq!(bench.queue.next_timer(), Some(100 * MS));
    let (_, seqs, reason) = bench.at(100).send().unwrap();
    assert_eq!((seqs.len(), reason), (10, DispatchReason::Linger));
}

/// Items stay in runs, of three here, until one of them is really taken out.
#[test]
fn a_timer_or_a_cancel_that_takes_nothing_out_leaves_the_runs_whole() {
    let mut bench = Bench::new(linger(100, 100));
    for _ in 0..9 {
        bench.push(0, 1);
    }
    let runs = |bench: &Bench| bench.queue.upcoming().unwrap().spans().count();
    assert_eq!(bench.at(100).tick(), (Vec::new(), Vec::new()));
    assert_eq!(runs(&bench), 3);
    assert!(bench.queue.cancel(bench.now, id(9), None).is_none());
    assert_eq!(runs(&bench), 3);
    assert!(bench.queue.cancel(bench.now, id(4), None).is_some());
    assert_eq!(runs(&bench), 8);
}

/// An item that comes after a full batch left must not inherit the time of that batch.
#[test]
fn linger_is_not_inherited_from_a_full_batch() {
    let mut bench = Bench::new(linger(100, 2));
    bench.push(0, 1);
    bench.at(60).push(0, 1);
    assert_eq!(bench.send().unwrap().2, DispatchReason::Full);
    bench.complete();
    bench.at(70).push(0, 1);
    assert_eq!(bench.at(169).sent(), None);
    assert_eq!(bench.at(170).sent(), Some(vec![2]));
}

#[test]
fn linger_runs_from_the_oldest_item_that_is_left() {
    let mut bench = Bench::new(linger(100, 10));
    bench.push(0, 1);
    bench.at(60).push(0, 1);
    assert!(bench.queue.cancel(bench.now, id(0), None).is_some());
    assert_eq!(bench.at(159).sent(), None);
    assert_eq!(bench.at(160).sent(), Some(vec![1]));
}

#[test]
fn an_endless_linger_waits_for_a_full_batch_or_a_flush() {
    for dispatch in [Dispatch::Linger(u64::MAX), Dispatch::Full] {
        let mut bench = Bench::new(Policy { dispatch, max_items: 2, ..policy() });
        bench.push(0, 1);
        assert_eq!(bench.at(u64::MAX / MS).sent(), None);
        assert_eq!(bench.queue.next_timer(), None);
        let era = bench.queue.flush(bench.now).unwrap();
        assert_eq!(bench.send().unwrap().2, DispatchReason::Flush);
        assert_eq!(bench.queue.next_done_era(), None);
        bench.complete();
        assert_eq!(bench.queue.next_done_era(), Some(era));
        assert_eq!(bench.queue.flush(bench.now), None);
        bench.push(0, 1);
        bench.push(0, 1);
        assert_eq!(bench.send().unwrap().2, DispatchReason::Full);
    }
}

#[test]
fn nothing_lingers_while_somebody_waits_for_room() {
    let mut bench = Bench::new(linger(100, 10));
    bench.push(0, 1);
    bench.queue.set_pressed(true);
    assert_eq!(bench.sent(), Some(vec![0]));
    bench.push(1, 1);
    assert_eq!(bench.sent(), Some(vec![1]));
    bench.queue.set_pressed(false);
    bench.push(2, 1);
    assert_eq!(bench.sent(), None);
}

#[test]
fn a_muted_key_holds_its_batches_and_no_others() {
    let mut bench = Bench::new(Policy { max_items: 1, ..policy() });
    bench.push(0, 1);
    bench.push(0, 1);
    bench.push(1, 1);
    assert_eq!(bench.sent(), Some(vec![0]));
    assert_eq!(bench.sent(), Some(vec![2]));
    assert_eq!(bench.sent(), None);
    bench.complete();
    assert_eq!(bench.sent(), Some(vec![1]));
}

#[test]
fn unordered_keys_have_many_batches_in_flight() {
    let order = Order::Unordered;
    let mut bench = Bench::new(Policy { max_items: 1, max_in_flight: 2, order, ..policy() });
    for _ in 0..3 {
        bench.push(0, 1);
    }
    assert_eq!([bench.sent(), bench.sent(), bench.sent()], [Some(vec![0]), Some(vec![1]), None]);
}

#[test]
fn weight_and_items_cap_a_batch() {
    let mut bench = Bench::new(Policy { max_items: 3, max_weight: 10, ..policy() });
    for weight in [4, 6, 1, 9, 1, 1, 1, 1] {
        bench.push(0, weight);
    }
    let mut batches = Vec::new();
    while let Some(seqs) = bench.sent() {
        batches.push(seqs);
        bench.complete();
    }
    assert_eq!(batches, [vec![0, 1], vec![2, 3], vec![4, 5, 6], vec![7]]);
}

#[test]
fn the_bound_counts_what_waits_runs_and_is_reserved() {
    let mut bench = Bench::new(Policy { capacity_items: 3, capacity_weight: 10, ..policy() });
    assert_eq!(bench.queue.admit(11), Err(Refused::TooHeavy { max: 10 }));
    bench.push(0, 5);
    bench.sent();
    bench.queue.reserve(3);
    assert_eq!(bench.queue.admit(3), Err(Refused::Full));
    bench.push(0, 2);
    assert_eq!(bench.queue.admit(0), Err(Refused::Full));
    bench.queue.release(3);
    assert_eq!(bench.queue.admit(3), Ok(()));
    bench.complete();
    assert_eq!(bench.queue.admit(8), Ok(()));
    bench.queue.close();
    assert_eq!(bench.queue.admit(1), Err(Refused::Closed));
    bench.queue.halt(id(7));
    assert_eq!(bench.queue.admit(1), Err(Refused::Fatal(id(7))));
    assert_eq!(bench.sent(), None);
}

#[test]
fn a_retried_batch_stays_at_the_head_of_its_key() {
    let mut bench = Bench::new(policy());
    bench.push(0, 1);
    bench.push(0, 1);
    bench.sent();
    bench.push(0, 1);
    let after = Some(50 * MS);
    assert!(bench.end(|_| Err(Again::Retry { after })).is_empty());
    bench.push(0, 1);
    assert_eq!((bench.queue.stats().queued, bench.at(49).sent()), (4, None));
    let (_, seqs, reason) = bench.at(50).send().unwrap();
    assert_eq!((seqs, reason), (vec![0, 1], DispatchReason::Retry));
    assert_eq!(bench.flying[0].1[0].1.attempt, 2);
    bench.complete();
    assert_eq!(bench.sent(), Some(vec![2, 3]));
    assert_eq!((bench.queue.stats().calls, bench.queue.stats().retries), (3, 1));
}

#[test]
fn retries_end_with_attempts_budget_and_deadline() {
    let retry = RetryPolicy { base: 0, cap: 0, max_attempts: 3, budget: 2 };
    let timeout = Some(100 * MS);
    let mut bench = Bench::new(Policy { retry, delivery_timeout: timeout, ..policy() });
    bench.push(0, 1);
    bench.sent();
    assert!(bench.end(|_| RETRY).is_empty());
    bench.sent();
    assert!(bench.end(|_| RETRY).is_empty());
    bench.sent();
    assert_eq!(bench.end(|_| RETRY), [0], "three attempts");
    bench.push(0, 1);
    bench.sent();
    assert_eq!(bench.end(|_| RETRY), [1], "no budget");
    for _ in 0..5 {
        bench.push(0, 1);
        bench.sent();
        bench.complete();
    }
    bench.push(0, 1);
    bench.sent();
    assert!(bench.end(|_| RETRY).is_empty(), "five calls gave one back");
    bench.sent();
    bench.complete();
    for _ in 0..5 {
        bench.push(0, 1);
        bench.sent();
        bench.complete();
    }
    let seq = bench.push(0, 1);
    bench.sent();
    let after = Some(100 * MS);
    assert_eq!(bench.end(|_| Err(Again::Retry { after })), [seq], "at its deadline");
    assert!(bench.queue.is_idle());
}

#[test]
fn a_denied_item_holds_its_key_until_it_is_told() {
    let retry = RetryPolicy { max_attempts: 1, ..policy().retry };
    let mut bench = Bench::new(Policy { retry, ..policy() });
    bench.push(0, 1);
    let (batch, _, _) = bench.send().unwrap();
    bench.push(0, 1);
    let era = bench.queue.flush(0).unwrap();
    let again = bench.flying.remove(0).1.into_iter().map(|(i, e)| (i, e, Again::Split)).collect();
    let Finished::Denied(denied) = bench.queue.finish(0, batch, again) else {
        panic!("it was alone");
    };
    assert_eq!((denied.len(), bench.queue.stats().failed), (1, 1));
    assert_eq!((bench.sent(), bench.queue.next_done_era()), (None, None));
    bench.queue.finish(0, batch, Vec::new());
    assert_eq!(bench.sent(), Some(vec![1]));
    bench.complete();
    assert_eq!(bench.queue.next_done_era(), Some(era));
}

/// Splits a batch until only the bad items are left; returns the number of calls.
fn bisect(len: u64, is_bad: impl Fn(u64) -> bool) -> u64 {
    let mut bench = Bench::new(Policy { max_items: 200, ..policy() });
    for _ in 0..len {
        bench.push(0, 1);
    }
    let mut denied = Vec::new();
    while let Some(seqs) = bench.sent() {
        let fails = seqs.iter().any(|seq| is_bad(*seq));
        denied.extend(bench.end(|_| if fails { Err(Again::Split) } else { Ok(End::Completed) }));
    }
    assert_eq!(denied, (0..len).filter(|seq| is_bad(*seq)).collect::<Vec<_>>(), "in order");
    let stats = bench.queue.stats();
    assert_eq!((stats.completed + stats.failed, stats.splits), (len, stats.calls - 1));
    stats.calls
}

#[test]
fn one_bad_item_costs_a_bounded_number_of_calls() {
    for len in 1..=130_u64 {
        let depth = u64::from(len.next_power_of_two().ilog2());
        for bad in 0..len {
            let calls = bisect(len, |seq| seq == bad);
            assert!(calls <= 1 + 2 * depth, "{bad} of {len}: {calls} calls");
        }
    }
    assert!((0..100).all(|bad| bisect(100, |seq| seq == bad) <= 15));
}

#[test]
#[expect(clippy::cast_precision_loss, reason = "the numbers are small")]
fn some_bad_items_cost_a_bounded_number_of_calls() {
    for len in 1..=9_u64 {
        for bad in 1..1_u64 << len {
            let calls = bisect(len, |seq| bad >> seq & 1 == 1);
            let (n, k) = (len as f64, f64::from(bad.count_ones()));
            let bound = (1.0 + 2.0 * k * (1.0 + (n / k).log2())).ceil();
            assert!(calls as f64 <= bound, "{bad:b} of {len}: {calls} calls, not {bound}");
        }
    }
}

#[test]
fn items_expire_before_they_are_sent_and_batches_are_overdue() {
    let mut bench =
        Bench::new(Policy { max_items: 2, delivery_timeout: Some(10 * MS), ..policy() });
    bench.push(0, 1);
    bench.at(1).push(0, 1);
    bench.push(0, 1);
    let (batch, _, _) = bench.send().unwrap();
    assert_eq!(bench.queue.next_timer(), Some(10 * MS));
    assert_eq!(bench.at(10).tick(), (vec![], vec![batch]));
    assert_eq!(bench.queue.next_timer(), Some(11 * MS));
    let mark = bench.flying[0].1[0].1.mark;
    bench.queue.settle(bench.now, batch, [(mark, End::TimedOut)]);
    bench.queue.rearm(batch, 11 * MS);
    assert_eq!(bench.at(11).tick(), (vec![2], vec![batch]));
    assert_eq!((bench.queue.stats().expired, bench.queue.stats().queued), (2, 0));
    bench.check();
}

#[test]
fn a_flush_does_not_wait_for_a_batch_whose_items_are_told() {
    let mut bench = Bench::new(policy());
    bench.push(0, 1);
    bench.push(0, 1);
    let (batch, _, _) = bench.send().unwrap();
    let era = bench.queue.flush(0).unwrap();
    assert_eq!(bench.queue.flush(0), Some(era), "nothing came between the two");
    let mark = bench.flying[0].1[0].1.mark;
    bench.queue.settle(0, batch, [(mark, End::TimedOut), (mark, End::TimedOut)]);
    assert_eq!(bench.queue.next_done_era(), None, "nobody is told yet");
    bench.queue.delivered(batch, 2);
    assert_eq!(bench.queue.next_done_era(), Some(era));
    assert!(!bench.queue.is_idle(), "the processor has the batch still");
    bench.queue.finish(0, batch, Vec::new());
    assert!(bench.queue.is_idle());
    assert_eq!(bench.queue.history().next().unwrap().expired, 2);
}

#[test]
fn what_waits_is_drained_in_order_of_acceptance() {
    let mut bench = Bench::new(Policy { max_items: 1, ..policy() });
    for key in [3, 1, 2, 1, 3] {
        bench.push(key, 1);
    }
    bench.sent();
    let drained: Vec<_> = bench.queue.drain().iter().map(|(_, entry)| entry.id.seq).collect();
    assert_eq!(drained, [1, 2, 3, 4]);
    bench.complete();
    assert_eq!((bench.queue.stats().handed_back, bench.queue.is_idle()), (4, true));
    assert_eq!(bench.queue.lanes.len(), (0, 0));
}

/// One key sends batches of 100, the other of 1: both get the same weight, and neither has to
/// wait for more than a turn.
#[test]
fn keys_share_by_weight() {
    let mut bench = Bench::new(Policy { max_items: 1, max_in_flight: 1, ..policy() });
    let weights = [1, 100];
    let mut sent = [0; 2];
    for (key, weight) in [0, 1, 0, 1].into_iter().zip([1, 100, 1, 100]) {
        bench.push(key, weight);
    }
    for _ in 0..8_080 {
        bench.sent().unwrap();
        let weight = bench.flying[0].1[0].0;
        let key = usize::from(weight == 100);
        sent[key] += weight;
        bench.push(u8::from(weight == 100), weights[key]);
        bench.complete();
        assert!(u64::abs_diff(sent[0], sent[1]) <= 200, "{sent:?}");
    }
    assert!(sent[0] >= 7_000);
}

/// What a key sent once is not what a turn is worth from then on.
#[test]
fn a_heavy_batch_that_is_gone_keeps_nobody_from_its_turn() {
    let mut bench = Bench::new(Policy { max_items: 1, max_in_flight: 1, ..policy() });
    bench.push(9, 1_000_000);
    bench.sent();
    bench.complete();
    for _ in 0..30 {
        bench.push(1, 1);
    }
    let light = bench.push(2, 1);
    bench.sent();
    bench.complete();
    assert_eq!(bench.sent(), Some(vec![light]), "the key that came second is second");
    bench.complete();

    // One that waits is worth the same of each other key, and no more once it was withdrawn.
    let heavy = bench.push(3, 10);
    for _ in 0..5 {
        bench.sent();
        bench.complete();
    }
    assert!(bench.queue.cancel(0, id(heavy), None).is_some());
    let light = bench.push(4, 1);
    bench.sent();
    bench.complete();
    assert_eq!(bench.sent(), Some(vec![light]));
}

/// Times, weights and delays at the end of their range neither overflow nor break a law.
#[test]
fn extreme_values_break_nothing() {
    let retry = RetryPolicy { base: u64::MAX, cap: u64::MAX, max_attempts: u32::MAX, budget: 1 };
    let mut bench = Bench::new(Policy {
        dispatch: Dispatch::Linger(u64::MAX),
        max_items: 1,
        capacity_items: usize::MAX,
        delivery_timeout: Some(u64::MAX),
        retry: RetryPolicy { base: 0, cap: u64::MAX, budget: u32::MAX, ..retry },
        ..policy()
    });
    bench.now = u64::MAX;
    for _ in 0..3 {
        // Together they weigh more than a number can hold.
        bench.push(0, u64::MAX);
    }
    assert_eq!(bench.queue.admit(1), Err(Refused::Full));
    assert_eq!(bench.queue.next_timer(), None);
    bench.now = 0;
    assert_eq!(bench.sent(), Some(vec![0]));
    let after = Some(u64::MAX);
    assert_eq!(bench.end(|_| Err(Again::Retry { after })), [0], "it would never go");
    assert_eq!(bench.sent(), Some(vec![1]));
    assert!(bench.end(|_| RETRY).is_empty());
    for _ in 0..200 {
        assert_eq!(bench.sent(), Some(vec![1]), "retried for ever");
        assert!(bench.end(|_| RETRY).is_empty());
    }
    bench.sent();
    bench.complete();
    assert_eq!(bench.sent(), Some(vec![2]));
    bench.complete();
    assert!(bench.queue.is_idle());

    let mut bench = Bench::new(Policy { capacity_items: 1, max_weight: 0, retry, ..policy() });
    assert_eq!(bench.queue.admit(1), Err(Refused::TooHeavy { max: 0 }));
    assert_eq!(bench.queue.admit(0), Ok(()));
    bench.push(0, 0);
    assert_eq!(bench.queue.admit(0), Err(Refused::Full));
    bench.sent();
    assert!(bench.end(|_| RETRY).is_empty(), "some time of five hundred years");
    let due = bench.queue.next_timer().unwrap();
    bench.now = due - 1;
    assert_eq!(bench.sent(), None);
    bench.now = due;
    assert_eq!(bench.sent(), Some(vec![0]));
}

/// A journal may give out the last ids that there are.
#[test]
fn the_last_ids_are_ids_like_others() {
    let id = |seq| ItemId { epoch: 0, seq };
    let mut queue = Accumulator::new(Policy { max_items: 3, ..policy() });
    for seq in u64::MAX - 3..=u64::MAX {
        queue.push(&0, 0_u64, id(seq), 1, seq, ());
    }
    queue.push(&0, 0, id(7), 1, 7, ());
    for seq in [u64::MAX, 7, u64::MAX - 2] {
        assert_eq!(queue.cancel(0, id(seq), None).map(|(item, _)| item), Some(seq));
        assert!(queue.cancel(0, id(seq), None).is_none());
    }
    let mut ready = queue.next_ready().unwrap();
    let ids: Vec<_> = ready.known.spread().iter().map(|entry| entry.id.seq).collect();
    assert_eq!(ids, [u64::MAX - 3, u64::MAX - 1]);
}

/// A clock that steps back stands still.
#[test]
fn a_clock_that_steps_back_changes_nothing() {
    let timeout = Some(50 * MS);
    let mut bench = Bench::new(Policy { delivery_timeout: timeout, ..linger(10, 100) });
    bench.at(100).push(0, 1);
    bench.at(20).push(0, 1);
    assert_eq!((bench.queue.oldest(), bench.sent()), (Some(100 * MS), None));
    assert_eq!(bench.at(110).sent(), Some(vec![0, 1]));
    bench.at(0).complete();
    assert_eq!(bench.queue.last_dispatch(), 110 * MS);
}

/// Two submits that go through a journal side by side can come out in another order than their ids.
#[test]
fn an_item_is_found_whatever_the_order_of_the_ids() {
    let id = |seq| ItemId { epoch: 0, seq };
    let mut queue = Accumulator::new(Policy { max_items: 2, ..policy() });
    for (now, seq) in [(1, 3), (2, 0), (3, 4), (4, 1), (5, 2)] {
        queue.push(&now, 0_u64, id(seq), 1, seq, ());
    }
    for seq in [0, 2, 4, 1, 3] {
        assert_eq!(queue.cancel(6, id(seq), None).map(|(item, _)| item), Some(seq));
        assert!(queue.cancel(6, id(seq), None).is_none());
    }
    assert!(queue.is_idle());
}
