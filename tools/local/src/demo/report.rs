//! What the demo found out: one act, both acts, as a table for people and as one JSON object.

use super::figures::Split;
use super::history::Reports;
use super::options::Fault;
use super::stale::{StaleReport, Suspect};
use super::verify::{Counts, Verification};
use comfy_table::{ContentArrangement, Table, presets::UTF8_FULL_CONDENSED};
use serde::Serialize;
use serde_json::Value;
use std::path::PathBuf;

/// A line of the table: what, the figure, a remark.
type Line = (&'static str, String, String);

/// One act. Times in milliseconds; what could not be measured is null.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ActReport {
    /// The table's policy.
    pub policy: String,
    /// What happened.
    pub fault: Fault,
    /// The node that it happened to.
    pub node: u32,
    /// Nodes of the cluster.
    pub nodes: u32,
    /// Partitions of the table.
    pub partitions: u32,
    /// Copies of each partition.
    pub copies: u32,
    /// Partitions that the node led when it happened.
    pub led: u32,
    /// Closed-loop clients.
    pub clients: u32,
    /// Seconds of load.
    pub seconds: u64,
    /// Rows loaded.
    pub loaded: u64,
    /// Writes acknowledged to clients and prober, the load not counted.
    pub acknowledged: u64,
    /// Reads answered.
    pub reads: u64,
    /// Writes whose outcome the client does not know.
    pub unknown: u64,
    /// Writes that surely were not done.
    pub not_done: u64,
    /// What reading everything back has shown.
    #[serde(flatten)]
    pub counts: Counts,
    /// Reads under load that showed something older than was acknowledged to the same client.
    pub wrong_reads: u64,
    /// Acknowledged writes that the client library itself found out to be lost.
    pub noticed_by_clients: u64,
    /// Commits, acknowledged or not, that the returned node had alone and set aside.
    pub set_aside: u64,
    /// Replicas read back.
    pub replicas: u64,
    /// From the fault to the seal in the metastore, on the slowest partition.
    pub detection_ms: Option<f64>,
    /// From the fault to the first acknowledged write on every partition that the node led.
    pub failover_ms: Option<f64>,
    /// The longest time without an acknowledged write on any partition.
    pub longest_gap_ms: Option<f64>,
    /// When that time began, in seconds since the start of the load.
    pub longest_gap_at_s: Option<f64>,
    /// How the failover's time splits.
    pub split: Split,
    /// Failovers before the fault or of other nodes.
    pub other_failovers: u64,
    /// Each of them, in words.
    pub others: Vec<String>,
    /// Operations per second before the fault.
    pub before_ops_s: Option<f64>,
    /// Between the fault and the return.
    pub during_ops_s: Option<f64>,
    /// After the return.
    pub after_ops_s: Option<f64>,
    /// From the return of the node until every partition had all its copies in sync.
    pub rejoin_ms: Option<f64>,
    /// Fsyncs of all nodes per second before the fault.
    pub fsyncs_s: Option<f64>,
    /// Commits per fsync of any node before the fault.
    pub commits_per_fsync: Option<f64>,
    /// What the old primary said to a client of the past; null if it had lost its process.
    pub stale: Option<StaleReport>,
    /// The chart.
    pub chart: PathBuf,
    /// The list of lost writes, if there are any.
    pub lost_list: Option<PathBuf>,
    /// What is wrong, in words.
    pub findings: Vec<String>,
}

impl ActReport {
    /// True if nothing promised is missing, every loss was reported exactly, nothing else is wrong, and the
    /// fault did what it should: otherwise nothing was shown.
    pub fn is_good(&self) -> bool {
        let stale = self.stale.as_ref().map_or(0, |stale| stale.acknowledged + stale.stale_reads);
        self.counts.is_good()
            && (self.wrong_reads, stale) == (0, 0)
            && self.rejoin_ms.is_some()
            && self.untested().is_none()
    }

    /// What the fault did not bring about, though it should have.
    fn untested(&self) -> Option<String> {
        if self.led == 0 || self.copies < 2 {
            // There was nothing to take over, or nobody who could.
            return None;
        }
        let (node, done) = (self.node, self.fault.done());
        if self.failover_ms.is_none() {
            return Some(format!("node {node} {done}, and nobody took over all of what it led"));
        }
        let asked = match self.fault {
            Fault::Kill | Fault::Power => true,
            Fault::Stop | Fault::Cut => self.stale.as_ref().is_some_and(|stale| stale.answered > 0),
        };
        (!asked).then(|| format!("node {node} {done}, and answered nothing after another had taken over"))
    }

    /// Says in words what was not tested.
    pub(super) fn add_untested(&mut self) {
        self.findings.extend(self.untested());
    }

