//! The five transactions as programs that are compiled into a node (TPC-C 5.11, clauses 2.4 to 2.8): one call
//! each, at the partition of the warehouse.
//!
//! They are in the binary's nodes under `tpcc_...` and are made procedures of a database by `bench tpcc --by
//! procedure`. Compiled in and not in WebAssembly, since sums of money are exact decimals, which a program in
//! WebAssembly has as texts alone.
//!
//! A program finds rows by their keys. So there are two tables beside the nine: customers by their names, and
//! each customer's last order, which the transactions keep themselves ([`super::schema::KEPT`]).

mod orders;
mod payments;

use procedure::{Builtin, Shape};
use std::sync::Arc;
use types::data::kind::{Language, Procedure as Definition};
use types::data::{Column, ColumnType, Decimal, Row, Value};
use types::procedure::{Failure, FailureKind};

/// A table as the programs know it: its name, how many of its columns are the key, how many there are, and
/// the names of those that are used, each with where it stands.
struct Known {
    name: &'static str,
    key: usize,
    columns: usize,
    used: &'static [(usize, &'static str)],
}

const fn known(
    name: &'static str,
    (key, columns): (usize, usize),
    used: &'static [(usize, &'static str)],
) -> Known {
    Known { name, key, columns, used }
}

const WAREHOUSE: Known = known("warehouse", (1, 9), &[(1, "w_name"), (7, "w_tax"), (8, "w_ytd")]);
const DISTRICT: Known =
    known("district", (2, 11), &[(2, "d_name"), (8, "d_tax"), (9, "d_ytd"), (10, "d_next_o_id")]);
const CUSTOMER: Known = known(
    "customer",
    (3, 21),
    &[
        (13, "c_credit"),
        (15, "c_discount"),
        (16, "c_balance"),
        (17, "c_ytd_payment"),
        (18, "c_payment_cnt"),
        (19, "c_delivery_cnt"),
        (20, "c_data"),
    ],
);
const HISTORY: Known = known("history", (2, 8), &[(2, "h_c_id"), (5, "h_date"), (6, "h_amount")]);
const ORDERS: Known =
    known("orders", (3, 8), &[(3, "o_c_id"), (4, "o_entry_d"), (5, "o_carrier_id"), (6, "o_ol_cnt")]);
const NEW_ORDER: Known = known("new_order", (3, 3), &[]);
const ORDER_LINE: Known =
    known("order_line", (4, 10), &[(4, "ol_i_id"), (6, "ol_delivery_d"), (8, "ol_amount")]);
const ITEM: Known = known("item", (2, 6), &[(4, "i_price")]);
const STOCK: Known =
    known("stock", (2, 17), &[(2, "s_quantity"), (3, "s_dist_01"), (13, "s_ytd"), (14, "s_order_cnt")]);
const CUSTOMER_NAME: Known = known("customer_name", (5, 5), &[(2, "c_last"), (3, "c_first"), (4, "c_id")]);
const LAST_ORDER: Known = known("last_order", (3, 4), &[(3, "o_id")]);

/// A transaction as a program.
trait Transaction: Send + Sync + 'static {
    const NAME: &'static str;
    const READ_ONLY: bool = false;
    const PARAMETERS: &'static [(&'static str, ColumnType)];
    const RESULTS: &'static [(&'static str, ColumnType)];
    const TABLES: &'static [Known];

    /// The transaction itself.
    fn run(tables: &mut procedure::Tables<'_>, arguments: &[Value]) -> Result<(), Failure>;
}

/// Gives a transaction the form of a program.
struct Program<T>(std::marker::PhantomData<fn() -> T>);

fn columns(of: &[(&str, ColumnType)]) -> Vec<Column> {
    of.iter().map(|(name, column_type)| Column::new(*name, *column_type)).collect()
}

fn alike(columns: &[Column], wanted: &[(&str, ColumnType)]) -> bool {
    columns.len() == wanted.len()
        && columns.iter().zip(wanted).all(|(column, (_, of))| column.column_type == *of)
}

impl<T: Transaction> Builtin for Program<T> {
    fn tables(&self) -> Vec<String> {
        T::TABLES.iter().map(|table| table.name.to_string()).collect()
    }

    fn fault(&self, parameters: &[Column], results: &[Column], tables: &[Shape]) -> Option<String> {
        if !alike(parameters, T::PARAMETERS) || !alike(results, T::RESULTS) {
            let words = |of: &[(&str, ColumnType)]| {
                of.iter().map(|(name, of)| format!("{name} {of}")).collect::<Vec<_>>().join(", ")
            };
            let (takes, gives) = (words(T::PARAMETERS), words(T::RESULTS));
            return Some(format!("`{}` takes ({takes}) and gives ({gives})", T::NAME));
        }
        let other = |(known, shape): &(&Known, &Shape)| {
            let columns = shape.schema.columns();
            let named = |(at, name): &(usize, &str)| columns.get(*at).is_some_and(|one| one.name == *name);
            let key: Vec<usize> = (0..known.key).collect();
            columns.len() != known.columns || shape.schema.key() != key || !known.used.iter().all(named)
        };
        let (known, _) = T::TABLES.iter().zip(tables).find(other)?;
        Some(format!("table `{}` is not the one of TPC-C that `bench tpcc` makes", known.name))
    }

