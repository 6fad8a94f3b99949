//! Where a node freezes itself, so that a test finds it just there.

use wire::control::FailbackStage;

/// A point on a node's failback, by its name in `node.freeze_at`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FreezeAt {
    /// A replica is at this stage: `admitted`, `offered`, `files`, `installing`, `rows`, `log` or `in_sync`.
    Stage(FailbackStage),
    /// `tail`: a divergent tail was set aside, and nobody was told yet.
    Tail,
    /// `promoting`: a replica was named primary, and does not serve yet.
    Promoting,
}

impl FreezeAt {
    /// The point of this name; the empty name is of none. The error is a sentence.
    pub fn parse(name: &str) -> Result<Option<FreezeAt>, String> {
        let stage = || {
            serde_json::from_value::<FailbackStage>(name.into())
                .ok()
                .filter(|stage| *stage > FailbackStage::Idle)
        };
        match name {
            "" => Ok(None),
            "tail" => Ok(Some(FreezeAt::Tail)),
            "promoting" => Ok(Some(FreezeAt::Promoting)),
            _ => stage()
                .map(|stage| Some(FreezeAt::Stage(stage)))
                .ok_or_else(|| format!("node.freeze_at: no stage of coming back is called `{name}`")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_have_the_names_of_stages() {
        assert_eq!(FreezeAt::parse(""), Ok(None));
        assert_eq!(FreezeAt::parse("tail"), Ok(Some(FreezeAt::Tail)));
        assert_eq!(FreezeAt::parse("in_sync"), Ok(Some(FreezeAt::Stage(FailbackStage::InSync))));
        for name in ["idle", "InSync", "nowhere"] {
            assert!(FreezeAt::parse(name).expect_err("no name").contains(name));
        }
    }
}