    /// Takes a verdict in.
    pub(super) fn add_verification(&mut self, verdict: &Verification) {
        self.counts = verdict.counts;
        self.findings.extend(verdict.findings.iter().cloned());
    }

    /// Takes in what the old primary answered. A read may lack what the cluster reports lost.
    pub(super) fn add_stale<'a>(&mut self, suspects: impl Iterator<Item = &'a Suspect>, reports: &Reports) {
        let Some(stale) = &mut self.stale else { return };
        for suspect in suspects.filter(|suspect| !reports.lost(suspect.partition, suspect.told.at)) {
            stale.stale_reads += 1;
            if stale.stale_reads <= 3 {
                let (found, told) = (suspect.found, suspect.told);
                self.findings.push(format!(
                    "the old primary of partition {} showed {found:?} under key {} after the new one had acknowledged write {}",
                    suspect.partition, told.key.0, told.sequence
                ));
            }
        }
    }

    /// For people.
    pub fn table(&self) -> String {
        let mut table = Table::new();
        table.load_preset(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Disabled);
        for (what, figure, remark) in self.lines() {
            table.add_row([what.to_string(), figure, remark]);
        }
        table.to_string()
    }

    fn lines(&self) -> Vec<Line> {
        let mut lines = self.counts();
        lines.extend(self.times());
        if let Some(stale) = &self.stale {
            let remark =
                format!("of {} writes sent to the old primary, {} refused", stale.sent, stale.refused);
            lines.push(("stale acknowledgements", grouped(stale.acknowledged), remark));
            let remark = format!("of {} reads, {} refused", stale.reads, stale.reads_refused);
            lines.push(("stale reads", grouped(stale.stale_reads), remark));
            let remark = "to what was asked after another had taken over".to_string();
            lines.push(("answers", grouped(stale.answered), remark));
        }
        if let Some(other) = self.others.first() {
            lines.push(("other failovers", grouped(self.other_failovers), other.clone()));
        }
        lines
    }

    fn counts(&self) -> Vec<Line> {
        let set_aside = match self.set_aside {
            0 => "said by the cluster".to_string(),
            commits => {
                format!("said by the cluster; {} commits set aside on the node's disk", grouped(commits))
            }
        };
        let checked = format!("{} keys on {} replicas", grouped(self.counts.compared), self.replicas);
        let unknown = format!("{} unknown, {} not done", self.unknown, self.not_done);
        let mut lines = vec![
            ("policy", self.policy.clone(), format!("{} nodes, {} partitions", self.nodes, self.partitions)),
            ("fault", self.fault.to_string(), format!("node {} {}", self.node, self.fault.done())),
            ("rows loaded", grouped(self.loaded), String::new()),
            ("writes acknowledged", grouped(self.acknowledged), unknown),
            ("missing", grouped(self.counts.missing), checked),
            ("different", grouped(self.counts.different), String::new()),
            ("reported lost", grouped(self.counts.reported_lost), set_aside),
            ("unreported lost", grouped(self.counts.unreported_lost), String::new()),
        ];
        let rare = [
            ("wrongly reported", self.counts.wrongly_reported, "reported lost and still there"),
            ("reports differ", self.counts.reports_differ, "a partition and its failover's record"),
            ("wrong reads", self.wrong_reads, "older than what the same client was told"),
        ];
        let found = rare.into_iter().filter(|(_, count, _)| *count > 0);
        lines.extend(found.map(|(what, count, remark)| (what, grouped(count), remark.to_string())));
        lines
    }

    fn times(&self) -> Vec<Line> {
        let ms = |value: Option<f64>| value.map_or("-".into(), |ms| format!("{ms:.0} ms"));
        let part = |value: Option<f64>| value.map_or("-".into(), |ms| format!("{ms:.0}"));
        let split = &self.split;
        let times = format!(
            "suspicion {}, seal {}, replay {}, serving {}, first write {}",
            part(split.suspect_ms),
            part(split.seal_ms),
            part(split.replay_ms),
            part(split.serve_ms),
            part(split.first_write_ms)
        );
        let began = self.longest_gap_at_s.map_or(String::new(), |at| format!(", from {at:.1} s on"));
        let gap = format!("without a write to some partition{began}");
        let rate = |value: Option<f64>| value.map_or("-".into(), |rate| grouped(rate as u64));
        let rates = [self.before_ops_s, self.during_ops_s, self.after_ops_s].map(rate).join(" / ");
        vec![
            ("detection", ms(self.detection_ms), "fault to seal in the metastore".to_string()),
            ("failover", ms(self.failover_ms), times),
            ("longest gap", ms(self.longest_gap_ms), gap),
            ("in sync again", ms(self.rejoin_ms), format!("after the node was {}", self.fault.undone())),
            ("operations/s", rates, "before / during / after the fault".into()),
            ("fsyncs/s", rate(self.fsyncs_s), self.commits_per_fsync()),
        ]
    }

    fn commits_per_fsync(&self) -> String {
        self.commits_per_fsync
            .map_or(String::new(), |commits| format!("{commits:.2} commits per fsync of any node"))
    }
}

