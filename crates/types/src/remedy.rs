//! Planted bugs: a remedy can be taken out through a type parameter, so that the simulator can be tested (`faults.md`).
//!
//! Release nodes are built with [`Sound`], whose every answer is the constant `true`, so the other branch does not exist.

/// A finding of `faults.md` (F) or `protocol.md` (PR) whose remedy can be taken out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[expect(missing_docs, reason = "each is described under its id in docs/rules.md")]
pub enum Finding {
    F01,
    F02,
    F03,
    F04,
    F05,
    F06,
    F07,
    F08,
    F09,
    F10,
    F11,
    F12,
    F13,
    F14,
    F16,
    F17,
    F18,
    F19,
    F20,
    F22,
    F25,
    Pr01,
    Pr05,
    Pr06,
    Pr15,
    Pr16,
    Pr18,
    Pr21,
    Pr22,
    Pr23,
    Pr31,
    Pr36,
    Pr37,
    Pr39,
    Pr40,
    Pr45,
    Pr47,
    Pr78,
    Pr79,
    Pr80,
    Pr81,
    Pr82,
}

impl Finding {
    /// Every finding that can be planted.
    pub const ALL: [Finding; 42] = [
        Finding::F01,
        Finding::F02,
        Finding::F03,
        Finding::F04,
        Finding::F05,
        Finding::F06,
        Finding::F07,
        Finding::F08,
        Finding::F09,
        Finding::F10,
        Finding::F11,
        Finding::F12,
        Finding::F13,
        Finding::F14,
        Finding::F16,
        Finding::F17,
        Finding::F18,
        Finding::F19,
        Finding::F20,
        Finding::F22,
        Finding::F25,
        Finding::Pr01,
        Finding::Pr05,
        Finding::Pr06,
        Finding::Pr15,
        Finding::Pr16,
        Finding::Pr18,
        Finding::Pr21,
        Finding::Pr22,
        Finding::Pr23,
        Finding::Pr31,
        Finding::Pr36,
        Finding::Pr37,
        Finding::Pr39,
        Finding::Pr40,
        Finding::Pr45,
        Finding::Pr47,
        Finding::Pr78,
        Finding::Pr79,
        Finding::Pr80,
        Finding::Pr81,
        Finding::Pr82,
    ];

    /// The id as the documents write it: `F05`, `PR-16`.
    pub fn id(self) -> String {
        let name = format!("{self:?}");
        match name.strip_prefix("Pr") {
            Some(number) => format!("PR-{number}"),
            None => name,
        }
    }

    /// The finding with this id; `F05`, `f5`, `PR-16` and `pr16` are understood. F15 has the remedy of PR-40, so it is that one.
    pub fn parse(text: &str) -> Option<Finding> {
        let text = text.to_ascii_uppercase().replace('-', "");
        let digits = text.trim_start_matches(|c: char| c.is_ascii_alphabetic());
        let number: u32 = digits.parse().ok()?;
        let canonical = match &text[..text.len() - digits.len()] {
            "F" if number == 15 => Finding::Pr40.id(),
            "F" => format!("F{number:02}"),
            "PR" => format!("PR-{number:02}"),
            _ => return None,
        };
        Finding::ALL.into_iter().find(|finding| finding.id() == canonical)
    }
}

/// Says which remedies are in. A state machine asks it where a finding's remedy stands.
pub trait Remedy: Copy + Send + Sync + 'static {
    /// True if the remedy against `finding` is in force.
    fn has(&self, finding: Finding) -> bool;
}

/// Every remedy in force: what nodes run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sound;

impl Remedy for Sound {
    #[inline(always)]
    fn has(&self, _: Finding) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_they_are_written() {
        for finding in Finding::ALL {
            assert_eq!(Finding::parse(&finding.id()), Some(finding));
        }
        assert_eq!(Finding::parse("f5"), Some(Finding::F05));
        assert_eq!(Finding::parse("pr1"), Some(Finding::Pr01));
        assert_eq!(Finding::parse("F15"), Some(Finding::Pr40));
        assert_eq!(Finding::parse("x1"), None);
        assert_eq!(Finding::parse("F99"), None);
        assert_eq!(Finding::parse(""), None);
    }
}
