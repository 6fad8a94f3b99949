//! Mutants: one rule taken out, so that the simulator and the tests are tested themselves.
//!
//! Protocol code asks [`Rules`] by a rule's name where the rule stands. Unless the feature `mutants` is on,
//! every answer is the constant `true` and a value of it has no size. Only tests, and a build that says so,
//! turn that feature on; the gate looks whether the binary that is released is without it.

/// Writes [`Finding`] and the functions of [`Rules`] from one table: a finding, its id, the rule against it,
/// and what happens without the rule.
macro_rules! rules {
    ($($finding:ident $id:literal $rule:ident: $damage:literal;)*) => {
        /// A finding of which the rule against it can be taken out. `docs/rules.md` has them with their
        /// places.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Finding {
            $(#[doc = $damage] $finding,)*
        }

        impl Finding {
            /// Every finding whose rule can be taken out.
            pub const ALL: [Finding; [$($id),*].len()] = [$(Finding::$finding),*];

            /// The id as the documents write it: `F05`, `PR-16`, `LE-03`.
            pub fn id(self) -> &'static str {
                match self {
                    $(Finding::$finding => $id,)*
                }
            }
        }

        impl Rules {
            $(
                #[doc = concat!("True but in the mutant of ", $id, ". In it: ", $damage)]
                #[inline(always)]
                pub fn $rule(self) -> bool {
                    self.stands(Finding::$finding)
                }
            )*
        }
    };
}