    fn call(&self, tables: &mut procedure::Tables<'_>, arguments: &[Value]) -> Result<(), Failure> {
        T::run(tables, arguments)
    }
}

/// A transaction as a database knows it.
pub(super) struct Described {
    pub name: &'static str,
    pub parameters: Vec<Column>,
    pub definition: Definition,
    program: Arc<dyn Builtin>,
}

fn described<T: Transaction>() -> Described {
    let definition = Definition {
        language: Language::Builtin,
        source: T::NAME.into(),
        results: columns(T::RESULTS),
        read_only: T::READ_ONLY,
        checked: false,
    };
    let program = Arc::new(Program::<T>(std::marker::PhantomData));
    Described { name: T::NAME, parameters: columns(T::PARAMETERS), definition, program }
}

/// All of them, in the order of the mix.
pub(super) fn all() -> [Described; 5] {
    [
        described::<orders::NewOrder>(),
        described::<payments::Payment>(),
        described::<orders::OrderStatus>(),
        described::<payments::Delivery>(),
        described::<orders::StockLevel>(),
    ]
}

/// The programs of TPC-C under the names by which a node has them.
pub fn tpcc_programs() -> Vec<(String, Arc<dyn Builtin>)> {
    all().into_iter().map(|one| (one.name.to_string(), one.program)).collect()
}

fn raised(why: &str) -> Failure {
    Failure::new(FailureKind::Raised, why)
}

/// A row that must be there.
fn found(row: Option<Row>, table: &Known) -> Result<Row, Failure> {
    row.ok_or_else(|| raised(&format!("a row of `{}` is not there", table.name)))
}

pub(super) fn int(value: &Value) -> Result<i64, Failure> {
    match value {
        Value::Int(number) => Ok(*number),
        other => Err(raised(&format!("{other} is no whole number"))),
    }
}

fn text(value: &Value) -> &str {
    match value {
        Value::Text(text) => text,
        _ => "",
    }
}

/// A decimal as so many units of 10^-`digits`.
fn units(value: &Value, digits: u32) -> Result<i64, Failure> {
    let Value::Decimal(number) = value else { return Err(raised(&format!("{value} is no sum"))) };
    let power = digits.checked_sub(number.scale()).and_then(|power| 10i128.checked_pow(power));
    let units = power.and_then(|power| number.mantissa().checked_mul(power));
    units.and_then(|units| i64::try_from(units).ok()).ok_or_else(|| raised("a sum is out of range"))
}

/// The other way.
fn decimal(units: i64, digits: u32) -> Value {
    Value::Decimal(Decimal::new(units.into(), digits).expect("64 bits have fewer than 38 digits"))
}

/// Hundredths.
pub(super) fn money(value: &Value) -> Result<i64, Failure> {
    units(value, 2)
}

/// Adds to a whole number of a row.
fn add(row: &mut Row, column: usize, by: i64) -> Result<(), Failure> {
    let sum = int(&row.values[column])?.checked_add(by);
    row.values[column] = Value::Int(sum.ok_or_else(|| raised("a number is too large"))?);
    Ok(())
}

/// Adds hundredths to a sum of a row.
fn pay(row: &mut Row, column: usize, by: i64) -> Result<(), Failure> {
    let sum = money(&row.values[column])?.checked_add(by);
    row.values[column] = decimal(sum.ok_or_else(|| raised("a sum is too large"))?, 2);
    Ok(())
}

/// The time of the call as a column has it.
fn now(tables: &procedure::Tables<'_>) -> Value {
    Value::Timestamp(i64::try_from(tables.given().now_ms).unwrap_or(i64::MAX / 1_000).saturating_mul(1_000))
}

/// A customer: by number, or by last name, of which it is the one in the middle by first name.
fn customer(
    tables: &mut procedure::Tables<'_>,
    names: usize,
    (w, d): (&Value, &Value),
    (number, last): (&Value, &Value),
) -> Result<Value, Failure> {
    if !number.is_null() {
        return Ok(number.clone());
    }
    let key = vec![w.clone(), d.clone(), last.clone()];
    let rows = tables.range(names, (key, 3), 1_000)?;
    let middle = rows.len().div_ceil(2).checked_sub(1);
    let row = middle.and_then(|middle| rows.into_iter().nth(middle));
    Ok(found(row, &CUSTOMER_NAME)?.values[4].clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_exact() {
        for hundredths in [0, 5, -10, 150, 123_456, -1] {
            assert_eq!(money(&decimal(hundredths, 2)), Ok(hundredths));
        }
        assert!(money(&Value::Int(1)).is_err() && money(&decimal(12_345, 4)).is_err());
        let mut row = Row::new(vec![decimal(-1_000, 2), Value::Int(i64::MAX)]);
        pay(&mut row, 0, 2_550).expect("a sum");
        assert_eq!(row.values[0].to_string(), "15.5");
        assert!(add(&mut row, 1, 1).is_err());
    }

    #[test]
    fn each_has_a_name_of_its_own_and_says_what_it_takes() {
        let programs = tpcc_programs();
        let names: std::collections::BTreeSet<&str> =
            programs.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names.len(), 5);
        for (name, program) in &programs {
            let fault = program.fault(&[], &[], &[]).expect("refused");
            assert!(fault.starts_with(&format!("`{name}` takes (w int")), "{fault}");
        }
    }
}
