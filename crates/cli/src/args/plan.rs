//! `understudy plan`.

use clap::Args;
use types::Scheme;

/// `understudy plan`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  understudy plan --nodes 1000 --partitions 16 --factor 3 --fail 7 --placement spread
  understudy plan --nodes 6 --partitions 4 --factor 2 --fail 1,2 --placement mirrored --json

Needs no cluster: the planner's own choices are played through for one table on nodes 1 to NODES, all of them equal. First the
partitions that the failed nodes led are taken over by copies that live, then new copies are made of those that are gone.
Primaries and copies are counted per node, as least / mean / most; a node's copies include what it leads; after the failure
over the nodes that live.

Fatal sets: sets of as many nodes as there are copies (--factor 2: pairs, --factor 3: triples) on which some partition has all of
its copies, before the failure. If exactly the nodes of such a set are lost for good at once, that partition is lost under
every policy; no smaller set takes all copies of anything. Each set is counted once, however many partitions lie on it. Its
share is that of all sets of so many nodes: how likely it is that so many nodes that fail at random lose something.

Placements:
  chained       copies on neighbours in a ring (the default of tables)
  interleaved   within groups of 2 x factor nodes, the copies beside a node's primaries on all of its group in turn
  mirrored      within groups of factor nodes, which hold the same
  spread        the copies beside a node's primaries on as many nodes of the cluster as there can be
Nodes that fill no group make other groups one larger.")]
pub struct PlanArgs {
    /// Nodes of the cluster: 1 to 10,000.
    #[arg(long, value_name = "NODES")]
    pub nodes: usize,
    /// Partitions PER NODE, that is primaries each node leads; the table has NODES times as many: at most
    /// 1,000,000.
    #[arg(long, value_name = "PER NODE")]
    pub partitions: usize,
    /// Copies of each partition: 1 to 7.
    #[arg(long, value_name = "COPIES", default_value_t = 3)]
    pub factor: usize,
    /// Nodes that fail, all at once: one id or several.
    #[arg(long, value_name = "NODE,..", value_delimiter = ',', num_args = 1..)]
    pub fail: Vec<String>,
    /// Where copies go: chained, interleaved, mirrored or spread.
    #[arg(long, value_name = "SCHEME", default_value_t = Scheme::Chained, value_parser = Scheme::parse)]
    pub placement: Scheme,
}