rules! {
    F01 "F01" leases_bound_replies: "A stale primary serves after a failover.";
    F02 "F02" tails_are_truncated: "A returning primary keeps a tail that the new one never had.";
    F03 "F03" reads_are_at_committed:
        "A read shows what is not committed; a cancelled or late commit counts as done.";
    F04 "F04" silent_members_count: "Fewer copies than are recorded are counted in silence.";
    F05 "F05" only_members_are_promoted:
        "The most advanced replica that is heard is promoted, in the set or not.";
    F06 "F06" who_forgot_does_not_count: "A member that forgot its unsynced tail counts as before.";
    F07 "F07" markers_commit_first:
        "A new primary serves before its tail is on the others, or drops the absent at once.";
    F08 "F08" failed_fsyncs_poison: "A failed fsync is retried and 'succeeds'.";
    F09 "F09" durable_is_after_fsync: "A write is acknowledged before its fsync.";
    F10 "F10" damage_is_no_torn_end: "Damage in the middle of the log is taken for a torn end.";
    F11 "F11" files_are_compared: "A file that rots where nobody looks becomes the base of a newer set.";
    F12 "F12" received_files_are_whole:
        "Files that were received count before they are whole and durable.";
    F13 "F13" log_is_kept_for_members: "The log is truncated before every member has what it holds.";
    F14 "F14" copies_name_their_position: "A copy is said to be of another moment than its files are.";
    F16 "F16" decisions_are_recorded_first: "A controller acts on what it remembers.";
    F17 "F17" unknown_outcomes_are_asked_again:
        "An unknown outcome of the metastore is taken for a yes.";
    F18 "F18" losers_back_off:
        "Silence between two parties is taken for death, and the loser asks again at once.";
    F19 "F19" slow_members_leave: "A slow backup or a hung disk holds everything up for ever.";
    F20 "F20" failed_appends_change_nothing:
        "A full disk, or a failed append, leaves a hole in the log.";
    F21 "F21" calls_are_compared:
        "A call comes to something else on a replica than at the primary, and the replica goes on.";
    F22 "F22" retries_are_applied_once: "A retry is applied twice.";
    F25 "F25" stale_reads_are_refused:
        "A backup answers from a state below the reader's token, or older than was allowed.";
    Pr01 "PR-01" restarts_lead_nothing:
        "A restarted primary goes on in its old term and uses LSNs twice.";
    Pr02 "PR-02" old_leases_end_first: "The new primary serves while the old one's lease runs.";
    Pr05 "PR-05" answers_except_what_is_sealed:
        "One answer renews the lease of partitions that are sealed.";
    Pr06 "PR-06" promises_are_waited_for:
        "Promises that were forgotten, or never made, are not waited for.";
    Pr08 "PR-08" forced_terms_name_their_loss:
        "An operator forces a promotion and does not learn what it costs.";
    Pr12 "PR-12" newer_terms_are_more: "Logs are compared by LSN alone.";
    Pr13 "PR-13" reports_must_fence: "Reports that do not suffice are gone on with.";
    Pr15 "PR-15" joiners_have_what_is_committed: "A member joins that lacks what was committed.";
    Pr16 "PR-16" every_possible_set_counts: "One set alone counts while a change is in flight.";
    Pr17 "PR-17" new_disks_do_not_count:
        "A member that restarted, or whose disk is new, counts as what it was.";
    Pr18 "PR-18" torn_ends_are_reported:
        "The end of the log, although synced, is taken for torn, and durable goes back unseen.";
    Pr19 "PR-19" who_is_missed_may_be_well:
        "A false failover loses what a lone primary has acknowledged, although nothing broke.";
    Pr21 "PR-21" strict_stops_below_min: "committed moves on below min_in_sync.";
    Pr22 "PR-22" duplicates_wait: "A duplicate is answered before the original is committed.";
    Pr23 "PR-23" refusals_wait: "A refusal shows what is not committed.";
    Pr24 "PR-24" policies_change_in_three_steps:
        "The policy in the log and the one in the metastore differ.";
    Pr27 "PR-27" freshness_ends_with_the_lease:
        "A primary that is cut off, and who follows it, take what they have for fresh.";
    Pr31 "PR-31" engines_publish_what_is_secured:
        "An engine publishes what a failover can still take back, and what is given up is in no tail.";
    Pr35 "PR-35" logs_meet_the_files: "Log and engine files do not meet, or disagree.";
    Pr36 "PR-36" files_are_known_by_digest: "A file is taken for another one of the same number.";
    Pr37 "PR-37" installations_have_own_directories:
        "Files are installed where an open tree has its own, and vanish when that is closed.";
    Pr39 "PR-39" loads_are_staged_first: "A bulk load is marked before its files are everywhere.";
    Pr40 "PR-40" positions_are_rows: "The engine's position is kept apart from its data.";
    Pr45 "PR-45" sessions_are_rows: "Sessions are not part of the state.";
    Pr47 "PR-47" sessions_have_no_gaps: "A gap in a session is taken for a duplicate.";
    Pr67 "PR-67" who_fails_again_waits_longer:
        "A member that fails again and again joins and leaves for ever.";
    Pr78 "PR-78" first_committer_wins:
        "A write that rests on what was read overwrites what came after it (lost update).";
    Pr79 "PR-79" snapshots_lie_on_the_history:
        "A snapshot that a failover has lost is taken for the state at the same LSN.";
    Pr80 "PR-80" all_are_held_first:
        "For a snapshot of the whole cluster, partitions go on before all of them are held: one has what rests on something that another lacks.";
    Pr81 "PR-81" indexes_lose_old_values:
        "An index keeps the row of a value that was changed or removed.";
    Pr82 "PR-82" aborts_wait_until_secured:
        "What an aborted job is said to have done was on its primary alone, and is lost.";
    Pr85 "PR-85" lone_primaries_are_waited_for:
        "Where acknowledgements rest on the primary alone, a failover gives up what its healthy disk holds.";
    Pr106 "PR-106" who_failed_is_admitted_where_all_waits:
        "A partition with too few copies to acknowledge anything waits for the time that a member is to stay away.";
    Pr107 "PR-107" older_generations_are_refused:
        "A controller is obeyed that was there before the records were made anew.";
    Pr110 "PR-110" who_is_away_makes_room:
        "A partition with too few copies to acknowledge anything is bringing one level on a node that has died.";
    Pr111 "PR-111" scans_are_at_committed: "A scan shows what is not committed at the position that it names.";
    Pr112 "PR-112" refused_writes_change_nothing:
        "A write of several rows that is refused leaves those that came before the one that refused it.";
    Pr113 "PR-113" finds_are_of_one_state:
        "A find by an index shows rows of another state than the entries by which it found them.";
    Pr117 "PR-117" ended_copies_are_told:
        "Who is damaged in the middle of a copy by rows says nothing, and the primary waits for it.";
    Pr120 "PR-120" schemas_are_compared:
        "A table is read, written, changed or dropped by whoever knows another version of its columns.";
    Pr121 "PR-121" ranges_end_with_their_table: "A range of keys that is open goes on into the next table.";
    Pr122 "PR-122" changes_keep_rows_readable:
        "A change of a table's columns makes rows unreadable that were committed before it.";
    Pr123 "PR-123" filled_tables_have_no_name: "A table that is being filled has its name already.";
    Pr124 "PR-124" held_tables_are_not_written:
        "A row is written after it was copied into the table that takes the place of its own.";
    Pr145 "PR-145" older_copies_do_not_count:
        "A node comes back on an older copy of its data directory, and counts as if it had what it has acknowledged since.";
    Pr150 "PR-150" constraints_are_looked_at:
        "Two rows have the same values where a constraint forbids it, or one refers to a row that is not there.";
    Pr170 "PR-170" whoever_comes_finishes:
        "A change of a database's tables that somebody has left half done stays so.";
    Pr180 "PR-180" feeds_are_of_tables:
        "Feeds of one name into two tables of a database share one position.";
    Pr220 "PR-220" limits_are_the_primarys:
        "A replica stops a call at its own limits that the primary has not stopped.";
    Pr230 "PR-230" same_lives_lead_on:
        "Who leads on in the same life is asked for something of a term that never served.";
    Pr240 "PR-240" calls_need_the_same_code:
        "A replica makes a call with other code than the primary's.";
    Pr250 "PR-250" first_commit_wins:
        "A global transaction is committed over one that its snapshot does not show (lost update).";
    Pr251 "PR-251" flushes_follow_their_chain:
        "A partition takes a commit in before one that came before it.";
    Pr252 "PR-252" snapshots_are_whole:
        "A snapshot is read where one of its commits has not arrived.";
    Pr253 "PR-253" commits_are_kept_for_all:
        "The transaction manager forgets a commit that some partition has on one disk alone, or not at all.";
    Pr254 "PR-254" old_snapshots_commit_nothing:
        "A transaction is committed although what came after its snapshot is not known any more.";
    Pr257 "PR-257" commits_reach_indexes:
        "A partition takes in rows of a commit, and not what they change in indexes.";
    Pr280 "PR-280" former_directories_go_too:
        "A node that was removed comes back on a directory that it had before its last one.";
    Pr281 "PR-281" full_logs_wait_for_nobody:
        "A node's log is full, and is kept for who is away.";
    Pr282 "PR-282" who_failed_comes_last:
        "A copy that fails again and again is tried again while others wait.";
    Pr283 "PR-283" losses_end_sessions:
        "A session goes on with the numbers of writes that a failover has lost.";
    Pr284 "PR-284" the_lead_may_go_back:
        "Who was handed the lead on a disk that hangs is waited for.";
    Pr290 "PR-290" what_is_secured_goes:
        "The transaction manager removes commits only when it is told of something new, and keeps the last ones.";
    Pr300 "PR-300" hung_disks_are_given_up:
        "A primary that acknowledgements rest on is waited for although its disk hangs.";
    Pr301 "PR-301" what_is_held_back_is_moved:
        "A damaged replica's log keeps the node's log full.";
    Pr321 "PR-321" the_future_is_old:
        "What was committed by a clock that was ahead is kept until then, with everything behind it.";
    Pr324 "PR-324" unique_values_are_claimed:
        "Two transactions commit rows with the same unique value in two partitions.";
    Pr325 "PR-325" references_are_claimed:
        "A row is removed in one partition while one that refers to it is committed in another.";
    Pr330 "PR-330" pages_name_their_point:
        "A backup's later pages are of the newest state, and not of the one that it names.";
    Pr361 "PR-361" unmade_commits_use_their_number_up:
        "A commit that was said not to be made is made when a late copy of it arrives.";
    Pr363 "PR-363" timestamps_have_their_term:
        "A term of the transaction manager that has lost commits gives their timestamps again.";
    Pr364 "PR-364" snapshots_are_named_by_commits:
        "A snapshot over partitions is read by the LSN that it had in a partition before a failover.";
    Pr365 "PR-365" copies_secure_commits:
        "The transaction manager forgets what a partition's primary alone has on its disk.";
    Pr374 "PR-374" silent_turns_end: "Who has the turn at a row and says nothing any more has it for ever.";
    Pr377 "PR-377" turns_wait_for_commits:
        "The turn at a row is told before what was written in the one before can be read.";
    Pr410 "PR-410" repeats_pass_nothing:
        "A write that is answered once more passes on the turn that somebody else has by now.";
    Le01 "LE-01" flushes_name_their_own_position: "A flush names the entry behind the last one that it holds.";
    Le02 "LE-02" persisted_is_what_was_flushed:
        "`persisted` is told to be what is published when a flush ends, not what it began with.";
    Le03 "LE-03" merges_keep_what_readers_need: "A merge drops versions that a reader still needs.";
    Le04 "LE-04" flushes_keep_deletions:
        "A flush leaves deletions out, as if nothing older lay below.";
    Le05 "LE-05" exchanges_take_what_came_since:
        "What was published while a received set was checked is not in the tree that takes the old one's place.";
    Le06 "LE-06" copies_begin_with_an_empty_tree:
        "A copy by rows is written into the old tree, and what the sender has deleted is still there.";
    Le07 "LE-07" loads_have_all_their_files: "A bulk load is installed without its last file.";
    Le08 "LE-08" discards_stop_at_their_position: "A truncation takes the last entry that stays with it.";
    Le09 "LE-09" reads_see_nothing_newer: "A read of a snapshot sees the entry behind it.";
    Le10 "LE-10" received_files_are_synced: "A received file is installed without having been synced.";
    Le11 "LE-11" pins_keep_their_files: "A merge removes files that are still being sent to a member.";
    Le12 "LE-12" unsynced_files_come_again:
        "A received file whose sync failed stays, and the next sync of it 'succeeds'.";
    Le13 "LE-13" what_is_written_is_not_read_ahead:
        "A row that was read ahead is answered as it was then, though it was written since.";
}

