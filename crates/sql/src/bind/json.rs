//! JSON that is made of values. `json` and `jsonb` are one type, and so are functions with either name.

use super::{Binder, Form, Slot, Typed};
use crate::ty::Ty;
use pg::Failure;
use types::data::Value;

/// The name of a function on JSON without its `json_` or `jsonb_`.
pub(super) fn of_json(name: &str) -> Option<&str> {
    name.strip_prefix("jsonb_").or_else(|| name.strip_prefix("json_"))
}

impl Binder<'_> {
    /// A function that makes JSON of values; none: it is another one.
    pub(super) fn makes_json(&mut self, name: &str, given: &[Typed]) -> Option<Result<Typed, Failure>> {
        match (of_json(name), name, given) {
            (Some("build_object"), ..) => Some(self.json_object(given.to_vec())),
            (Some("build_array"), ..) => Some(self.json_list(given.to_vec())),
            (_, "to_json" | "to_jsonb", [one]) => {
                Some(self.valued(one.clone()).map(|pair| Typed::engine(format!("tree_({pair})"), Ty::Json)))
            }
            _ => None,
        }
    }

    /// The engine's text of a value, and its type's number.
    pub(super) fn valued(&mut self, value: Typed) -> Result<String, Failure> {
        let value = match &value.form {
            Form::Slot(Slot::Const(Value::Null)) if value.ty.is_none() => self.becoming(value, Ty::Text)?,
            _ => self.decided(value)?,
        };
        let ty = value.ty.expect("decided");
        Ok(format!("{}, {}", self.text(&value), ty as u8))
    }

    /// `json_build_object(name, value, ...)`.
    fn json_object(&mut self, given: Vec<Typed>) -> Result<Typed, Failure> {
        if given.len() % 2 == 1 {
            let message = "argument list must have even number of elements";
            return Err(Failure::new("22023", message));
        }
        let mut texts = Vec::new();
        let mut rest = given.into_iter();
        while let (Some(name), Some(value)) = (rest.next(), rest.next()) {
            let name = self.cast_to(name, Ty::Text)?;
            let value = self.valued(value)?;
            texts.push(format!("{}, {value}", self.text(&name)));
        }
        Ok(Typed::engine(format!("object_({})", texts.join(", ")), Ty::Json))
    }

    /// `json_build_array(value, ...)`.
    fn json_list(&mut self, given: Vec<Typed>) -> Result<Typed, Failure> {
        let texts = given.into_iter().map(|value| self.valued(value)).collect::<Result<Vec<_>, _>>()?;
        Ok(Typed::engine(format!("list_({})", texts.join(", ")), Ty::Json))
    }
}
