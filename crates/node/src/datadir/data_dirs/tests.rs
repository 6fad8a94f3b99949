//! What is taken into use, what is lost, and what is left alone.

use super::*;
use crate::datadir::{Kind, init};
use types::{EngineKind, LogKind, TableId};

/// A node's data directory, and two empty directories.
struct Disks {
    keep: tempfile::TempDir,
    node: PathBuf,
}

type Metas = BTreeMap<PartitionId, Meta>;

fn meta(id: u64, directory: Option<DirectoryId>) -> Meta {
    let (engine, log) = (EngineKind::Lsm, LogKind::Disk);
    Meta { format: 1, partition: PartitionId(id as u32), table: TableId(1), engine, log, directory }
}

fn in_it(directory: DirectoryId) -> Metas {
    [(PartitionId(64), meta(64, Some(directory)))].into()
}

impl Disks {
    fn new() -> Disks {
        let keep = tempfile::tempdir().expect("a directory");
        let node = keep.path().join("node");
        init(&node, Kind::Node, NodeId(1)).expect("initialises");
        let disks = Disks { keep, node };
        fs::create_dir(disks.at("a")).expect("makes");
        fs::create_dir(disks.at("b")).expect("makes");
        disks
    }

    fn at(&self, name: &str) -> PathBuf {
        self.keep.path().join(name)
    }

    fn open(&self, names: &[&str], metas: &Metas) -> Result<DataDir, Failure> {
        let mut dir = DataDir::open(&self.node, Kind::Node)?;
        let listed: Vec<PathBuf> = names.iter().map(|name| self.at(name)).collect();
        dir.open_data_dirs(&listed, metas)?;
        Ok(dir)
    }

    fn refused(&self, names: &[&str], metas: &Metas) -> Failure {
        self.open(names, metas).expect_err("refused")
    }
}

fn lost(dir: &DataDir) -> Vec<Option<&str>> {
    dir.data_dirs().iter().map(DataDirectory::lost).collect()
}

#[test]
fn an_empty_directory_is_taken_into_use_and_known_again() {
    let disks = Disks::new();
    let none = Metas::new();
    disks.open(&[], &none).expect("opens");
    assert!(!disks.node.join(LIST).exists(), "without further directories nothing is new on the disk");
    let first = disks.open(&["a", "b"], &none).expect("opens").data_dirs()[0].id;
    let dir = disks.open(&["b", "a"], &none).expect("opens");
    assert_eq!((dir.data_dirs()[1].id, lost(&dir)), (first, vec![None, None]));
    let engine_dir = dir.engine_dir(&meta(64, Some(first))).expect("is there");
    assert_eq!(engine_dir, disks.at("a").join("partitions/64"));
    assert_eq!(dir.engine_dir(&meta(64, None)), Ok(disks.node.join("partitions/64")));
    assert!(dir.engine_dir(&meta(64, Some(DirectoryId(7)))).is_err());
    drop(dir);
    // Moved to another place it is the same one.
    fs::rename(disks.at("a"), disks.at("c")).expect("renames");
    let dir = disks.open(&["c", "b"], &in_it(first)).expect("opens");
    assert_eq!((dir.data_dirs()[0].id, lost(&dir)), (first, vec![None, None]));
}

#[test]
fn what_is_not_this_nodes_is_refused_and_left_alone() {
    let disks = Disks::new();
    let none = Metas::new();
    fs::write(disks.at("b").join("letter.txt"), "dear").expect("writes");
    let error = disks.refused(&["a", "b"], &none);
    assert!(error.status == 5 && error.sentence.contains("not empty"), "{error}");
    assert_eq!(fs::read_dir(disks.at("a")).expect("lists").count(), 0, "nothing was changed");
    let error = disks.refused(&["none"], &none);
    assert!(error.status == 3 && error.sentence.contains("there is no directory"), "{error}");
    for (names, status) in [(&["node"][..], 2), (&["node/x"], 2), (&["a", "a"], 2)] {
        assert_eq!(disks.refused(names, &none).status, status, "{names:?}");
    }
    let others = Disks::new();
    others.open(&["a"], &none).expect("opens");
    fs::rename(others.at("a"), disks.at("c")).expect("renames");
    let error = disks.refused(&["c"], &none);
    assert!(error.status == 5 && error.sentence.contains("belongs to n1"), "{error}");
}

