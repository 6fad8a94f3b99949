//! Objects that once owned everything stay small: how many fields and methods the types may have at which the
//! code of a crate comes together.

/// A type that has grown too large before.
struct Owner {
    /// Below this folder it lives.
    folder: &'static str,
    name: &'static str,
    fields: usize,
    /// In all its own blocks, wherever below the folder they are.
    methods: Option<usize>,
}

const OWNERS: [Owner; 5] = [
    Owner { folder: "crates/replica/src/", name: "Replica", fields: 12, methods: Some(80) },
    Owner { folder: "crates/replica/src/", name: "Primary", fields: 12, methods: None },
    Owner { folder: "crates/replica/src/", name: "Progress", fields: 12, methods: None },
    Owner { folder: "crates/node/src/", name: "Node", fields: 12, methods: None },
    Owner { folder: "tools/sim/src/", name: "World", fields: 12, methods: None },
];

/// What is wrong with them. `files`: names below the root, and texts.
pub fn faults<'a>(files: impl Iterator<Item = (&'a str, &'a str)> + Clone) -> Vec<String> {
    OWNERS.iter().flat_map(|owner| owner.faults(files.clone())).collect()
}

impl Owner {
    fn faults<'a>(&self, files: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<String> {
        let (mut fields, mut methods) = (0, 0);
        for (_, text) in files.filter(|(name, _)| name.starts_with(self.folder)) {
            let text = text.split("#[cfg(test)]").next().unwrap_or_default();
            let head = |line: &str, what: &str| is_headed(line, what, self.name);
            fields += count(text, |line| head(line, "struct "), is_field);
            methods += count(text, |line| head(line, "impl "), is_method);
        }
        let (name, folder) = (self.name, self.folder);
        let mut faults = Vec::new();
        if fields == 0 {
            faults.push(format!("{folder}: there is no struct {name} whose fields could be counted"));
        }
        if fields > self.fields {
            let most = self.fields;
            faults.push(format!("{folder}: {name} has {fields} fields, more than {most}: it is two types"));
        }
        if let Some(most) = self.methods.filter(|most| methods > *most) {
            faults.push(format!(
                "{folder}: {name} has {methods} methods, more than {most}: what one part can do is the part's"
            ));
        }
        faults
    }
}

/// True for the line that begins the struct, or a block of the type's own methods.
fn is_headed(line: &str, what: &str, name: &str) -> bool {
    let line = line.strip_prefix("pub ").or_else(|| line.strip_prefix("pub(crate) ")).unwrap_or(line);
    let Some(rest) = line.strip_prefix(what).and_then(|rest| rest.strip_prefix(name)) else { return false };
    rest.ends_with('{') && (rest == " {" || rest.starts_with('<'))
}

/// Counts lines within the blocks that begin at such a line and end at a closing brace in the first column.
fn count(text: &str, begins: impl Fn(&str) -> bool, counts: impl Fn(&str) -> bool) -> usize {
    let (mut inside, mut found) = (false, 0);
    for line in text.lines() {
        inside = (inside && line != "}") || begins(line);
        found += usize::from(inside && counts(line));
    }
    found
}

fn is_method(line: &str) -> bool {
    let Some(line) = line.strip_prefix("    ") else { return false };
    let line =
        line.strip_prefix("pub(").and_then(|rest| rest.split_once(") ")).map_or(line, |(_, rest)| rest);
    let line = line.strip_prefix("pub ").unwrap_or(line);
    line.strip_prefix("const ").unwrap_or(line).starts_with("fn ")
}

fn is_field(line: &str) -> bool {
    let Some(line) = line.strip_prefix("    ").filter(|line| !line.starts_with([' ', '/', '#'])) else {
        return false;
    };
    line.contains(": ") && line.ends_with(',')
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: Owner = Owner { folder: "a/", name: "Big", fields: 1, methods: Some(1) };

    #[test]
    fn fields_and_methods_of_a_type_are_counted_over_all_its_files() {
        let one = "pub struct Big {\n    /// A: field,\n    pub a: u8,\n}\n\nimpl Big {\n    pub(crate) fn b() {\n    }\n}\n";
        let other =
            "impl Big {\n    fn c() {\n        fn d() {}\n    }\n}\nimpl Bigger {\n    fn e() {}\n}\n";
        let faults = |files: &[(&str, &str)]| OWNER.faults(files.iter().copied());
        assert!(faults(&[("a/one.rs", one)]).is_empty());
        assert!(faults(&[("a/one.rs", one), ("b/other.rs", other)]).is_empty(), "not its folder");
        let two = faults(&[("a/one.rs", one), ("a/other.rs", other)]);
        assert!(two.len() == 1 && two[0].contains("has 2 methods"), "{two:?}");
        let wide = one.replace("    pub a: u8,", "    pub a: u8,\n    b: Vec<u8>,");
        assert!(faults(&[("a/one.rs", &wide)])[0].contains("has 2 fields"));
        assert!(faults(&[("a/other.rs", other)])[0].contains("there is no struct Big"));
        let tested = format!("{one}#[cfg(test)]\nmod tests {{\n}}\nimpl Big {{\n    fn x() {{}}\n}}\n");
        assert!(faults(&[("a/one.rs", &tested)]).is_empty(), "what only tests use is not counted");
    }
}