/// Which rules are in force: all of them, but in a mutant. State machines get one with their settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rules {
    #[cfg(feature = "mutants")]
    out: Option<Finding>,
}

#[cfg(not(feature = "mutants"))]
const _: () = assert!(size_of::<Rules>() == 0, "what is released carries no mutants");

impl Rules {
    /// Every rule is in force: what nodes run.
    #[cfg(feature = "mutants")]
    pub const ALL: Rules = Rules { out: None };
    /// Every rule is in force: what nodes run.
    #[cfg(not(feature = "mutants"))]
    pub const ALL: Rules = Rules {};

    /// Every rule but the one against this finding; `None` in a build without the feature `mutants`.
    #[cfg(feature = "mutants")]
    pub fn without(finding: Finding) -> Option<Rules> {
        Some(Rules { out: Some(finding) })
    }

    /// Every rule but the one against this finding; `None` in a build without the feature `mutants`.
    #[cfg(not(feature = "mutants"))]
    pub fn without(_: Finding) -> Option<Rules> {
        None
    }

    #[cfg(feature = "mutants")]
    #[inline(always)]
    fn stands(self, finding: Finding) -> bool {
        self.out != Some(finding)
    }

    #[cfg(not(feature = "mutants"))]
    #[inline(always)]
    fn stands(self, _: Finding) -> bool {
        true
    }
}