#[test]
fn a_directory_with_replicas_that_is_not_there_is_lost_and_never_made_again() {
    let disks = Disks::new();
    let id = disks.open(&["a"], &Metas::new()).expect("opens").data_dirs()[0].id;
    fs::rename(disks.at("a"), disks.at("away")).expect("renames");
    let dir = disks.open(&["a"], &in_it(id)).expect("starts without it");
    assert_eq!(lost(&dir), [Some("it is not there")]);
    assert!(dir.engine_dir(&meta(64, Some(id))).is_err());
    drop(dir);
    // Its disk is not mounted; another file is there; its identity cannot be read.
    fs::create_dir(disks.at("a")).expect("makes");
    assert_eq!(
        lost(&disks.open(&["a"], &in_it(id)).expect("starts")),
        [Some("it is empty: is its disk mounted?")]
    );
    assert_eq!(fs::read_dir(disks.at("a")).expect("lists").count(), 0);
    fs::write(disks.at("a").join(IDENTITY), "{").expect("writes");
    assert!(lost(&disks.open(&["a"], &in_it(id)).expect("starts"))[0].is_some());
    fs::remove_dir_all(disks.at("a")).expect("removes");
    fs::write(disks.at("a"), "a file").expect("writes");
    assert!(lost(&disks.open(&["a"], &in_it(id)).expect("starts"))[0].is_some());
    // It may not be left out, and with nothing in it an empty one takes its place.
    assert_eq!(
        lost(&disks.open(&["a"], &Metas::new()).expect("starts")).len(),
        1,
        "nothing is in it, and it is missed"
    );
    let error = disks.refused(&["b"], &in_it(id));
    assert!(error.status == 5 && error.sentence.contains("does not list"), "{error}");
    fs::remove_file(disks.at("a")).expect("removes");
    fs::create_dir(disks.at("a")).expect("makes");
    let dir = disks.open(&["a"], &Metas::new()).expect("opens");
    assert!(dir.data_dirs()[0].id != id && lost(&dir) == [None]);
    drop(dir);
    fs::remove_dir_all(disks.at("a")).expect("removes");
    fs::rename(disks.at("away"), disks.at("a")).expect("renames");
    assert_eq!(disks.open(&["a"], &in_it(id)).expect("opens").data_dirs()[0].id, id);
}

#[test]
fn what_is_left_of_replicas_that_are_elsewhere_is_removed() {
    let disks = Disks::new();
    let dir = disks.open(&["a"], &Metas::new()).expect("opens");
    let id = dir.data_dirs()[0].id;
    for number in [64, 65, 66] {
        dir.clear_engine_dir(&meta(number, Some(id))).expect("makes");
        fs::write(disks.at("a").join(format!("partitions/{number}/x")), "x").expect("writes");
    }
    dir.clear_engine_dir(&meta(64, Some(id))).expect("makes");
    assert!(!disks.at("a").join("partitions/64/x").exists(), "what is made for a replica is empty");
    drop(dir);
    let metas: Metas = [meta(64, Some(id)), meta(65, None)].map(|meta| (meta.partition, meta)).into();
    disks.open(&["a"], &metas).expect("opens");
    let there = |name: &str| disks.at("a").join(name).exists();
    assert!(there("partitions/64") && !there("partitions/65") && !there("partitions/66"));
    assert!(there("damaged/66-0/x"), "nothing says that it is not wanted");
}

#[test]
fn pr359_a_directory_that_is_gone_is_not_made_for_a_replica() {
    let disks = Disks::new();
    let dir = disks.open(&["a"], &Metas::new()).expect("opens");
    let meta = meta(64, Some(dir.data_dirs()[0].id));
    let place = dir.engine_dir(&meta).expect("is there");
    fs::rename(disks.at("a"), disks.at("away")).expect("renames");
    assert!(dir.clear_engine_dir(&meta).is_err() && dir.ensure(&place).is_err());
    assert!(dir.set_aside(&place, "64").is_err());
    assert!(!disks.at("a").exists());
    fs::rename(disks.at("away"), disks.at("a")).expect("renames");
    dir.clear_engine_dir(&meta).expect("makes");
    assert!(place.is_dir());
}

#[test]
fn a_directory_is_told_from_what_took_its_place() {
    let disks = Disks::new();
    let dir = disks.open(&["a"], &Metas::new()).expect("opens");
    let (id, store) = (dir.data_dirs()[0].id, dir.identity().store);
    let trouble = || trouble(&disks.at("a"), store, id);
    assert_eq!((trouble(), probe(&disks.at("a"))), (None, None));
    fs::rename(disks.at("a"), disks.at("away")).expect("renames");
    assert_eq!(trouble().as_deref(), Some("it is gone"));
    assert!(probe(&disks.at("a")).is_some());
    fs::create_dir(disks.at("a")).expect("makes");
    assert!(trouble().is_some_and(|why| why.contains("mounted")));
    fs::remove_dir(disks.at("a")).expect("removes");
    fs::write(disks.at("a"), "a file").expect("writes");
    assert!(trouble().is_some());
    assert!(dir.lose(id, "it is gone".into()) && !dir.lose(id, "again".into()));
    assert_eq!(lost(&dir), [Some("it is gone")]);
}
