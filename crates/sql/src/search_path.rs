//! Where names without a schema are looked for: the parameter `search_path`.

use std::sync::Arc;

/// Schemas in the order in which names are looked for in them. `pg_catalog` comes before all, and there is no
/// schema of the one user (`"$user"`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SearchPath(Option<Arc<[String]>>);

impl SearchPath {
    /// As the parameter has it: names with commas between them, folded unless they are quoted.
    pub fn of(text: &str) -> SearchPath {
        let fixed = |name: &String| !["", "$user", "pg_catalog"].contains(&name.as_str());
        let schemas: Vec<String> = names(text).into_iter().filter(fixed).collect();
        match schemas.as_slice() {
            [only] if only == "public" => SearchPath(None),
            _ => SearchPath(Some(schemas.into())),
        }
    }

    /// True if names are looked for in `public` alone, as they are unless somebody says otherwise.
    pub fn is_public(&self) -> bool {
        self.0.is_none()
    }

    /// The schemas, first things first.
    pub fn schemas(&self) -> impl Iterator<Item = &str> {
        let public = self.0.is_none().then_some("public");
        public.into_iter().chain(self.0.iter().flat_map(|all| all.iter().map(String::as_str)))
    }
}

/// Names with commas between them.
fn names(text: &str) -> Vec<String> {
    let (mut all, mut chars) = (Vec::new(), text.chars().peekable());
    let (mut name, mut quoted) = (String::new(), false);
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.next_if_eq(&'"').is_some() => name.push('"'),
            '"' => quoted = !quoted,
            ',' if !quoted => all.push(std::mem::take(&mut name)),
            c if quoted => name.push(c),
            c if c.is_whitespace() => {}
            c => name.push(c.to_ascii_lowercase()),
        }
    }
    all.push(name);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_read_as_it_is_written() {
        let of = |text: &str| SearchPath::of(text).schemas().map(str::to_string).collect::<Vec<_>>();
        assert!(SearchPath::of("public").is_public() && SearchPath::default().is_public());
        assert!(SearchPath::of("\"$user\", public").is_public());
        assert_eq!(of("App, \"Te,n\"\"ant\" ,public"), ["app", "Te,n\"ant", "public"]);
        assert_eq!(of("pg_catalog, app"), ["app"]);
        assert!(of("").is_empty() && !SearchPath::of("").is_public());
    }
}