impl Finding {
    /// Ids that are no findings of their own, each with the one whose rule is theirs: `docs/rules.md` has a
    /// row for each.
    pub const ALIASES: [(&str, Finding); 10] = [
        ("F15", Finding::Pr40),
        ("F23", Finding::Pr252),
        ("F24", Finding::Pr253),
        ("PR-48", Finding::Pr251),
        ("PR-49", Finding::Pr253),
        ("PR-50", Finding::Pr253),
        ("PR-51", Finding::Pr252),
        ("PR-52", Finding::Pr254),
        ("PR-53", Finding::Pr253),
        ("PR-54", Finding::Pr254),
    ];

    /// The finding with this id; `F05`, `f5`, `PR-16` and `pr16` are understood, and so are
    /// [`Finding::ALIASES`].
    pub fn parse(text: &str) -> Option<Finding> {
        let text = text.to_ascii_uppercase().replace('-', "");
        let digits = text.trim_start_matches(|c: char| c.is_ascii_alphabetic());
        let number: u32 = digits.parse().ok()?;
        let letters = &text[..text.len() - digits.len()];
        let canonical = match letters {
            "F" => format!("F{number:02}"),
            "PR" | "LE" => format!("{letters}-{number:02}"),
            _ => return None,
        };
        let all = Finding::ALL.into_iter().map(|finding| (finding.id(), finding));
        all.chain(Finding::ALIASES).find(|(id, _)| *id == canonical).map(|(_, finding)| finding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_they_are_written() {
        for finding in Finding::ALL {
            assert_eq!(Finding::parse(finding.id()), Some(finding));
        }
        assert_eq!(Finding::parse("f5"), Some(Finding::F05));
        assert_eq!(Finding::parse("pr1"), Some(Finding::Pr01));
        assert_eq!(Finding::parse("F15"), Some(Finding::Pr40));
        for (alias, finding) in Finding::ALIASES {
            assert!(Finding::ALL.iter().all(|one| one.id() != alias), "{alias} is a finding of its own");
            assert_eq!(Finding::parse(alias), Some(finding));
        }
        assert_eq!(Finding::parse("f23"), Some(Finding::Pr252));
        assert_eq!(Finding::parse("pr49"), Some(Finding::Pr253));
        assert_eq!(Finding::parse("le7"), Some(Finding::Le07));
        assert_eq!(Finding::parse("x1"), None);
        assert_eq!(Finding::parse("F99"), None);
        assert_eq!(Finding::parse(""), None);
    }

    #[test]
    fn a_mutant_lacks_one_rule_and_only_a_build_of_mutants_has_any() {
        for finding in Finding::ALL {
            assert!(Rules::ALL.stands(finding));
            let Some(mutant) = Rules::without(finding) else {
                assert_eq!(size_of::<Rules>(), 0);
                continue;
            };
            let out: Vec<_> = Finding::ALL.into_iter().filter(|other| !mutant.stands(*other)).collect();
            assert_eq!(out, [finding]);
        }
        assert!(Rules::ALL.leases_bound_replies());
    }
}
