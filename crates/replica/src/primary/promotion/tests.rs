//! Phases of a promotion, one after the other.

use super::*;
use types::config::PreviousTerm;
use types::{
    Epoch, Finding, Incarnation, LogKind, NodeId, PartitionId, Policy, StoreId, TableId, Watermarks,
};
use wire::peer::LogSummary;

const NOW: Micros = Micros(1_000_000);
const LATER: Micros = Micros(2_000_000);
const RESEND: Micros = Micros(10_000);

fn member(node: u32) -> Member {
    Member { node: NodeId(node), store: StoreId(node.into()), incarnation: Incarnation(1) }
}

fn at(term: u64, lsn: u64) -> Position {
    Position::new(Term(term), Lsn(lsn))
}

fn report(node: u32, end: Position, torn: bool) -> LogReport {
    LogReport {
        partition: PartitionId(1),
        epoch: Epoch(3),
        from: member(node),
        log: LogSummary { base: Position::ZERO, end, history: Vec::new() },
        marks: Watermarks::default(),
        committed: Lsn::ZERO,
        torn,
        code: 0,
    }
}

fn begun() -> Promotion {
    Promotion::begin(NOW, LATER, Micros::ZERO)
}

#[test]
fn r6_the_greatest_log_is_fetched_and_then_marked() {
    let mut promotion = begun();
    assert!(promotion.report(Lsn(4), report(2, at(1, 9), true), true));
    assert!(promotion.report(Lsn(4), report(3, at(2, 7), false), true));
    assert!(!promotion.report(Lsn(4), report(4, at(2, 8), false), false), "PR-99: nobody recorded it");
    let reports = promotion.reports().expect("gathers");
    let best = |end| reports.best(end, Rules::ALL).map(|best| best.from);
    assert_eq!(best(at(2, 7)), None);
    assert_eq!(best(at(2, 4)), Some(member(3)), "the newer term is more");
    promotion.fetch_from(NOW, member(3), at(2, 7));
    promotion.validate().expect("it reported so much");
    assert!(promotion.reports().is_none() && promotion.marker().is_none());
    let reports = promotion.mark(at(2, 7), 5);
    assert_eq!((reports.len(), promotion.marker(), promotion.last_heard()), (2, Some(Lsn(8)), Lsn(9)));
    assert!(!promotion.serves());
}

fn without(finding: Finding) -> Rules {
    Rules::without(finding).expect("tests are built with mutants")
}

#[test]
fn pr12_a_newer_term_is_more_and_without_the_rule_the_longer_log_is() {
    let mut promotion = begun();
    promotion.report(Lsn(4), report(2, at(1, 9), false), true);
    promotion.report(Lsn(4), report(3, at(2, 7), false), true);
    let reports = promotion.reports().expect("gathers");
    let best = |end, rules| reports.best(end, rules).map(|best| best.from);
    assert_eq!(best(at(1, 4), Rules::ALL), Some(member(3)));
    assert_eq!(best(at(1, 4), without(Finding::Pr12)), Some(member(2)));
    assert_eq!(best(at(3, 5), Rules::ALL), None, "the own log is of the newest term");
    assert_eq!(best(at(3, 5), without(Finding::Pr12)), Some(member(2)));
}

/// A term in which member 2 leads, under this policy, after member 1: both were in the set.
fn record(policy: &str) -> PartitionRecord {
    let before = PreviousTerm {
        epoch: Epoch(2),
        term: Term(2),
        primary: member(1),
        handed_over: false,
        in_sync: vec![member(1), member(2), member(3)],
    };
    PartitionRecord {
        term: Term(3),
        cause: Cause::Suspected,
        before: Some(before),
        ..PartitionRecord::new(
            PartitionId(1),
            TableId(1),
            Epoch(3),
            vec![member(2), member(3)],
            Policy::preset(policy, 3, LogKind::Disk).expect("a preset"),
        )
    }
}

/// Whether a term of this record goes on after a second, with the report of member 3 and its own log. The
/// end of either was torn, or not.
fn goes_on(record: &PartitionRecord, torn: bool, rules: Rules) -> bool {
    let mut promotion = begun();
    promotion.report(Lsn(4), report(3, at(2, 7), torn), true);
    let reports = promotion.reports().expect("gathers");
    let question = Question {
        record,
        own: Own { me: member(2), end: at(2, 7), torn },
        asked: asked(record, &member(2), rules, |_| None),
        spared: Vec::new(),
        waited: Micros::from_millis(1_000),
    };
    reports.suffice(&question, &Settings { rules, ..Settings::default() })
}