/// The whole demo.
#[derive(Clone, PartialEq, Debug)]
pub struct DemoReport {
    /// The first act.
    pub first: ActReport,
    /// The second, unless it was left out.
    pub second: Option<ActReport>,
    /// Seconds that everything took.
    pub took_s: f64,
    /// Where the charts and lists are.
    pub output: PathBuf,
}

impl DemoReport {
    /// True if nothing is missing that a policy promised, and every loss was reported exactly.
    pub fn is_good(&self) -> bool {
        self.first.is_good() && self.second.as_ref().is_none_or(ActReport::is_good)
    }

    /// The process's exit status.
    pub fn exit_status(&self) -> u8 {
        u8::from(!self.is_good())
    }

    /// One object: the first act's figures, and the second act under `second_act`.
    pub fn to_json(&self) -> Value {
        let object = |act: &ActReport| {
            let mut value = serde_json::to_value(act).expect("a report has only text keys");
            value["good"] = act.is_good().into();
            value
        };
        let mut value = object(&self.first);
        value["second_act"] = self.second.as_ref().map_or(Value::Null, object);
        value["took_s"] = ((self.took_s * 10.0).round() / 10.0).into();
        value["good"] = self.is_good().into();
        value
    }
}

/// A number with its thousands set apart.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::demo::history::KeyId;
    use crate::demo::told::Answered;
    use types::{Lsn, PartitionId, Position, Term};

    fn stale() -> StaleReport {
        StaleReport {
            sent: 100,
            acknowledged: 0,
            refused: 60,
            reads: 100,
            stale_reads: 0,
            reads_refused: 80,
            answered: 140,
        }
    }

    /// An act in which all went well.
    pub fn good() -> ActReport {
        ActReport {
            policy: "durable".into(),
            fault: Fault::Stop,
            node: 1,
            nodes: 3,
            partitions: 6,
            copies: 3,
            led: 2,
            clients: 10,
            seconds: 20,
            loaded: 50_000,
            acknowledged: 123_456,
            reads: 120_000,
            unknown: 2,
            not_done: 0,
            counts: Counts { compared: 50_100, ..Counts::default() },
            wrong_reads: 0,
            noticed_by_clients: 0,
            set_aside: 0,
            replicas: 18,
            detection_ms: Some(140.0),
            failover_ms: Some(312.4),
            longest_gap_ms: Some(313.0),
            longest_gap_at_s: Some(6.66),
            split: Split {
                suspect_ms: Some(131.0),
                seal_ms: Some(9.0),
                replay_ms: Some(3.0),
                serve_ms: Some(160.0),
                first_write_ms: Some(9.0),
            },
            other_failovers: 0,
            others: Vec::new(),
            before_ops_s: Some(9000.4),
            during_ops_s: Some(10_000.0),
            after_ops_s: None,
            rejoin_ms: Some(900.0),
            fsyncs_s: Some(2500.0),
            commits_per_fsync: Some(1.875),
            stale: Some(stale()),
            chart: "chart.svg".into(),
            lost_list: None,
            findings: Vec::new(),
        }
    }

    #[test]
    fn the_status_is_zero_only_if_nothing_is_wrong() {
        let report = |first: ActReport, second| {
            DemoReport { first, second, took_s: 1.0, output: "o".into() }.exit_status()
        };
        assert_eq!(report(good(), None), 0);
        assert_eq!(
            report(
                good(),
                Some(ActReport { counts: Counts { reported_lost: 12, ..good().counts }, ..good() })
            ),
            0
        );
        let wrong = [
            ActReport { counts: Counts { missing: 1, ..good().counts }, ..good() },
            ActReport { counts: Counts { different: 1, ..good().counts }, ..good() },
            ActReport { counts: Counts { unreported_lost: 1, ..good().counts }, ..good() },
            ActReport { counts: Counts { wrongly_reported: 1, ..good().counts }, ..good() },
            ActReport { counts: Counts { reports_differ: 1, ..good().counts }, ..good() },
            ActReport { wrong_reads: 1, ..good() },
            ActReport { rejoin_ms: None, ..good() },
            ActReport { failover_ms: None, ..good() },
            ActReport { stale: None, ..good() },
            ActReport { stale: Some(StaleReport { answered: 0, ..stale() }), ..good() },
            ActReport { stale: Some(StaleReport { acknowledged: 1, ..stale() }), ..good() },
            ActReport { stale: Some(StaleReport { stale_reads: 1, ..stale() }), ..good() },
        ];
        for act in wrong {
            assert_eq!((report(act.clone(), None), report(good(), Some(act))), (1, 1));
        }
    }

    #[test]
    fn a_fault_that_did_nothing_shows_nothing() {
        let said = |act: ActReport| {
            let mut act = act;
            act.add_untested();
            (act.is_good(), act.findings)
        };
        let (good_act, findings) = said(ActReport { failover_ms: None, ..good() });
        assert_eq!(
            (good_act, &findings[0][..]),
            (false, "node 1 stopped, and nobody took over all of what it led")
        );
        let unasked = ActReport { stale: Some(StaleReport { answered: 0, ..stale() }), ..good() };
        assert_eq!(said(unasked).1, ["node 1 stopped, and answered nothing after another had taken over"]);
        // Nobody is asked who lost its process, and nobody takes over from a single copy.
        assert!(said(ActReport { fault: Fault::Kill, stale: None, ..good() }).0);
        assert!(said(ActReport { copies: 1, failover_ms: None, ..good() }).0);
        assert_eq!(said(good()), (true, Vec::new()));
    }

    #[test]
    fn a_stale_read_is_wrong_unless_what_it_lacks_is_reported_lost() {
        let (partition, at) = (PartitionId(64), Position::new(Term(4), Lsn(20)));
        let told = Answered { key: KeyId(9), client: 10, sequence: 7, at };
        let suspect = Suspect { partition, told, found: None };
        let shown = |reports: &Reports| {
            let mut act = good();
            act.add_stale([suspect.clone()].iter(), reports);
            (act.is_good(), act.stale.expect("a stop has one").stale_reads, act.findings.len())
        };
        let mut reports = Reports::default();
        assert_eq!(shown(&reports), (false, 1, 1));
        reports.ended(partition, Term(4), Lsn(20));
        assert_eq!(shown(&reports), (false, 1, 1));
        reports.ended(partition, Term(4), Lsn(19));
        assert_eq!(shown(&reports), (true, 0, 0));
    }

    #[test]
    fn the_json_has_every_figure_that_is_promised() {
        let report = DemoReport { first: good(), second: Some(good()), took_s: 61.26, output: "o".into() };
        let json = report.to_json();
        let names = "policy fault loaded acknowledged missing different reported_lost unreported_lost detection_ms \
                     failover_ms longest_gap_ms before_ops_s during_ops_s after_ops_s rejoin_ms fsyncs_s \
                     commits_per_fsync second_act good took_s";
        for name in names.split_whitespace() {
            assert!(json.get(name).is_some(), "{name} is missing");
        }
        assert_eq!((json["fault"].as_str(), json["took_s"].as_f64()), (Some("stop"), Some(61.3)));
        assert_eq!(json["second_act"]["split"]["serve_ms"].as_f64(), Some(160.0));
    }

    #[test]
    fn the_table_is_drawn() {
        let expected = "\
┌────────────────────────┬────────────────────┬─────────────────────────────────────────────────────────────┐
│ policy                 ┆ durable            ┆ 3 nodes, 6 partitions                                       │
│ fault                  ┆ stop               ┆ node 1 stopped                                              │
│ rows loaded            ┆ 50,000             ┆                                                             │
│ writes acknowledged    ┆ 123,456            ┆ 2 unknown, 0 not done                                       │
│ missing                ┆ 0                  ┆ 50,100 keys on 18 replicas                                  │
│ different              ┆ 0                  ┆                                                             │
│ reported lost          ┆ 0                  ┆ said by the cluster                                         │
│ unreported lost        ┆ 0                  ┆                                                             │
│ detection              ┆ 140 ms             ┆ fault to seal in the metastore                              │
│ failover               ┆ 312 ms             ┆ suspicion 131, seal 9, replay 3, serving 160, first write 9 │
│ longest gap            ┆ 313 ms             ┆ without a write to some partition, from 6.7 s on            │
│ in sync again          ┆ 900 ms             ┆ after the node was continued                                │
│ operations/s           ┆ 9,000 / 10,000 / - ┆ before / during / after the fault                           │
│ fsyncs/s               ┆ 2,500              ┆ 1.88 commits per fsync of any node                          │
│ stale acknowledgements ┆ 0                  ┆ of 100 writes sent to the old primary, 60 refused           │
│ stale reads            ┆ 0                  ┆ of 100 reads, 80 refused                                    │
│ answers                ┆ 140                ┆ to what was asked after another had taken over              │
└────────────────────────┴────────────────────┴─────────────────────────────────────────────────────────────┘";
        assert_eq!(good().table(), expected);
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
