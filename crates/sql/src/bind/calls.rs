//! Function calls, SQL's own forms of them, and subqueries in expressions.

use super::expr::unknown;
use super::operators::data_type;
use super::{Binder, Form, Slot, Typed, parts};
use crate::ty::Ty;
use pg::{Failure, code};
use sqlparser::ast::{
    CastKind, CeilFloorKind, CharacterLength, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, Interval, Query, TrimWhereField,
};
use types::data::Value;

/// How many characters a type has, if its texts are cut where a cast asks for it.
fn length(ty: &DataType) -> Option<i64> {
    match ty {
        DataType::Varchar(Some(length)) | DataType::CharacterVarying(Some(length)) => match length {
            CharacterLength::IntegerLength { length, unit: None } => i64::try_from(*length).ok(),
            _ => None,
        },
        _ => None,
    }
}

/// What this speaks, as PostgreSQL's `version()` says it.
pub const VERSION: &str = concat!("PostgreSQL 15.0 (Understudy ", env!("CARGO_PKG_VERSION"), ")");

impl Binder<'_> {
    /// A text of at most so many characters.
    fn cut(&mut self, expr: &Expr, most: i64) -> Result<Typed, Failure> {
        let text = self.expr(expr)?;
        let text = self.cast_to(text, Ty::Text)?;
        let most = Typed::constant(Value::Int(most.min(i32::MAX.into())), Ty::Int4);
        self.function("left", vec![text, most])
    }

    /// Forms that SQL writes in words.
    pub(super) fn special(&mut self, expr: &Expr) -> Result<Typed, Failure> {
        match expr {
            Expr::Cast {
                kind: CastKind::Cast | CastKind::DoubleColon,
                expr: inner,
                data_type: to,
                format: None,
                array: false,
            } => {
                if let Some(length) = length(to) {
                    return self.cut(inner, length);
                }
                let to = data_type(to, false)?;
                let typed = self.expr(inner)?;
                self.cast_to(typed, to)
            }
            Expr::Interval(interval) => self.interval(interval),
            Expr::TypedString(typed) => {
                let ty = data_type(&typed.data_type, false)?;
                let text = typed.value.clone().into_string().ok_or_else(|| unknown(expr))?;
                Ok(Typed::constant(pg::text::parse(ty.kind(), &text)?, ty))
            }
            Expr::Extract { field, expr: inner, .. } => {
                let field = Typed::constant(Value::Text(field.to_string().to_ascii_lowercase()), Ty::Text);
                let arguments = vec![field, self.expr(inner)?];
                self.function("extract", arguments)
            }
            Expr::Ceil {
                expr: inner,
                field: CeilFloorKind::DateTimeField(sqlparser::ast::DateTimeField::NoDateTime),
            } => self.unary_function("ceil", inner),
            Expr::Floor {
                expr: inner,
                field: CeilFloorKind::DateTimeField(sqlparser::ast::DateTimeField::NoDateTime),
            } => self.unary_function("floor", inner),
            Expr::Position { expr: what, r#in } => {
                let arguments = vec![self.expr(r#in)?, self.expr(what)?];
                self.function("position", arguments)
            }
            Expr::Substring { expr: inner, substring_from: Some(from), substring_for, .. } => {
                let mut arguments = vec![self.expr(inner)?, self.expr(from)?];
                if let Some(length) = substring_for {
                    arguments.push(self.expr(length)?);
                }
                self.function("substring", arguments)
            }
            Expr::Trim { trim_where, trim_what, expr: inner, trim_characters: None } => {
                let name = match trim_where {
                    None | Some(TrimWhereField::Both) => "btrim",
                    Some(TrimWhereField::Leading) => "ltrim",
                    Some(TrimWhereField::Trailing) => "rtrim",
                };
                let mut arguments = vec![self.expr(inner)?];
                if let Some(what) = trim_what {
                    arguments.push(self.expr(what)?);
                }
                self.function(name, arguments)
            }
            Expr::Function(function) => self.call(function),
            Expr::Array(array) if array.named => self.array_of(&array.elem),
            Expr::AnyOp { left, compare_op, right, .. } => self.any(left, compare_op, right, false),
            Expr::AllOp { left, compare_op, right } => self.any(left, compare_op, right, true),
            Expr::CompoundFieldAccess { root, access_chain } => self.access(root, access_chain),
            other => Err(unknown(other)),
        }
    }

    /// `INTERVAL '1 day'`, also with a unit behind it: `INTERVAL '1' DAY`.
    fn interval(&mut self, interval: &Interval) -> Result<Typed, Failure> {
        let whole = interval.last_field.is_none()
            && interval.leading_precision.is_none()
            && interval.fractional_seconds_precision.is_none();
        let Expr::Value(value) = interval.value.as_ref() else {
            return Err(unknown(&Expr::Interval(interval.clone())));
        };
        let text = value.value.clone().into_string().filter(|_| whole);
        let Some(text) = text else { return Err(unknown(&Expr::Interval(interval.clone()))) };
        let text = match &interval.leading_field {
            Some(unit) => format!("{text} {unit}"),
            None => text,
        };
        Ok(Typed::constant(pg::text::parse(pg::Kind::Interval, &text)?, Ty::Interval))
    }

    fn unary_function(&mut self, name: &str, inner: &Expr) -> Result<Typed, Failure> {
        let typed = self.expr(inner)?;
        self.function(name, vec![typed])
    }

    /// Words without parentheses that stand for values.
    pub(super) fn keyword(&mut self, name: &str) -> Result<Typed, Failure> {
        Ok(match name {
            "current_date" => Typed::slot(Slot::Today, Some(Ty::Date)),
            "current_timestamp" | "now" | "transaction_timestamp" | "statement_timestamp" => {
                Typed::slot(Slot::Now, Some(Ty::Timestamptz))
            }
            "current_user" | "session_user" | "user" | "current_role" => text("understudy"),
            "current_database" | "current_catalog" => text(self.catalog.database()),
            "current_schema" => match self.catalog.current_schema() {
                Some(schema) => text(schema),
                None => Typed::engine("NULL".into(), Ty::Text),
            },
            "version" => text(VERSION),
            // Each time they are evaluated they give something else.
            "random" => Typed::engine("random_(random())".into(), Ty::Float8),
            "gen_random_uuid" | "uuid_generate_v4" => Typed::engine("uuid_(random())".into(), Ty::Uuid),
            other => return self.function(other, Vec::new()),
        })
    }

    fn call(&mut self, function: &Function) -> Result<Typed, Failure> {
        let name = match parts(&function.name)?.as_slice() {
            [name] => name.clone(),
            [schema, name] if schema == "pg_catalog" => name.clone(),
            [schema, name] if schema == "information_schema" && name == "_pg_expandarray" => name.clone(),
            _ => return Err(Failure::new("42883", format!("function {} does not exist", function.name))),
        };
        if let Some(over) = &function.over {
            return self.window(&name, function, over);
        }
        if !function.within_group.is_empty() || function.null_treatment.is_some() {
            return Err(Failure::unsupported(format!("this call of {name}"), "give plain arguments"));
        }
        if let ("array", FunctionArguments::Subquery(query)) = (name.as_str(), &function.args) {
            return self.array_query(query);
        }
        if !matches!(function.parameters, FunctionArguments::None) || function.uses_odbc_syntax {
            return Err(Failure::unsupported(
                format!("the call of {name}"),
                "docs/sql.md lists what is understood",
            ));
        }
        if super::is_aggregate(&name) {
            return self.aggregate(&name, function);
        }
        if function.filter.is_some() {
            let message = format!("FILTER specified, but {name} is not an aggregate function");
            return Err(Failure::new("42809", message));
        }
        let arguments = arguments(function)?;
        let mut typed = Vec::new();
        for argument in &arguments {
            typed.push(self.expr(argument)?);
        }
        if let Some(made) = self.makes_json(&name, &typed) {
            return made;
        }
        match (name.as_str(), typed.len()) {
            ("coalesce", 1..) => self.chosen("coalesce", "COALESCE", typed),
            ("greatest", 1..) => self.extreme("max", "GREATEST", typed),
            ("least", 1..) => self.extreme("min", "LEAST", typed),
            ("nullif", 2) => self.null_if(typed),
            ("concat", 1..) => self.concat(typed),
            (_, 0) => self.keyword(&name),
            (name, _) if super::arrays::takes_arrays(name) => self.array_function(name, typed),
            (name, _) if super::sets::gives_rows(name) => self.set_in_list(name, typed),
            _ => self.function(&name, typed),
        }
    }

    fn chosen(&mut self, name: &str, shown: &str, typed: Vec<Typed>) -> Result<Typed, Failure> {
        let typed = self.unified(typed, shown)?;
        let ty = typed[0].ty.expect("unified");
        let texts: Vec<String> = typed.iter().map(|typed| self.text(typed)).collect();
        Ok(match texts.as_slice() {
            [one] => Typed::engine(one.clone(), ty),
            texts => Typed::engine(format!("{name}({})", texts.join(", ")), ty),
        })
    }

    /// The largest or smallest of those that are not null: PostgreSQL passes over nulls, the engine's
    /// functions do not.
    fn extreme(&mut self, name: &str, shown: &str, typed: Vec<Typed>) -> Result<Typed, Failure> {
        let typed = self.unified(typed, shown)?;
        let ty = typed[0].ty.expect("unified");
        self.comparable(ty, "<")?;
        let texts: Vec<String> =
            typed.iter().map(|typed| format!("SELECT {} AS v", self.text(typed))).collect();
        Ok(Typed::engine(format!("(SELECT {name}(v) FROM ({}))", texts.join(" UNION ALL ")), ty))
    }

    fn null_if(&mut self, typed: Vec<Typed>) -> Result<Typed, Failure> {
        let (one, two) = (typed[0].clone(), typed[1].clone());
        let ty = one.ty.or(two.ty).unwrap_or(Ty::Text);
        let test = self.compare(one.clone(), "=", None, two)?;
        let one = self.becoming(one, ty)?;
        let text = format!("(CASE WHEN {} THEN NULL ELSE {} END)", self.text(&test), self.text(&one));
        Ok(Typed::engine(text, ty))
    }

    /// Nulls are skipped.
    fn concat(&mut self, typed: Vec<Typed>) -> Result<Typed, Failure> {
        let mut texts = vec!["''".to_string()];
        for one in typed {
            // Here PostgreSQL writes booleans as it sends them.
            let cast = match one.ty {
                Some(Ty::Bool) => {
                    let text = self.text(&one);
                    Typed::engine(format!("(CASE {text} WHEN 1 THEN 't' WHEN 0 THEN 'f' END)"), Ty::Text)
                }
                _ => self.cast_to(one, Ty::Text)?,
            };
            texts.push(format!("coalesce({}, '')", self.text(&cast)));
        }
        Ok(Typed::engine(format!("({})", texts.join(" || ")), Ty::Text))
    }

    /// A subquery that gives one value. More than one row is an error, which the engine must be made to see.
    pub(super) fn scalar(&mut self, query: &Query) -> Result<Typed, Failure> {
        let (text, output) = self.subquery(query)?;
        let [(_, ty)] = output.as_slice() else {
            return Err(Failure::new(code::SYNTAX, "subquery must return only one column"));
        };
        Ok(Typed::engine(format!("(SELECT one_(o0) FROM ({text}))"), *ty))
    }

    pub(super) fn exists(&mut self, query: &Query, negated: bool) -> Result<Typed, Failure> {
        let (text, _) = self.subquery(query)?;
        Ok(Typed::engine(format!("({}EXISTS ({text}))", if negated { "NOT " } else { "" }), Ty::Bool))
    }

    pub(super) fn in_subquery(
        &mut self,
        expr: &Expr,
        query: &Query,
        negated: bool,
    ) -> Result<Typed, Failure> {
        let one = self.expr(expr)?;
        let (text, output) = self.subquery(query)?;
        let [(_, ty)] = output.as_slice() else {
            return Err(Failure::new(code::SYNTAX, "subquery has too many columns"));
        };
        let (one, two, _) = self.alike(one, Typed::engine("o0".into(), *ty))?;
        let Form::Engine(two) = &two.form else { unreachable!("a column is the engine's") };
        let word = if negated { "NOT IN" } else { "IN" };
        Ok(Typed::engine(format!("({} {word} (SELECT {two} FROM ({text})))", self.text(&one)), Ty::Bool))
    }
}

fn text(value: &str) -> Typed {
    Typed::constant(Value::Text(value.into()), Ty::Text)
}

/// Plain arguments, without names and stars.
pub(super) fn arguments(function: &Function) -> Result<Vec<&Expr>, Failure> {
    let refuse = || Failure::unsupported(format!("the call of {}", function.name), "give plain arguments");
    let list = match &function.args {
        FunctionArguments::None => return Ok(Vec::new()),
        FunctionArguments::Subquery(_) => return Err(refuse()),
        FunctionArguments::List(list) => list,
    };
    if list.duplicate_treatment.is_some() && !super::is_aggregate(&function.name.to_string()) {
        return Err(Failure::new(
            "42809",
            format!("DISTINCT specified, but {} is not an aggregate function", function.name),
        ));
    }
    if !list.clauses.is_empty() && !super::is_aggregate(&function.name.to_string()) {
        return Err(refuse());
    }
    let plain = |argument| match argument {
        &FunctionArg::Unnamed(FunctionArgExpr::Expr(ref expr)) => Ok(expr),
        _ => Err(refuse()),
    };
    list.args.iter().map(plain).collect()
}