#[test]
fn pr13_reports_must_fence_and_without_the_rule_any_will_do() {
    let lone = record("local");
    assert!(!goes_on(&lone, false, Rules::ALL), "who led alone may have committed more");
    assert!(goes_on(&lone, false, without(Finding::Pr13)));
    // A third member has not reported, and the logs of those who have were torn.
    let mut counted = record("durable");
    counted.in_sync.push(member(4));
    assert!(goes_on(&counted, false, Rules::ALL), "one whole log fences");
    assert!(!goes_on(&counted, true, Rules::ALL));
    assert!(goes_on(&counted, true, without(Finding::Pr13)));
}

#[test]
fn pr19_who_led_alone_is_asked_and_without_the_rule_it_is_not() {
    let lone = record("local");
    let of = |rules| asked(&lone, &member(2), rules, |_| None);
    assert_eq!(of(Rules::ALL), [member(3), member(1)]);
    assert_eq!(of(without(Finding::Pr19)), [member(3)]);
    assert!(goes_on(&lone, false, without(Finding::Pr19)), "what it has acknowledged is lost");
    let of_durable = asked(&record("durable"), &member(2), Rules::ALL, |_| None);
    assert_eq!(of_durable, [member(3)], "any member has all");
}

#[test]
fn pr471_who_led_alone_is_asked_in_its_present_incarnation() {
    let mut lone = record("local");
    let later = Member { incarnation: Incarnation(2), ..member(1) };
    let of = |record: &PartitionRecord| {
        asked(record, &member(2), Rules::ALL, |of| (*of == member(1)).then_some(later))
    };
    assert_eq!(of(&lone), [member(3), later], "nobody is called member 1 as it was any more");
    lone.in_sync.push(later);
    assert_eq!(of(&lone), [member(3), later], "it is asked once");
}

#[test]
fn pr02_serves_once_the_marker_is_covered_and_the_own_promise_has_run_out() {
    let mut promotion = begun();
    assert!(promotion.serve(LATER, |_| true).is_none(), "there is no marker");
    promotion.mark(at(2, 7), 5);
    assert!(promotion.serve(NOW, |_| true).is_none(), "it has promised until later");
    assert!(promotion.serve(LATER, |lsn| lsn < Lsn(8)).is_none(), "it is not covered");
    let marker = Marker { lsn: Lsn(8), kept: at(2, 7), wall_ms: 5 };
    assert_eq!(promotion.serve(LATER, |lsn| lsn == Lsn(8)), Some(marker));
    assert!(promotion.serves() && promotion.serve(LATER, |_| true).is_none(), "it does so once");
}

#[test]
fn who_does_not_give_what_it_has_is_skipped_for_a_while() {
    let mut promotion = begun();
    promotion.report(Lsn(1), report(2, at(1, 9), false), true);
    promotion.fetch_from(NOW, member(2), at(1, 9));
    let gone = |_| false;
    assert_eq!(promotion.asks_again(NOW, RESEND, gone), AsksAgain::No);
    let mut now = NOW;
    for _ in 0..MAX_UNANSWERED_FETCHES {
        now = now + RESEND;
        assert_eq!(promotion.asks_again(now, RESEND, gone), AsksAgain::Now);
    }
    assert_eq!(promotion.asks_again(now + RESEND, RESEND, gone), AsksAgain::Never);
    promotion.pass_over(now);
    assert!(!promotion.report(Lsn(1), report(2, at(1, 9), false), true), "it is skipped");
    let reports = promotion.reports().expect("gathers");
    assert!(reports.has_tried(&member(2)) && !reports.has(&member(2)));
    let pass_over = Micros(50_000);
    assert_eq!(promotion.unheard(now, RESEND, pass_over, vec![member(2), member(3)]), [member(3)]);
    assert_eq!(promotion.unheard(now + pass_over, RESEND, pass_over, vec![member(2)]), [member(2)]);
}

#[test]
fn who_is_not_heard_any_more_is_skipped_at_once() {
    let mut promotion = begun();
    promotion.report(Lsn(1), report(2, at(1, 9), false), true);
    promotion.fetch_from(NOW, member(2), at(1, 9));
    assert_eq!(promotion.asks_again(NOW + RESEND, RESEND, |_| true), AsksAgain::Never);
}

#[test]
#[should_panic(expected = "one marker in a term")]
fn a_term_has_one_marker() {
    let mut promotion = begun();
    promotion.mark(at(2, 7), 5);
    promotion.mark(at(3, 8), 6);
}
