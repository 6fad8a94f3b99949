//! Functions that look at the catalog, and types that are shown as names.

use super::{Binder, Form, Slot, Typed};
use crate::system::functions;
use crate::ty::Ty;
use pg::Failure;
use types::data::Value;

impl Binder<'_> {
    /// A function of [`functions`]; the error tells whether the name is known.
    pub(super) fn asking(
        &mut self,
        name: &str,
        arguments: Vec<Typed>,
    ) -> Result<Result<Typed, Failure>, bool> {
        let types: Vec<Option<Ty>> = arguments.iter().map(|typed| typed.ty).collect();
        let id = functions::position(name, &types)?;
        Ok(self.asked(id, arguments))
    }

    fn asked(&mut self, id: usize, arguments: Vec<Typed>) -> Result<Typed, Failure> {
        let function = &functions::all()[id];
        let mut texts = Vec::new();
        for (typed, to) in arguments.into_iter().zip(function.arguments) {
            let typed = self.becoming(typed, *to)?;
            texts.push(self.text(&typed));
        }
        Ok(Typed::engine(format!("s{id}_({})", texts.join(", ")), function.result))
    }

    /// A text as a number that is shown as a name: it is looked up when the statement is executed.
    pub(super) fn looked_up(&mut self, typed: Typed, to: Ty) -> Result<Typed, Failure> {
        let number = match &typed.form {
            Form::Slot(Slot::Const(Value::Text(text))) => text.trim().parse::<u32>().ok(),
            _ => None,
        };
        if let Some(number) = number {
            return Ok(Typed::constant(Value::Int(number.into()), to));
        }
        let typed = self.becoming(typed, Ty::Text)?;
        let name = format!("{}in", to.name());
        self.asking(&name, vec![typed]).unwrap_or_else(|_| unreachable!("every such type is read"))
    }

    /// The name that is shown for such a number.
    pub(super) fn named(&mut self, typed: Typed, from: Ty) -> Result<Typed, Failure> {
        let name = format!("{}out", from.name());
        let number = Typed { ty: Some(Ty::Oid), ..typed };
        self.asking(&name, vec![number]).unwrap_or_else(|_| unreachable!("every such type is shown"))
    }
}
