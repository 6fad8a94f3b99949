//! What is to be said of a node beside its figures.

use super::overview::NodeLine;

impl NodeLine {
    /// A remark for each directory that the node does not use.
    pub fn lost_directories(&self) -> impl Iterator<Item = String> + '_ {
        let lost = self.directories.iter().filter(|directory| !directory.lost.is_empty());
        lost.map(|directory| {
            let held = match directory.replicas {
                0 => String::new(),
                left => format!(", {left} replicas have no other place yet"),
            };
            format!("directory {} is lost ({}){held}", directory.path, directory.lost)
        })
    }

    /// A remark for each executor that hangs.
    pub fn hung_executors(&self) -> impl Iterator<Item = String> + '_ {
        let hung = self.executors.iter().enumerate().filter(|(_, executor)| executor.hangs_us > 0);
        hung.map(|(number, executor)| {
            let seconds = executor.hangs_us as f64 / 1e6;
            format!("executor {number} has done nothing for {seconds:.1} s")
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::view::overview::overview;
    use crate::view::overview::tests::{map, record, status};
    use types::{Executors, PartitionId};
    use wire::control::ExecutorStatus;

    #[test]
    fn an_executor_that_hangs_is_told_with_what_it_leads() {
        let executors = Executors::new(2).expect("so many can be");
        let of = |number| (64..).find(|id| executors.of(PartitionId(*id)) == number).expect("has some");
        let records = [record(of(0), &[1, 2, 3], &[]), record(of(1), &[1, 2, 3], &[])];
        let mut told = status(&records, 0, None);
        let executor = ExecutorStatus { partitions: 1, connections: 4, hangs_us: 0 };
        told.nodes[0].0.executors = vec![executor, ExecutorStatus { hangs_us: 2_340_000, ..executor }];
        let seen = overview(&map(&records), &told);
        let said: Vec<String> = seen.nodes[0].hung_executors().collect();
        assert_eq!(said, ["executor 1 has done nothing for 2.3 s"]);
        assert!(seen.nodes[0].live && seen.nodes[1].hung_executors().next().is_none());
        for line in &seen.partitions {
            let hangs = line.partition == of(1);
            assert_eq!(line.state, if hangs { "hangs" } else { "serving" });
            assert_eq!(line.replicas.iter().filter(|replica| !replica.heard).count(), usize::from(hangs));
        }
        assert!(seen.tables[0].words.contains("1 partition has no serving primary"), "{:?}", seen.tables);
    }
}
